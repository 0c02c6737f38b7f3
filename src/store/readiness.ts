import { setTimeout } from "node:timers/promises";
import { sql } from "kysely";
import { pendingMigrations } from "./migrate.ts";
import type { Db } from "./schema.ts";

/** A statement waits for a database that is away; a probe must not. */
const PATIENCE_MS = 2_000;

/** What keeps the database from doing its part; empty when all is well. Never rejects, answers within two seconds. */
export async function databaseFaults(db: Db): Promise<readonly string[]> {
  const late = setTimeout(PATIENCE_MS, ["the database does not answer"], { ref: false });
  return await Promise.race([readFaults(db), late]);
}

async function readFaults(db: Db): Promise<readonly string[]> {
  try {
    const { rows } = await sql<{ readonly: string; recovering: boolean }>`
      select current_setting('transaction_read_only') as readonly, pg_is_in_recovery() as recovering`.execute(db);
    const faults: string[] = [];
    if (rows[0]?.readonly !== "off" || rows[0].recovering) faults.push("the database cannot be written to");
    const pending = await pendingMigrations(db);
    if (pending.length > 0) faults.push(`migrations are missing: ${pending.join(", ")}`);
    return faults;
  } catch {
    return ["the database cannot be reached"];
  }
}
