import { sql } from "kysely";
import { wordArray } from "./arrays.ts";
import { type ProvedCalls, provedCalls } from "./call-counts.ts";
import type { Db } from "./schema.ts";

/** What a channel's id looks like; the database checks the same. */
export const CHANNEL_ID = /^[a-z][a-z0-9_-]{0,62}$/;

export interface ChannelRow {
  readonly id: string;
  readonly provider: string;
  readonly pausedAt: Date | null;
  readonly pausedUntil: Date | null;
  readonly pauseReason: string | null;
  readonly pauseNote: string | null;
  readonly pausedBy: string | null;
  /** Null: the breaker is closed. */
  readonly breakerOpenedAt: Date | null;
  readonly breakerOpenUntil: Date | null;
  readonly pacedUntil: Date | null;
  /** Calls a second, as the provider's answers say; null: they have not said it. */
  readonly learnedRate: number | null;
  readonly lastWebhookAt: Date | null;
}

export interface ChannelHealth extends ChannelRow {
  readonly calls: RecentCalls;
  /** Pending deliveries; counted up to 10,000, then that number means "or more". */
  readonly backlog: number;
  /** Claimed deliveries; counted likewise. */
  readonly inFlight: number;
  readonly oldestDueAt: Date | null;
}

const columns = sql`id, provider, paused_at as "pausedAt", paused_until as "pausedUntil", pause_reason as "pauseReason",
  pause_note as "pauseNote", paused_by as "pausedBy", breaker_opened_at as "breakerOpenedAt",
  breaker_open_until as "breakerOpenUntil", paced_until as "pacedUntil", learned_rate as "learnedRate",
  last_webhook_at as "lastWebhookAt"`;
/** Channels belong to no producer: their events are the ledger's own. */
const admin = sql`(select id from producers where name = 'admin')`;

/**
 * Makes the configured channels known to all replicas. A hold that the ledger put on a channel for its credentials ends
 * when the credentials have changed: putting the key right is what resumes it. `fingerprint` null: this process calls no
 * provider, and has no say about credentials.
 */
export async function registerChannels(
  db: Db,
  channels: readonly { readonly id: string; readonly provider: string; readonly fingerprint: string | null }[],
): Promise<void> {
  for (const { id, provider, fingerprint } of channels) {
    await sql`
      insert into channels (id, provider, credential_fingerprint) values (${id}, ${provider}, ${fingerprint})
      on conflict (id) do nothing`.execute(db);
    const row = await findChannel(db, id);
    if (row?.provider !== provider) {
      throw new Error(`channel ${id} belongs to ${row?.provider}: give the account at ${provider} another id`);
    }
    if (fingerprint === null) continue;
    await sql`
      with changed as (
        update channels set credential_fingerprint = ${fingerprint}
        where id = ${id} and credential_fingerprint is distinct from ${fingerprint}
        returning paused_by, pause_reason
      )
      select 1 from changed where paused_by = 'ledger' and pause_reason = 'credentials_refused'`
      .execute(db)
      .then(({ rows }) => (rows.length > 0 ? resumeChannel(db, id, "ledger", "the credentials have changed") : null));
  }
}

export async function findChannel(db: Db, id: string): Promise<ChannelRow | null> {
  const { rows } = await sql<ChannelRow>`select ${columns} from channels where id = ${id}`.execute(db);
  return rows[0] ?? null;
}

/** The provider of each channel that is known, by the channel's id. Texts that are no id are not there. */
export async function findProviders(db: Db, ids: readonly string[]): Promise<ReadonlyMap<string, string>> {
  const plausible = ids.filter((id) => CHANNEL_ID.test(id));
  const { rows } = await sql<{ id: string; provider: string }>`
    select id, provider from channels where id = any(${wordArray(plausible)})`.execute(db);
  return new Map(rows.map(({ id, provider }) => [id, provider]));
}

/** What the calls of the last five minutes proved, and how long they took. */
export interface RecentCalls extends ProvedCalls {
  /** Minutes in which they were made: the one that runs, and the four before it. */
  readonly minutes: number;
  readonly meanMs: number | null;
  readonly maxMs: number | null;
}

/** All channels that were ever configured, with their backlogs. Bounded: a backlog is counted up to 10,000. */
export async function listChannels(db: Db): Promise<readonly ChannelHealth[]> {
  const { rows } = await sql<ChannelHealth>`
    select ${columns},
      (select count(*)::integer from (
        select from deliveries d where d.channel = channels.id and d.state = 'pending' limit 10000) as waiting) as backlog,
      (select count(*)::integer from (
        select from attempts a join deliveries d on d.id = a.delivery_id and d.producer_id = a.producer_id
        where a.settled_at is null and d.channel = channels.id limit 10000) as claimed) as "inFlight",
      (select min(d.next_attempt_at) from deliveries d
        where d.channel = channels.id and d.state = 'pending') as "oldestDueAt",
      (select row_to_json(recent) from (
        select ${provedCalls}, 4 + extract(second from ledger_now()) / 60 as minutes from call_counts n
        where n.channel = channels.id and n.minute > ledger_now() - interval '5 minutes') as recent) as calls
    from channels order by id`.execute(db);
  return rows;
}

export async function listChannelIds(db: Db): Promise<readonly string[]> {
  const rows = await db.selectFrom("channels").select("id").orderBy("id").execute();
  return rows.map(({ id }) => id);
}

export interface Rung {
  readonly channel: string;
  /** The minute in which they are due. */
  readonly at: Date;
  readonly count: number;
}

/** Further attempts that are due in the next ten minutes, by the minute; a channel's next 10,000 deliveries are looked at. */
export async function listRungs(db: Db): Promise<readonly Rung[]> {
  const { rows } = await sql<Rung>`
    select channels.id as channel, date_trunc('minute', due.next_attempt_at) as at, count(*)::integer as count
    from channels cross join lateral (
      select next_attempt_at, attempt_count from deliveries
      where channel = channels.id and state = 'pending' and next_attempt_at > ledger_now()
        and next_attempt_at < ledger_now() + interval '10 minutes'
      order by next_attempt_at limit 10000
    ) due
    where due.attempt_count > 0
    group by 1, 2 order by 1, 2`.execute(db);
  return rows;
}

/** The kill switch: no claim is made on it from this commit on, by any replica. Null when there is no such channel. */
export async function pauseChannel(db: Db, id: string, by: string, note: string): Promise<ChannelRow | null> {
  const { rows } = await sql<ChannelRow>`
    with paused as (
      update channels
      set paused_at = ledger_now(), paused_until = null, pause_reason = 'operator', pause_note = ${note}, paused_by = ${by}
      where id = ${id} returning *
    ), told as (
      insert into events (type, producer_id, data)
      select 'channel.paused', ${admin},
        json_build_object('channel', id, 'reason', pause_reason, 'note', pause_note, 'by', paused_by)
      from paused
    )
    select ${columns} from paused`.execute(db);
  return rows[0] ?? null;
}

/** Ends a pause, whoever made it; the feed is told when there was one. Null when there is no such channel. */
export async function resumeChannel(db: Db, id: string, by: string, note: string | null): Promise<ChannelRow | null> {
  const { rows } = await sql<ChannelRow>`
    with before as (
      select id, paused_at, pause_reason from channels where id = ${id} for update
    ), resumed as (
      update channels c
      set paused_at = null, paused_until = null, pause_reason = null, pause_note = null, paused_by = null
      from before where c.id = before.id returning c.*
    ), told as (
      insert into events (type, producer_id, data)
      select 'channel.resumed', ${admin},
        json_build_object('channel', id, 'reason', pause_reason, 'note', ${note}::text, 'by', ${by}::text)
      from before where paused_at is not null
    )
    select ${columns} from resumed`.execute(db);
  return rows[0] ?? null;
}
