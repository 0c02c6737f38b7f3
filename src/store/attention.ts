import { type SqlBool, sql } from "kysely";
import type { DeliveryId, ProducerId, Resolution, SettledAttempt, State } from "../ledger/delivery.ts";
import { uuidArray, wordArray } from "./arrays.ts";
import type { Db } from "./schema.ts";

/** An attention item with what an operator needs to decide. */
export interface ItemRow {
  readonly id: string;
  readonly delivery_id: DeliveryId;
  readonly producer_id: ProducerId;
  readonly channel: string;
  readonly reason: string;
  readonly detail: Record<string, unknown> | null;
  readonly opened_at: Date;
  readonly assignee: string | null;
  readonly snoozed_until: Date | null;
  readonly closed_at: Date | null;
  readonly resolution: Resolution | null;
  readonly resolved_by: string | null;
  readonly note: string | null;
  readonly lookup_after: Date | null;
  readonly lookups: number;
  readonly provider: string;
  readonly state: State;
  readonly expires_at: Date | null;
  readonly suppressed: boolean;
  /** The frozen message; null when it is no longer kept. */
  readonly message: unknown;
  readonly history: readonly SettledAttempt[];
  readonly now: Date;
}

/** Which items. Times, counts and names as they are asked for; `assignee` "none": nobody's. */
export interface ItemFilter {
  /** These and no others. */
  readonly ids?: readonly string[] | undefined;
  readonly channel?: string | undefined;
  readonly reason?: string | undefined;
  readonly assignee?: string | undefined;
  readonly producer?: string | undefined;
  /** Seconds since it was opened, at least. */
  readonly olderThanS?: number | undefined;
  /** Also those that somebody put off until later, and those about which a provider is about to be asked. */
  readonly snoozed: boolean;
  /** Channels whose providers can be asked: a new item of theirs waits for the first answer before it bothers anybody. */
  readonly askedFirst: readonly string[];
}

/** How long a new item waits for its first look-up. */
const ASKED_FIRST_FOR = sql.raw("interval '2 minutes'");

/** Place in the list: total, because ids break the ties of times. */
export interface ItemPlace {
  readonly openedAt: Date;
  readonly id: string;
}

const OF_ITEM = sql`
  from attention_items i
  join deliveries d on d.id = i.delivery_id and d.producer_id = i.producer_id
  left join channels c on c.id = d.channel`;

const COLUMNS = sql`
  i.id, i.delivery_id, i.producer_id, i.channel, i.reason, i.detail, i.opened_at, i.assignee, i.snoozed_until, i.closed_at,
  i.resolution, i.resolved_by, i.note, i.lookup_after, i.lookups, coalesce(c.provider, 'unknown') as provider, d.state,
  d.expires_at, m.request -> 'message' as message, ledger_now() as now,
  exists (
    select from suppressions s where s.channel = d.channel and s.recipient = suppression_key(d.recipient)) as suppressed,
  coalesce((
    select json_agg(json_build_object(
      'number', a.number, 'ladder', a.ladder, 'generation', a.generation, 'verdict', a.verdict, 'reason', a.reason,
      'counted', a.counted, 'retryAfterS', a.retry_after_s,
      'claimedAt', floor(extract(epoch from a.claimed_at) * 1000)) order by a.number)
    from attempts a where a.delivery_id = i.delivery_id and a.settled_at is not null), '[]') as history`;

const MESSAGE = sql`left join messages m on m.delivery_id = i.delivery_id and m.producer_id = i.producer_id`;

function conditions(filter: ItemFilter, producerId: ProducerId | null) {
  const all = [
    sql`i.closed_at is null`,
    producerId === null ? null : sql`i.producer_id = ${producerId}`,
    filter.ids === undefined ? null : sql`i.id = any(${uuidArray(filter.ids)})`,
    filter.channel === undefined ? null : sql`i.channel = ${filter.channel}`,
    filter.reason === undefined ? null : sql`i.reason = ${filter.reason}`,
    filter.producer === undefined
      ? null
      : sql`i.producer_id = (select id from producers where name = ${filter.producer})`,
    filter.olderThanS === undefined
      ? null
      : sql`i.opened_at <= ledger_now() - ${filter.olderThanS}::double precision * interval '1 second'`,
    filter.snoozed ? null : sql`(i.snoozed_until is null or i.snoozed_until <= ledger_now())`,
    filter.snoozed || filter.askedFirst.length === 0
      ? null
      : sql`not (i.lookups = 0 and i.lookup_after is not null and i.opened_at > ledger_now() - ${ASKED_FIRST_FOR}
          and i.channel = any(${wordArray(filter.askedFirst)}))`,
    filter.assignee === undefined
      ? null
      : filter.assignee === "none"
        ? sql`i.assignee is null`
        : sql`i.assignee = ${filter.assignee}`,
  ].filter((condition) => condition !== null);
  return sql.join<SqlBool>(all, sql` and `);
}

/** Open items, the oldest first. `producerId` null: everybody's. */
export async function listItems(
  db: Db,
  filter: ItemFilter,
  producerId: ProducerId | null,
  page: { readonly after: ItemPlace | null; readonly limit: number },
): Promise<readonly ItemRow[]> {
  const after =
    page.after === null
      ? sql`true`
      : sql`(i.opened_at, i.id) > (${page.after.openedAt}::timestamptz, ${page.after.id}::uuid)`;
  const { rows } = await sql<ItemRow>`
    with page as materialized (
      select i.* from attention_items i
      where ${conditions(filter, producerId)} and ${after}
      order by i.opened_at, i.id limit ${page.limit}
    )
    select ${COLUMNS} from page i
    join deliveries d on d.id = i.delivery_id and d.producer_id = i.producer_id
    left join channels c on c.id = d.channel ${MESSAGE}
    order by i.opened_at, i.id`.execute(db);
  return rows;
}

/** How many open items a filter names; counted up to 10,000, then that number means "or more". */
export async function countItems(db: Db, filter: ItemFilter, producerId: ProducerId | null): Promise<number> {
  const { rows } = await sql<{ total: number }>`
    select count(*)::integer as total
    from (select from attention_items i where ${conditions(filter, producerId)} limit 10000) named`.execute(db);
  return rows[0]?.total ?? 0;
}

/** The ids of open items that a filter names, the oldest first, at most `limit`. */
export async function findItemIds(
  db: Db,
  filter: ItemFilter,
  producerId: ProducerId | null,
  limit: number,
): Promise<readonly string[]> {
  const { rows } = await sql<{ id: string }>`
    select i.id from attention_items i where ${conditions(filter, producerId)}
    order by i.opened_at, i.id limit ${limit}`.execute(db);
  return rows.map(({ id }) => id);
}

/** Items by their ids, open or closed. */
export async function findItems(
  db: Db,
  ids: readonly string[],
  producerId: ProducerId | null,
): Promise<ReadonlyMap<string, ItemRow>> {
  const { rows } = await sql<ItemRow>`
    select ${COLUMNS} ${OF_ITEM} ${MESSAGE}
    where i.id = any(${uuidArray(ids)}) and (${producerId}::uuid is null or i.producer_id = ${producerId})`.execute(db);
  return new Map(rows.map((row) => [row.id, row]));
}

export interface SummaryRow {
  readonly channel: string;
  readonly reason: string;
  readonly count: number;
  readonly snoozed: number;
  readonly oldest_at: Date;
  readonly oldest_age_s: number;
}

/** Open items by channel and reason, the longest-waiting first. */
export async function summarizeItems(db: Db, producerId: ProducerId | null): Promise<readonly SummaryRow[]> {
  const { rows } = await sql<SummaryRow>`
    select channel, reason, count(*)::integer as count,
      count(*) filter (where snoozed_until > ledger_now())::integer as snoozed,
      min(opened_at) as oldest_at, floor(extract(epoch from ledger_now() - min(opened_at)))::integer as oldest_age_s
    from attention_items
    where closed_at is null and (${producerId}::uuid is null or producer_id = ${producerId})
    group by channel, reason order by min(opened_at), channel, reason`.execute(db);
  return rows;
}

/** What happened around an item: who did what, when and why; and what the provider said when it was asked. */
export interface ItemEvent {
  readonly delivery_id: DeliveryId;
  readonly at: Date;
  readonly type: string;
  readonly data: Record<string, unknown>;
}

export async function listItemEvents(db: Db, ids: readonly DeliveryId[]): Promise<readonly ItemEvent[]> {
  const { rows } = await sql<ItemEvent>`
    select delivery_id, at, type, data from events
    where delivery_id = any(${uuidArray(ids)}) and type like 'attention.%' order by id`.execute(db);
  return rows;
}

export interface NeighbourRow {
  readonly to_id: DeliveryId;
  readonly id: DeliveryId;
  readonly name: string;
  readonly channel: string;
  readonly state: State;
  readonly accepted_at: Date;
}

/** What else the same recipients were sent within a day of these deliveries, five each, the newest first. */
export async function listNeighbours(
  db: Db,
  ids: readonly DeliveryId[],
  producerId: ProducerId | null,
): Promise<readonly NeighbourRow[]> {
  const { rows } = await sql<NeighbourRow>`
    select one.id as to_id, other.id, other.name, other.channel, other.state, other.accepted_at
    from deliveries one
    cross join lateral (
      select id, name, channel, state, accepted_at from deliveries other
      where other.recipient = one.recipient and other.channel = one.channel and other.id <> one.id
        and (${producerId}::uuid is null or other.producer_id = ${producerId})
        and other.accepted_at between one.accepted_at - interval '1 day' and one.accepted_at + interval '1 day'
      order by other.id desc limit 5
    ) other
    where one.id = any(${uuidArray(ids)})`.execute(db);
  return rows;
}
