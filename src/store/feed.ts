import { sql } from "kysely";
import type { DeliveryId, ProducerId } from "../ledger/delivery.ts";
import type { Db } from "./schema.ts";

/** Where a reader of the feed stands: it has read everything up to this event. `tx` counts transactions, `id` is within one. */
export interface Position {
  readonly tx: bigint;
  readonly id: bigint;
}

export const START: Position = { tx: 0n, id: 0n };

export interface EventRow {
  readonly tx: string;
  readonly id: string;
  readonly type: string;
  readonly at: Date;
  readonly delivery_id: DeliveryId | null;
  readonly producer: string;
  readonly data: Record<string, unknown>;
}

export interface FeedPage {
  readonly events: readonly EventRow[];
  /** From here the next page is to be read: behind all that was looked at, also what was of other types. */
  readonly next: Position;
  /** There is more, or it was not looked whether there is. */
  readonly hasMore: boolean;
  /** Below it everything was readable; an event that becomes readable later has a `tx` that is not lower. */
  readonly horizon: bigint;
}

export interface FeedQuery {
  readonly after: Position;
  /** Null: everybody's. */
  readonly producerId: ProducerId | null;
  /** A regular expression that PostgreSQL and JavaScript read alike; null: all. */
  readonly types: string | null;
  readonly limit: number;
}

/** Events looked at for one page, when some are passed over. */
const MAX_SCANNED = 10_000;

/** An event, or the one row of a page without any. */
type FeedRow = (EventRow | { readonly tx: null }) & {
  readonly horizon: string;
  /** The last one looked at, and how many were; null when the page filled up before. */
  readonly end: { readonly tx: string; readonly id: string; readonly n: number } | null;
};

/**
 * A page of the feed, in an order that never skips a late commit: by transaction, and no further than the oldest one that is
 * still running. Everything in one statement, so that the horizon and the rows are of one snapshot. A filter that hardly
 * anything passes does not make it read on and on: `next` then stands behind what was looked at.
 */
export async function readFeed(db: Db, { after, producerId, types, limit }: FeedQuery): Promise<FeedPage> {
  const scan = types === null ? limit + 1 : Math.max(MAX_SCANNED, limit + 1);
  const own = producerId === null ? sql`` : sql`and producer_id = ${producerId}`;
  const wanted = types === null ? sql`` : sql`where type ~ ${types}`;
  const { rows } = await sql<FeedRow>`
    with bound as materialized (
      select feed_horizon() as horizon
    ), scanned as materialized (
      select tx, id, producer_id, type from events
      where (tx, id) > (${String(after.tx)}::xid8, ${String(after.id)}::bigint)
        and tx < (select horizon from bound) ${own}
      order by tx, id limit ${scan}
    ), found as materialized (
      select tx, id, producer_id from scanned ${wanted} order by tx, id limit ${limit + 1}
    ), page as (
      select e.tx::text, e.id::text, e.type, e.at, e.delivery_id, p.name as producer, e.data
      from found join events e using (tx, id, producer_id) join producers p on p.id = e.producer_id
      order by found.tx, found.id
    )
    select bound.horizon::text as horizon, page.*,
      -- The scan goes to its end only when the page does not fill up before.
      case when (select count(*) from found) <= ${limit} then (
        select json_build_object('tx', tx::text, 'id', id::text, 'n', (select count(*) from scanned))
        from scanned order by scanned.tx desc, scanned.id desc limit 1
      ) end as "end"
    from bound left join page on true
    order by page.tx::xid8, page.id::bigint`.execute(db);
  return pageOf(rows, { after, limit, scan });
}

function pageOf(
  rows: readonly FeedRow[],
  { after, limit, scan }: { after: Position; limit: number; scan: number },
): FeedPage {
  const [first] = rows;
  if (!first) throw new Error("the feed has no horizon: feed_offset has lost its row");
  const found = rows.flatMap((row) => (row.tx === null ? [] : [row]));
  const events = found.slice(0, limit);
  const last = found.length > limit ? events.at(-1) : first.end;
  return {
    events,
    next: last ? { tx: BigInt(last.tx), id: BigInt(last.id) } : after,
    hasMore: found.length > limit || first.end?.n === scan,
    horizon: BigInt(first.horizon),
  };
}

/** What has become readable since `since`, a horizon of before. */
export interface News {
  readonly horizon: bigint;
  /** Whose and which events; null: more than were looked at. */
  readonly events: readonly { readonly producerId: ProducerId; readonly type: string }[] | null;
}

/** New events looked at; with more, everybody who waits is told. */
const MAX_NEWS = 1_000;

export async function readNews(db: Db, since: bigint): Promise<News> {
  const { rows } = await sql<{ horizon: string; n: number; events: { producerId: ProducerId; type: string }[] | null }>`
    with bound as materialized (
      select feed_horizon() as horizon
    ), fresh as materialized (
      select producer_id, type from events
      where tx >= ${String(since)}::xid8 and tx < (select horizon from bound)
      order by tx, id limit ${MAX_NEWS}
    )
    select horizon::text, (select count(*)::integer from fresh) as n, (
      select json_agg(json_build_object('producerId', producer_id, 'type', type))
      from (select distinct producer_id, type from fresh) as kinds) as events
    from bound`.execute(db);
  const [row] = rows;
  if (!row) throw new Error("the feed has no horizon: feed_offset has lost its row");
  return { horizon: BigInt(row.horizon), events: row.n === MAX_NEWS ? null : (row.events ?? []) };
}

/**
 * How far the feed's order jumps when the cluster has changed: farther than any cluster counts in years, so that it is also
 * above the cursors of readers who had read on after the dump was made.
 */
const LEAP = 2n ** 40n;

/** An advisory lock that nothing else takes. */
const MEND_LOCK = 7_105;

/**
 * At start, after the migrations: when the events are of another cluster than this one (a dump was restored), moves the
 * order of new events above all that are there. Without it, a reader that remembers its cursor would not see an event until
 * this cluster has counted as many transactions as the other had. True: it was needed. Replicas take turns.
 */
export async function mendFeed(db: Db): Promise<boolean> {
  const here = await clusterIdentity(db);
  return await db.transaction().execute(async (tx) => {
    await sql`select pg_advisory_xact_lock(${MEND_LOCK}::bigint)`.execute(tx);
    const { rows } = await sql<{ tx_offset: string; cluster: string | null; ahead: boolean; last: string | null }>`
      select tx_offset::text, cluster, (select tx::text from events order by tx desc limit 1) as last,
        -- In its own cluster no transaction that has ended can have such an id.
        exists (select from events
          where tx >= (pg_snapshot_xmax(pg_current_snapshot())::text::bigint + tx_offset)::text::xid8) as ahead
      from feed_offset`.execute(tx);
    const [row] = rows;
    if (!row) throw new Error("feed_offset has lost its row");
    const moved = row.cluster !== null && here !== null && row.cluster !== here;
    const offset = BigInt(row.tx_offset);
    if (!row.ahead && !moved) {
      if (here !== row.cluster && here !== null) await sql`update feed_offset set cluster = ${here}`.execute(tx);
      return false;
    }
    const last = BigInt(row.last ?? 0);
    const next = (last > offset ? last : offset) + LEAP;
    // Waits for whoever is writing an event under the old offset, and nobody writes one until this commit.
    await sql`alter table events alter column tx
      set default ((pg_current_xact_id()::text::bigint + ${sql.raw(String(next))})::text::xid8)`.execute(tx);
    await sql`update feed_offset set tx_offset = ${String(next)}::bigint, cluster = ${here}`.execute(tx);
    return true;
  });
}

/** What tells one cluster from another; null where the server does not let us know. */
async function clusterIdentity(db: Db): Promise<string | null> {
  return await sql<{ id: string }>`select system_identifier::text as id from pg_control_system()`
    .execute(db)
    .then(({ rows }) => rows[0]?.id ?? null)
    .catch(() => null);
}
