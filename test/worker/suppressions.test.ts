import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { findDelivery } from "../../src/store/deliveries.ts";
import { putSuppression, removeSuppression } from "../../src/store/suppressions.ts";
import type { Worker } from "../../src/worker/worker.ts";
import { take } from "../support/builders.ts";
import { type TestDatabase, testDatabase } from "../support/database.ts";
import { type Account, attemptsOf, settles, work } from "../support/pipeline.ts";

const sandbox: Account = { id: "sandbox", settings: { provider: "sandbox" } };
let database: TestDatabase;
const workers: Worker[] = [];
beforeAll(async () => {
  database = await testDatabase();
});
afterEach(() => Promise.all(workers.splice(0).map((worker) => worker.stop(5_000))));
afterAll(() => database.close());

const running = async () => void workers.push(await work(database.db, [sandbox]));
const suppress = (recipient: string) =>
  putSuppression(database.db, { channel: "sandbox", recipient, reason: "by hand", by: "ada" });
const release = (recipient: string) =>
  removeSuppression(database.db, { channel: "sandbox", recipient, by: "ada", note: null });

describe("a suppressed recipient", () => {
  test("is sent nothing, whatever its case: its deliveries close as suppressed without an attempt", async () => {
    await suppress("Accept.Me@Sandbox");
    const ids = await take(
      database.db,
      { recipient: "accept.me@sandbox" },
      { recipient: "ACCEPT.ME@SANDBOX" },
      { recipient: "Accept.Me@Sandbox" },
    );
    const [other = ""] = await take(database.db, { recipient: "accept@sandbox" });
    await running();
    for (const id of ids) {
      await settles(database.db, id, "suppressed");
      expect(await attemptsOf(database.db, id)).toEqual([]);
    }
    await settles(database.db, other as (typeof ids)[number], "sent");
  });

  test("is sent the next delivery again when it is taken from the list; what was closed stays closed", async () => {
    await running();
    await suppress("accept@sandbox");
    const [before] = await take(database.db, { recipient: "Accept@sandbox" });
    if (!before) throw new Error("not taken");
    await settles(database.db, before, "suppressed");
    expect(await release("ACCEPT@sandbox")).toBe(true);
    const [after] = await take(database.db, { recipient: "accept@sandbox" });
    if (!after) throw new Error("not taken");
    await settles(database.db, after, "sent");
    expect(await findDelivery(database.db, before, null)).toMatchObject({ state: "suppressed" });
  });

  test("shows on a delivery that still waits", async () => {
    await suppress("later@sandbox");
    const [id = ""] = await take(database.db, { recipient: "LATER@sandbox", deliverAt: new Date(Date.now() + 60_000) });
    expect(await findDelivery(database.db, id, null)).toMatchObject({ state: "pending", suppressed: true });
    await release("later@sandbox");
    expect(await findDelivery(database.db, id, null)).toMatchObject({ suppressed: false });
  });
});
