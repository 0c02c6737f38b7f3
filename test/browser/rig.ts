import { afterAll, beforeAll } from "vitest";
import { type TestDatabase, testDatabase } from "../support/database.ts";
import { type Desk, openDesk } from "./desk.ts";

/** One service, and one database of its own, a test file. */
export let database: TestDatabase;
export let desk: Desk;

export function useDesk(): void {
  beforeAll(async () => {
    database = await testDatabase();
    desk = await openDesk({ DATABASE_URL: database.url });
  });
  afterAll(async () => {
    await desk.close();
    await database.close();
  });
}
