import { sql } from "kysely";
import type { Db } from "./schema.ts";

/** A session ends so long after its last use … */
const IDLE = sql.raw("interval '1 hour'");
/** … and so long after its beginning, however much it is used. */
const LONGEST = sql.raw("interval '12 hours'");

export interface SessionRow {
  readonly keyHash: Buffer;
  readonly operator: string;
}

/** Begins a session; those that are over are forgotten on the way. */
export async function beginSession(db: Db, tokenHash: Buffer, { keyHash, operator }: SessionRow): Promise<void> {
  await sql`delete from console_sessions where created_at < ledger_now() - ${LONGEST} or used_at < ledger_now() - ${IDLE}`.execute(
    db,
  );
  await db.insertInto("console_sessions").values({ token_hash: tokenHash, key_hash: keyHash, operator }).execute();
}

/** The session, if it is not over; `uses`: this is a use of it, from which it counts anew. */
export async function findSession(db: Db, tokenHash: Buffer, uses: boolean): Promise<SessionRow | null> {
  const { rows } = await sql<SessionRow>`
    with found as (
      select token_hash, key_hash, operator, used_at from console_sessions
      where token_hash = ${tokenHash} and used_at > ledger_now() - ${IDLE} and created_at > ledger_now() - ${LONGEST}
    ), used as (
      update console_sessions s set used_at = ledger_now() from found
      where ${uses} and s.token_hash = found.token_hash and found.used_at < ledger_now() - interval '1 minute'
    )
    select key_hash as "keyHash", operator from found`.execute(db);
  return rows[0] ?? null;
}

export async function endSession(db: Db, tokenHash: Buffer): Promise<void> {
  await db.deleteFrom("console_sessions").where("token_hash", "=", tokenHash).execute();
}

/** Ends every session that was signed in with this key. */
export async function endSessionsOf(db: Db, keyHash: Buffer): Promise<void> {
  await db.deleteFrom("console_sessions").where("key_hash", "=", keyHash).execute();
}
