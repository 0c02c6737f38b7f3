import { type Selectable, type SqlBool, sql } from "kysely";
import type { DeliveryId, Failure, ProducerId, ReceiptStatus, State } from "../ledger/delivery.ts";
import { uuidArray } from "./arrays.ts";
import type { Attempts, Db, Deliveries } from "./schema.ts";

/** A delivery as it is read: with its producer's name, its provider, its channel's row, and its open attention item. */
export type DeliveryRow = Omit<Selectable<Deliveries>, "request_hash"> & {
  producer: string;
  provider: string;
  suppressed: boolean;
  channel_paused_at: Date | null;
  channel_paused_until: Date | null;
  breaker_open_until: Date | null;
  /** When the channel's rate allows the next call, or the provider's own wish to wait is over. */
  paced_until: Date | null;
  attention_id: string | null;
  attention_reason: string | null;
  attention_opened_at: Date | null;
  now: Date;
};

export type AttemptRow = Selectable<Attempts>;

const selection = sql`
  select d.id, d.producer_id, d.name, d.schedule, d.due_at, d.channel, d.recipient, d.on_unknown, d.metadata, d.deliver_at,
    d.expires_at, d.accepted_at, d.state, d.failure, d.hold_reason, d.next_attempt_at, d.attempt_count, d.ladder, d.in_doubt,
    d.provider_message_id, d.receipt_status, d.receipt_at, d.settled_at, p.name as producer,
    coalesce(c.provider, 'unknown') as provider, c.paused_at as channel_paused_at, c.paused_until as channel_paused_until,
    c.breaker_open_until, greatest(c.paced_until, c.rate_free_at) as paced_until,
    case when d.quiet_hours is null then p.quiet_hours else d.quiet_hours end as quiet_hours, i.id as attention_id, i.reason as attention_reason,
    i.opened_at as attention_opened_at, ledger_now() as now,
    d.state = 'pending' and exists (
      select from suppressions s where s.channel = d.channel and s.recipient = suppression_key(d.recipient)) as suppressed
  from deliveries d
  join producers p on p.id = d.producer_id
  left join channels c on c.id = d.channel
  left join attention_items i on i.delivery_id = d.id and i.producer_id = d.producer_id and i.closed_at is null`;

/** `producerId` null: whosever it is. Null when there is none, or it is another producer's. */
export async function findDelivery(db: Db, id: string, producerId: ProducerId | null): Promise<DeliveryRow | null> {
  const { rows } = await sql<DeliveryRow>`
    ${selection} where d.id = ${id} and (${producerId}::uuid is null or d.producer_id = ${producerId})`.execute(db);
  return rows[0] ?? null;
}

/** Several at once, for the answers of an intake. */
export async function findDeliveries(
  db: Db,
  ids: readonly DeliveryId[],
): Promise<ReadonlyMap<DeliveryId, DeliveryRow>> {
  const { rows } = await sql<DeliveryRow>`${selection} where d.id = any(${uuidArray(ids)})`.execute(db);
  return new Map(rows.map((row) => [row.id, row]));
}

export async function listAttempts(db: Db, id: DeliveryId): Promise<readonly AttemptRow[]> {
  return await db.selectFrom("attempts").selectAll().where("delivery_id", "=", id).orderBy("number").execute();
}

/** The attempts of several deliveries, each in order. */
export async function listAttemptsOf(
  db: Db,
  ids: readonly DeliveryId[],
): Promise<ReadonlyMap<DeliveryId, readonly AttemptRow[]>> {
  const rows = await db
    .selectFrom("attempts")
    .selectAll()
    .where("delivery_id", "=", sql<DeliveryId>`any(${uuidArray(ids)})`)
    .orderBy("number")
    .execute();
  return Map.groupBy(rows, (row) => row.delivery_id);
}

export interface DeliveryFilter {
  readonly name?: string | undefined;
  readonly state?: State | undefined;
  readonly channel?: string | undefined;
  readonly to?: string | undefined;
  readonly schedule?: string | undefined;
  readonly failure?: Failure | undefined;
  readonly receipt?: ReceiptStatus | undefined;
  /** Of any attempt, or given by a person. */
  readonly providerMessageId?: string | undefined;
  /** Exclusive. */
  readonly acceptedAfter?: Date | undefined;
  /** Exclusive. */
  readonly acceptedBefore?: Date | undefined;
}

/**
 * Newest first, by id: ids are made at acceptance, in the order of time, and never change, so that no row is lost or
 * repeated while states do. `before`: the last id of the page before.
 */
export async function listDeliveries(
  db: Db,
  filter: DeliveryFilter,
  producerId: ProducerId | null,
  page: { readonly before: string | null; readonly limit: number },
): Promise<readonly DeliveryRow[]> {
  const conditions = [
    producerId === null ? null : sql`d.producer_id = ${producerId}`,
    // The index on names begins with the producer: one look a producer instead of reading the whole history.
    producerId === null && filter.name !== undefined
      ? sql`d.producer_id = any (array(select id from producers))`
      : null,
    page.before === null ? null : sql`d.id < ${page.before}::uuid`,
    filter.name === undefined ? null : sql`d.name = ${filter.name}`,
    filter.state === undefined ? null : sql`d.state = ${filter.state}`,
    filter.channel === undefined ? null : sql`d.channel = ${filter.channel}`,
    filter.to === undefined ? null : sql`d.recipient = ${filter.to}`,
    filter.schedule === undefined ? null : sql`d.schedule = ${filter.schedule}`,
    filter.failure === undefined ? null : sql`d.failure = ${filter.failure} and d.state = 'failed'`,
    filter.receipt === undefined ? null : sql`d.receipt_status = ${filter.receipt}`,
    ...narrowing(filter),
    filter.providerMessageId === undefined
      ? null
      : sql`d.id = any (array(
          select delivery_id from attempts where provider_message_id = ${filter.providerMessageId}
          union all
          select id from deliveries where provider_message_id = ${filter.providerMessageId} and in_doubt))`,
    filter.acceptedAfter === undefined ? null : sql`d.accepted_at > ${filter.acceptedAfter}`,
    filter.acceptedBefore === undefined ? null : sql`d.accepted_at < ${filter.acceptedBefore}`,
  ].filter((condition) => condition !== null);
  const where = conditions.length === 0 ? sql`true` : sql.join<SqlBool>(conditions, sql` and `);
  const { rows } = await sql<DeliveryRow>`
    ${selection} where ${where} order by d.id desc limit ${page.limit}`.execute(db);
  return rows;
}

/** Conditions that follow from the filter, and have an index. */
function narrowing({ state, receipt, acceptedAfter, acceptedBefore }: DeliveryFilter) {
  return [
    state === "claimed" ? sql`d.id = any (array(select delivery_id from attempts where settled_at is null))` : null,
    receipt === undefined
      ? null
      : sql`exists (select from receipts r where r.delivery_id = d.id and r.status = ${receipt})`,
    acceptedAfter === undefined ? null : sql`d.id > ${firstIdOf(acceptedAfter.getTime() - CLOCKS_DIFFER_MS)}::uuid`,
    acceptedBefore === undefined ? null : sql`d.id < ${firstIdOf(acceptedBefore.getTime() + CLOCKS_DIFFER_MS)}::uuid`,
  ];
}

/** Ids are made by a replica's clock, times of acceptance by the database's. */
const CLOCKS_DIFFER_MS = 3_600_000;

/** No UUIDv7 of that millisecond or a later one is smaller (RFC 9562, 5.7: 48 bits of Unix time in front). */
function firstIdOf(ms: number): string {
  const time = Math.min(Math.max(0, ms), 2 ** 48 - 1);
  const hex = time.toString(16).padStart(12, "0");
  return `${hex.slice(0, 8)}-${hex.slice(8)}-0000-0000-000000000000`;
}

export interface TimelineRow {
  readonly at: Date;
  readonly type: string;
  readonly data: Record<string, unknown>;
}

/** Of what happened to its channel, so much at most stands in a delivery's timeline. */
const CHANNEL_EVENTS = 200;

/**
 * Everything that happened to a delivery, what held its channel while it waited, and what its producer was told of it, oldest
 * first. Of a channel's events no names and notes: those are for who may read channels.
 */
export async function readTimeline(db: Db, id: DeliveryId): Promise<readonly TimelineRow[]> {
  const { rows } = await sql<TimelineRow>`
    with told as materialized (select tx, id, producer_id, at, type, data from events where delivery_id = ${id}),
    waited as (
      select channel, accepted_at as since, coalesce(settled_at, 'infinity') as until from deliveries where id = ${id}
    ),
    of_channel as (
      select e.at, e.id, e.type, e.data from waited w join events e
        on e.type like 'channel.%' and e.at between w.since and w.until and e.data->>'channel' = w.channel
      order by e.at desc limit ${CHANNEL_EVENTS}
    ),
    before as (
      select latest.* from waited w cross join unnest(array['^channel[.](paused|resumed)$', '^channel[.]breaker']) as kind
        cross join lateral (
          select e.at, e.id, e.type, e.data from events e
          where e.type like 'channel.%' and e.at < w.since and e.data->>'channel' = w.channel and e.type ~ kind
          order by e.at desc, e.id desc limit 1
        ) latest
      where latest.type in ('channel.paused', 'channel.breaker_opened')
    )
    select at, type, data from (
      select at, id, 0 as place, type, data from told
      union all
      select at, id, 0, type, json_build_object('channel', data->>'channel', 'reason', data->>'reason')
      from (select * from of_channel union all select * from before) as of_channel
      union all
      select coalesce(m.delivered_at, m.given_up_at, m.created_at), e.id, 1,
        case when m.delivered_at is not null then 'callback.delivered'
          when m.given_up_at is not null then 'callback.given_up' else 'callback.pending' end,
        json_build_object('event', m.type, 'attempts', m.attempts, 'status', m.last_status, 'error', m.last_error,
          'next_attempt_at', to_char(m.next_attempt_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))
      from told e join callback_messages m on m.producer_id = e.producer_id and m.tx = e.tx and m.event_id = e.id
    ) as entries order by at, place, id`.execute(db);
  return rows;
}

/** The frozen message, as it was posted; null when it is no longer kept. */
export async function findMessage(db: Db, id: DeliveryId): Promise<Record<string, unknown> | null> {
  const { rows } = await sql<{ message: Record<string, unknown> }>`
    select request -> 'message' as message from messages where delivery_id = ${id}`.execute(db);
  return rows[0]?.message ?? null;
}
