import { sql, type Transaction } from "kysely";
import { afterCall, type Breaker, FAILING_CALLS, type SeenCall } from "../ledger/breaker.ts";
import type { Millis } from "../ledger/delivery.ts";
import type { Schema } from "./schema.ts";

/** What one commit's answers say of a channel. */
export interface Heard {
  readonly channel: string;
  /** In the order in which they came. */
  readonly calls: readonly SeenCall[];
  /** Calls a second that the provider allows, as its latest answer said; null: none did. */
  readonly limitPerSecond: number | null;
  /** The commit writes to the channel's row for another reason, too. */
  readonly touches: boolean;
}

interface ChannelRow {
  id: string;
  recent_calls: string;
  opened_at: Millis | null;
  open_until: Millis | null;
  relearned: boolean;
  now: Millis;
}

const millis = (column: string) => sql<Millis>`floor(extract(epoch from ${sql.raw(column)}) * 1000)::double precision`;

/**
 * Locks the rows of the channels that change, in the order of their ids, so that two commits never wait for each other in a
 * circle; and writes what the answers say of breaker and rate. A healthy channel whose calls are good is neither locked
 * nor written.
 */
export async function hear(tx: Transaction<Schema>, heard: readonly Heard[]): Promise<void> {
  const asked = heard.map(({ channel, calls, limitPerSecond, touches }) => ({
    channel,
    touches: touches || calls.some(({ failing }) => failing),
    calls: calls.length > 0,
    rate: limitPerSecond,
  }));
  const { rows } = await sql<ChannelRow>`
    select c.id, c.recent_calls, ${millis("c.breaker_opened_at")} as opened_at, ${millis("c.breaker_open_until")} as open_until,
      heard.rate is not null and c.learned_rate is distinct from heard.rate as relearned, ${millis("ledger_now()")} as now
    from json_to_recordset(${JSON.stringify(asked)}::text::json)
      as heard (channel text, touches boolean, calls boolean, rate real)
    join channels c on c.id = heard.channel
    where heard.touches
      or (heard.calls and (c.recent_calls <> '' or c.breaker_opened_at is not null))
      or (heard.rate is not null and c.learned_rate is distinct from heard.rate)
    order by c.id for update of c`.execute(tx);
  for (const row of rows) {
    const of = heard.find(({ channel }) => channel === row.id);
    if (!of) continue;
    const before = { openedAt: row.opened_at, openUntil: row.open_until, recentCalls: row.recent_calls };
    const after = of.calls.reduce((breaker, call) => afterCall(breaker, call, row.now), before as Breaker);
    if (isChanged(before, after) || row.relearned) await write(tx, row.id, before, after, of.limitPerSecond);
  }
}

const isChanged = (a: Breaker, b: Breaker): boolean =>
  a.openedAt !== b.openedAt || a.openUntil !== b.openUntil || a.recentCalls !== b.recentCalls;

const time = (at: Millis | null) => sql`to_timestamp(${at === null ? null : at / 1000}::double precision)`;

async function write(
  tx: Transaction<Schema>,
  channel: string,
  before: Breaker,
  after: Breaker,
  limitPerSecond: number | null,
): Promise<void> {
  const event = turnOf(before, after);
  await sql`
    with changed as (
      update channels
      set recent_calls = ${after.recentCalls}, breaker_opened_at = ${time(after.openedAt)},
        breaker_open_until = ${time(after.openUntil)}, learned_rate = coalesce(${limitPerSecond}::real, learned_rate)
      where id = ${channel}
      returning id
    )
    insert into events (type, producer_id, data)
    select ${event?.type ?? null}::text, (select id from producers where name = 'admin'),
      ${JSON.stringify({ channel, ...event?.data })}::text::json
    from changed where ${event !== null}`.execute(tx);
}

const written = (at: Millis | null): string | null => (at === null ? null : new Date(at).toISOString());

/** What the feed is told; null: nothing turned. */
function turnOf(before: Breaker, after: Breaker): { readonly type: string; readonly data: object } | null {
  if (before.openedAt === null && after.openedAt !== null) {
    const data = { failing: FAILING_CALLS, until: written(after.openUntil) };
    return { type: "channel.breaker_opened", data };
  }
  if (before.openedAt !== null && after.openedAt === null) {
    return { type: "channel.breaker_closed", data: { opened_at: written(before.openedAt) } };
  }
  return null;
}

/**
 * Takes the right to one probe of a channel whose breaker is open. It is the guarded update itself: of two replicas, the
 * second finds the next probe's time in the future. The next one is not before this one's lease is over, or its
 * answer says when.
 */
export async function takeProbe(tx: Transaction<Schema>, channel: string, leaseMs: number): Promise<boolean> {
  const { rows } = await sql`
    update channels
    set breaker_open_until = ledger_now() + ${leaseMs}::double precision * interval '1 millisecond'
    where id = ${channel} and breaker_opened_at is not null and breaker_open_until <= ledger_now()
    returning id`.execute(tx);
  return rows.length > 0;
}

/** Gives it back: there was nothing to claim. */
export async function returnProbe(tx: Transaction<Schema>, channel: string): Promise<void> {
  await sql`update channels set breaker_open_until = ledger_now() where id = ${channel}`.execute(tx);
}
