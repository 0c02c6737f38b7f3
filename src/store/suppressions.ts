import { type SqlBool, sql } from "kysely";
import type { Db } from "./schema.ts";
import type { Suppression } from "./suppress.ts";

/** As it is kept: the recipient in the form in which recipients are compared. */
export interface SuppressionRow {
  readonly channel: string;
  readonly recipient: string;
  readonly reason: string;
  readonly created_by: string;
  readonly created_at: Date;
}

const columns = sql`channel, recipient, reason, created_by, created_at`;
/** Suppressions belong to channels, not to producers: their events are the ledger's own. */
const admin = sql`(select id from producers where name = 'admin')`;

/** Null when the channel may write to this recipient. */
export async function findSuppression(db: Db, channel: string, recipient: string): Promise<SuppressionRow | null> {
  const { rows } = await sql<SuppressionRow>`
    select ${columns} from suppressions s
    where s.channel = ${channel} and s.recipient = suppression_key(${recipient})`.execute(db);
  return rows[0] ?? null;
}

/**
 * Suppresses a recipient. One that is suppressed already gets the new reason and author; since when it is stays. Of two at
 * once, one adds and the other replaces. The event is of the same commit.
 */
export async function putSuppression(
  db: Db,
  { channel, recipient, reason, by }: Suppression,
): Promise<{ readonly row: SuppressionRow; readonly added: boolean }> {
  const { rows } = await sql<SuppressionRow & { added: boolean }>`
    with put as (
      insert into suppressions (channel, recipient, reason, created_by)
      values (${channel}, suppression_key(${recipient}), ${reason}, ${by})
      on conflict (channel, recipient) do update set reason = excluded.reason, created_by = excluded.created_by
      -- Only a row that was there has been locked by somebody: by us.
      returning ${columns}, xmax = 0 as added
    ), told as (
      insert into events (type, producer_id, data)
      select 'suppression.added', ${admin},
        json_build_object('channel', channel, 'recipient', recipient, 'reason', reason, 'by', created_by)
      from put
    )
    select * from put`.execute(db);
  const [first] = rows;
  if (!first) throw new Error("an upsert returned no row");
  const { added, ...row } = first;
  return { row, added };
}

/** Lets the channel write to the recipient again. `note`: why. False when it was not suppressed. */
export async function removeSuppression(
  db: Db,
  { channel, recipient, by, note }: Omit<Suppression, "reason"> & { readonly note: string | null },
): Promise<boolean> {
  const { rows } = await sql`
    with removed as (
      delete from suppressions s where s.channel = ${channel} and s.recipient = suppression_key(${recipient})
      returning s.channel, s.recipient, s.reason
    )
    insert into events (type, producer_id, data)
    select 'suppression.removed', ${admin}, json_build_object(
      'channel', channel, 'recipient', recipient, 'reason', reason, 'by', ${by}::text, 'note', ${note}::text)
    from removed
    returning 1`.execute(db);
  return rows.length > 0;
}

export interface SuppressionFilter {
  readonly channel?: string | undefined;
  readonly recipient?: string | undefined;
  readonly reason?: string | undefined;
}

/** The last row of a page. */
export type SuppressionPlace = Pick<SuppressionRow, "created_at" | "channel" | "recipient">;

/** Newest first, those of the same time by channel and recipient: a total order. `after`: the last row of the page before. */
export async function listSuppressions(
  db: Db,
  filter: SuppressionFilter,
  page: { readonly after: SuppressionPlace | null; readonly limit: number },
): Promise<readonly SuppressionRow[]> {
  const { after } = page;
  const conditions = [
    after && sql`created_at <= ${after.created_at}`,
    after && sql`(created_at < ${after.created_at} or (channel, recipient) > (${after.channel}, ${after.recipient}))`,
    filter.channel === undefined ? null : sql`channel = ${filter.channel}`,
    filter.recipient === undefined ? null : sql`recipient = suppression_key(${filter.recipient})`,
    // The key begins with the channel: one look a channel instead of reading the whole list.
    filter.recipient !== undefined && filter.channel === undefined
      ? sql`channel = any (array(select id from channels))`
      : null,
    filter.reason === undefined ? null : sql`reason = ${filter.reason}`,
  ].filter((condition) => condition !== null);
  const where = conditions.length === 0 ? sql`true` : sql.join<SqlBool>(conditions, sql` and `);
  const { rows } = await sql<SuppressionRow>`
    select ${columns} from suppressions where ${where}
    order by created_at desc, channel, recipient limit ${page.limit}`.execute(db);
  return rows;
}
