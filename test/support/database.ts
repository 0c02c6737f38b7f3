import { sql } from "kysely";
import postgres from "postgres";
import { inject } from "vitest";
import { type Database, isConflict, openDatabase } from "../../src/store/database.ts";
import type { Db } from "../../src/store/schema.ts";

export interface TestDatabase extends Database {
  readonly url: string;
}

let made = 0;

/** A migrated database of the test file's own; `close` drops it. */
export async function testDatabase(poolSize = 10): Promise<TestDatabase> {
  const serverUrl = inject("serverUrl");
  made += 1;
  const name = `ledger_test_${process.pid}_${Date.now().toString(36)}_${made}`;
  const admin = postgres(serverUrl, { max: 1, onnotice: () => {} });
  try {
    // A template can be copied by one at a time.
    await admin`select pg_advisory_lock(7101)`;
    await admin.unsafe(`create database ${name} template ${inject("template")}`);
  } finally {
    await admin.end();
  }
  const url = new URL(serverUrl);
  url.pathname = `/${name}`;
  const database = openDatabase({ url: url.href, poolSize, applicationName: "test" });
  return {
    ...database,
    url: url.href,
    async close() {
      await database.close();
      const dropper = postgres(serverUrl, { max: 1, onnotice: () => {} });
      await dropper.unsafe(`drop database if exists ${name} with (force)`);
      await dropper.end();
    },
  };
}

/**
 * Empties tables, and those that refer to them. A worker that was stopped on a busy machine may have its last statement under way
 * (a stop waits for it a second, no longer): truncate locks whole tables, so the two may meet in a circle.
 */
export async function empty(db: Db, ...tables: readonly string[]): Promise<void> {
  for (let tries = 1; ; tries += 1) {
    try {
      await sql`truncate ${sql.join(tables.map((table) => sql.table(table)))} cascade`.execute(db);
      return;
    } catch (error) {
      if (!isConflict(error) || tries === 5) throw error;
    }
  }
}
