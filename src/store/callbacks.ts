import { sql } from "kysely";
import type { ProducerId } from "../ledger/delivery.ts";
import type { Position } from "./feed.ts";
import type { Db } from "./schema.ts";

/** A producer's callback. The secrets are for signing, never for an answer. */
export interface CallbackRow {
  readonly producer_id: ProducerId;
  readonly url: string;
  readonly types: readonly string[] | null;
  readonly created_at: Date;
  readonly disabled_at: Date | null;
  readonly disabled_reason: string | null;
  readonly failing_since: Date | null;
  readonly last_success_at: Date | null;
  readonly last_failure_at: Date | null;
  readonly last_failure: string | null;
  readonly old_secret_until: Date | null;
  /** Messages that wait to be posted; counted up to 10,000, then that number means "or more". */
  readonly backlog: number;
}

/** Everything that is ready to be read now has been told, as far as a new callback is concerned. */
const END = sql`(feed_horizon()::text::bigint - 1)::text::xid8`;

export async function findCallback(db: Db, producerId: ProducerId): Promise<CallbackRow | null> {
  const { rows } = await sql<CallbackRow>`
    select producer_id, url, types, created_at, disabled_at, disabled_reason, failing_since, last_success_at,
      last_failure_at, last_failure, case when old_secret_until > ledger_now() then old_secret_until end as old_secret_until,
      (select count(*)::integer from (
        select from callback_messages m
        where m.producer_id = callbacks.producer_id and m.next_attempt_at is not null limit 10000) as waiting) as backlog
    from callbacks where producer_id = ${producerId}`.execute(db);
  return rows[0] ?? null;
}

/** The secrets that sign now, the current one first. */
export async function secretsOf(db: Db, producerId: ProducerId): Promise<readonly string[]> {
  const { rows } = await sql<{ secret: string; old: string | null }>`
    select secret, case when old_secret_until > ledger_now() then old_secret end as old
    from callbacks where producer_id = ${producerId}`.execute(db);
  return rows.flatMap(({ secret, old }) => (old === null ? [secret] : [secret, old]));
}

/**
 * Registers a callback, or changes it: a new one begins with what happens from now on, a changed one goes on where it was,
 * enabled again. `secret` null: it stays as it is (`fallback` for a new one). True when it is new.
 */
export async function putCallback(
  db: Db,
  wanted: {
    readonly producerId: ProducerId;
    readonly url: string;
    readonly types: readonly string[] | null;
    readonly secret: string | null;
    readonly fallback: string;
  },
): Promise<{ readonly isNew: boolean }> {
  const types = wanted.types === null ? null : JSON.stringify(wanted.types);
  const { rows } = await sql<{ is_new: boolean }>`
    insert into callbacks (producer_id, url, types, secret, after_tx, after_id)
    values (${wanted.producerId}, ${wanted.url}, ${types}::text::json, ${wanted.secret ?? wanted.fallback}, ${END},
      9223372036854775807)
    on conflict (producer_id) do update
    set url = excluded.url, types = excluded.types, disabled_at = null, disabled_reason = null, failing_since = null,
      secret = coalesce(${wanted.secret}::text, callbacks.secret),
      old_secret = case when ${wanted.secret}::text is null then callbacks.old_secret end,
      old_secret_until = case when ${wanted.secret}::text is null then callbacks.old_secret_until end
    returning (xmax = 0) as is_new`.execute(db);
  return { isNew: rows[0]?.is_new ?? false };
}

/** With it go the messages that were not posted yet. False when there is none. */
export async function deleteCallback(db: Db, producerId: ProducerId): Promise<boolean> {
  const { rows } = await sql`delete from callbacks where producer_id = ${producerId} returning 1`.execute(db);
  return rows.length === 1;
}

/** It goes on where it stopped; what waits is due at once. False when there is none. */
export async function enableCallback(db: Db, producerId: ProducerId): Promise<boolean> {
  const { rows } = await sql`
    with enabled as (
      update callbacks set disabled_at = null, disabled_reason = null, failing_since = null
      where producer_id = ${producerId} returning producer_id
    ), due as (
      update callback_messages m set next_attempt_at = ledger_now() from enabled
      where m.producer_id = enabled.producer_id and m.next_attempt_at > ledger_now()
    )
    select 1 from enabled`.execute(db);
  return rows.length === 1;
}

/** The old secret also signs for another day. False when there is no callback. */
export async function rotateSecret(db: Db, producerId: ProducerId, secret: string): Promise<boolean> {
  const { rows } = await sql`
    update callbacks
    set old_secret = secret, old_secret_until = ledger_now() + interval '1 day', secret = ${secret}
    where producer_id = ${producerId} returning 1`.execute(db);
  return rows.length === 1;
}

/** Messages are made anew for everything after this place in the feed, under the ids that they had. False when there is none. */
export async function replayFrom(db: Db, producerId: ProducerId, after: Position): Promise<boolean> {
  const { rows } = await sql`
    update callbacks set after_tx = ${String(after.tx)}::xid8, after_id = ${String(after.id)}::bigint
    where producer_id = ${producerId} returning 1`.execute(db);
  return rows.length === 1;
}

/** The place before the producer's first event that is not earlier than `since`; the feed's end when there is none. */
export async function placeBefore(db: Db, producerId: ProducerId, since: Date): Promise<Position | null> {
  const { rows } = await sql<{ tx: string; id: string }>`
    select tx::text, id::text from events
    where producer_id = ${producerId} and at >= ${since} order by tx, id limit 1`.execute(db);
  const [first] = rows;
  return first ? { tx: BigInt(first.tx), id: BigInt(first.id) - 1n } : null;
}
