import { type SqlBool, sql, type Transaction } from "kysely";
import { uuidv7 } from "uuidv7";
import type { CapabilityOf } from "../ledger/capability.ts";
import type { DeliveryId, Millis, ProducerId, ReceiptStatus } from "../ledger/delivery.ts";
import { uuidArray } from "./arrays.ts";
import { attachReceipts, type MatchedRow, matchedColumns, matchedFrom } from "./evidence.ts";
import { type Clue, clueKey, type Match, matchDeliveries } from "./match.ts";
import type { Db, Schema } from "./schema.ts";

/** What a provider, or somebody who receives its webhooks, reports of a message. */
export interface Receipt extends Clue {
  /** The provider's own word for it. */
  readonly type: string;
  /** Null: it says nothing about what became of the message. */
  readonly status: ReceiptStatus | null;
  readonly provesAcceptance: boolean;
  readonly occurredAt: Millis;
  /** Reason to suppress its recipients; `recipients` null: the delivery's. */
  readonly suppresses: string | null;
  readonly recipients: readonly string[] | null;
  readonly detail: Readonly<Record<string, unknown>> | null;
}

/** What became of a receipt, after the commit. A duplicate changed nothing; it is matched or not as the first one is. */
export interface Received {
  readonly result: "applied" | "unmatched" | "duplicate";
  readonly deliveryId: DeliveryId | null;
}

/**
 * Stores receipts and applies them to their deliveries, in one commit. One event of a channel is one receipt, however often
 * it comes; what matches nothing yet is kept, and matched when its attempt settles. Answers one result each, in order.
 */
export async function applyReceipts(
  db: Db,
  receipts: readonly Receipt[],
  capabilityOf: CapabilityOf,
): Promise<readonly Received[]> {
  return await db.transaction().execute(async (tx) => {
    const firsts = new Map<string, Receipt>();
    for (const receipt of receipts) if (!firsts.has(clueKey(receipt))) firsts.set(clueKey(receipt), receipt);
    const matches = await matchDeliveries(tx, [...firsts.values()]);
    const stored = await insertReceipts(tx, [...firsts.values()], matches);
    const fresh = [...firsts].filter(([key]) => stored.has(key)).map(([, receipt]) => receipt);
    await attachReceipts(
      tx,
      fresh.flatMap((receipt) => {
        const match = matches.get(clueKey(receipt));
        return match ? [{ ...receipt, ...match }] : [];
      }),
      capabilityOf,
    );
    return receipts.map((receipt): Received => {
      const key = clueKey(receipt);
      const deliveryId = matches.get(key)?.deliveryId ?? null;
      if (firsts.get(key) !== receipt || !stored.has(key)) return { result: "duplicate", deliveryId };
      return { result: deliveryId === null ? "unmatched" : "applied", deliveryId };
    });
  });
}

/** In the order of their ids, so that two commits with events in common never wait in a circle. */
async function insertReceipts(
  tx: Transaction<Schema>,
  receipts: readonly Receipt[],
  matches: ReadonlyMap<string, Match>,
): Promise<ReadonlySet<string>> {
  const rows = receipts.map((receipt) => {
    const match = matches.get(clueKey(receipt));
    return {
      id: uuidv7(),
      channel: receipt.channel,
      event_id: receipt.eventId,
      type: receipt.type,
      status: receipt.status,
      proves_acceptance: receipt.provesAcceptance,
      occurred_at: new Date(receipt.occurredAt).toISOString(),
      delivery_id: match?.deliveryId ?? null,
      producer_id: match?.producerId ?? receipt.producerId,
      provider_message_id: receipt.providerMessageId,
      name: receipt.name,
      suppresses: receipt.suppresses,
      recipients: receipt.recipients,
      detail: receipt.detail,
      look_again: match === undefined && receipt.providerMessageId !== null,
    };
  });
  const { rows: stored } = await sql<{ channel: string; event_id: string }>`
    insert into receipts (id, channel, event_id, type, status, proves_acceptance, occurred_at, delivery_id, producer_id,
      provider_message_id, name, suppresses, recipients, detail, look_again_at)
    select id, channel, event_id, type, status, proves_acceptance, occurred_at, delivery_id, producer_id,
      provider_message_id, name, suppresses, case when json_typeof(recipients) <> 'null' then recipients end,
      case when json_typeof(detail) <> 'null' then detail end,
      case when look_again then ledger_now() + interval '2 seconds' end
    from json_to_recordset(${JSON.stringify(rows)}::text::json) as r (
      id uuid, channel text, event_id text, type text, status text, proves_acceptance boolean, occurred_at timestamptz,
      delivery_id uuid, producer_id uuid, provider_message_id text, name text, suppresses text, recipients json,
      detail json, look_again boolean)
    order by channel, event_id
    on conflict (channel, event_id) do nothing
    returning channel, event_id`.execute(tx);
  return new Set(stored.map(({ channel, event_id: eventId }) => clueKey({ channel, eventId })));
}

/**
 * Looks again at receipts that matched nothing: an attempt that settled at the very moment when the receipt came has seen as
 * little of it as it of the attempt. A few looks each, farther and farther apart; after that the receipt stays as it is, and
 * is still matched when an attempt settles late. Returns how many were looked at.
 */
export async function rematchReceipts(db: Db, limit: number, capabilityOf: CapabilityOf): Promise<number> {
  return await db.transaction().execute(async (tx) => {
    const { rows } = await sql<MatchedRow & { name: string | null }>`
      with due as (
        select channel, event_id from receipts
        where look_again_at <= ledger_now() order by look_again_at limit ${limit} for update skip locked
      )
      update receipts r
      set look_again_at = case when ledger_now() - r.received_at < interval '10 minutes'
        then ledger_now() + 5 * greatest(ledger_now() - r.received_at, interval '2 seconds') end
      from due where r.channel = due.channel and r.event_id = due.event_id and r.delivery_id is null
      returning ${matchedColumns}, r.name`.execute(tx);
    const clues = rows.map((row): Clue & { row: MatchedRow } => ({
      channel: row.channel,
      eventId: row.event_id,
      deliveryId: row.delivery_id,
      providerMessageId: row.provider_message_id,
      name: row.name,
      producerId: row.producer_id,
      row,
    }));
    const matches = await matchDeliveries(tx, clues);
    const matched = clues.flatMap(({ row, ...clue }) => {
      const match = matches.get(clueKey(clue));
      return match ? [{ ...matchedFrom(row), ...match }] : [];
    });
    const written = matched.map(({ channel, eventId, deliveryId, producerId }) => ({
      channel,
      event_id: eventId,
      delivery_id: deliveryId,
      producer_id: producerId,
    }));
    if (written.length > 0) {
      await sql`
        update receipts r set delivery_id = m.delivery_id, producer_id = m.producer_id, look_again_at = null
        from json_to_recordset(${JSON.stringify(written)}::text::json)
          as m (channel text, event_id text, delivery_id uuid, producer_id uuid)
        where r.channel = m.channel and r.event_id = m.event_id`.execute(tx);
    }
    await attachReceipts(tx, matched, capabilityOf);
    return rows.length;
  });
}

const receiptColumns = sql`id, channel, event_id, type, status, occurred_at, received_at, delivery_id, provider_message_id,
  name, detail`;

export interface ReceiptRow {
  readonly id: string;
  readonly channel: string;
  readonly event_id: string;
  readonly type: string;
  readonly status: ReceiptStatus | null;
  readonly occurred_at: Date;
  readonly received_at: Date;
  readonly delivery_id: DeliveryId | null;
  readonly provider_message_id: string | null;
  readonly name: string | null;
  readonly detail: Record<string, unknown> | null;
}

/** The receipts of several deliveries, each in the order in which they came. */
export async function listReceiptsOf(
  db: Db,
  ids: readonly DeliveryId[],
): Promise<ReadonlyMap<DeliveryId, readonly ReceiptRow[]>> {
  const { rows } = await sql<ReceiptRow & { delivery_id: DeliveryId }>`
    select ${receiptColumns} from receipts where delivery_id = any(${uuidArray(ids)}) order by id`.execute(db);
  return Map.groupBy(rows, (row) => row.delivery_id);
}

export interface ReceiptFilter {
  readonly matched?: boolean | undefined;
  readonly channel?: string | undefined;
  readonly deliveryId?: string | undefined;
  readonly providerMessageId?: string | undefined;
}

/** Newest first. `before`: the last id of the page before. `producerId` null: everybody's, and those that matched nobody's. */
export async function listReceipts(
  db: Db,
  filter: ReceiptFilter,
  producerId: ProducerId | null,
  page: { readonly before: string | null; readonly limit: number },
): Promise<readonly ReceiptRow[]> {
  const conditions = [
    producerId === null ? null : sql`producer_id = ${producerId}`,
    page.before === null ? null : sql`id < ${page.before}::uuid`,
    filter.matched === undefined ? null : filter.matched ? sql`delivery_id is not null` : sql`delivery_id is null`,
    filter.channel === undefined ? null : sql`channel = ${filter.channel}`,
    filter.deliveryId === undefined ? null : sql`delivery_id = ${filter.deliveryId}`,
    filter.providerMessageId === undefined ? null : sql`provider_message_id = ${filter.providerMessageId}`,
  ].filter((condition) => condition !== null);
  const where = conditions.length === 0 ? sql`true` : sql.join<SqlBool>(conditions, sql` and `);
  const { rows } = await sql<ReceiptRow>`
    select ${receiptColumns} from receipts where ${where} order by id desc limit ${page.limit}`.execute(db);
  return rows;
}
