import { type SqlBool, sql, type Transaction } from "kysely";
import { uuidv7 } from "uuidv7";
import type { CapabilityOf } from "../ledger/capability.ts";
import type { DeliveryId, Millis, ProducerId, ReceiptStatus } from "../ledger/delivery.ts";
import { uuidArray } from "./arrays.ts";
import { attachReceipts, type MatchedRow, matchedColumns, matchedFrom } from "./evidence.ts";
import { lockHeld } from "./held.ts";
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
  readonly detail: Readonly<Record<string, unknown>> | string | null;
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
    -- What somebody reported of a message that was not his to claim, and so had no effect, gives way to whose it is.
    on conflict (channel, event_id) do update
    set type = excluded.type, status = excluded.status, proves_acceptance = excluded.proves_acceptance,
      occurred_at = excluded.occurred_at, delivery_id = excluded.delivery_id, producer_id = excluded.producer_id,
      provider_message_id = excluded.provider_message_id, name = excluded.name, suppresses = excluded.suppresses,
      recipients = excluded.recipients, detail = excluded.detail, look_again_at = excluded.look_again_at
    where receipts.delivery_id is null
      and (excluded.delivery_id is not null or (receipts.producer_id is not null and excluded.producer_id is null))
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
    // Read only: whoever settles locks deliveries first and their receipts then, and so does this.
    const { rows: due } = await sql<Omit<Clue, "deliveryId">>`
      select channel, event_id as "eventId", provider_message_id as "providerMessageId", name, producer_id as "producerId"
      from receipts where look_again_at <= ledger_now() and delivery_id is null
      order by look_again_at limit ${limit}`.execute(tx);
    if (due.length === 0) return 0;
    const matches = await matchDeliveries(
      tx,
      due.map((clue) => ({ ...clue, deliveryId: null })),
    );
    await lockHeld(tx, [...new Set([...matches.values()].map(({ deliveryId }) => deliveryId))]);
    const looked = due.map((clue) => {
      const match = matches.get(clueKey(clue));
      return {
        channel: clue.channel,
        event_id: clue.eventId,
        delivery_id: match?.deliveryId ?? null,
        producer_id: match?.producerId ?? clue.producerId,
      };
    });
    const { rows } = await sql<MatchedRow>`
      with looked as (
        select * from json_to_recordset(${JSON.stringify(looked)}::text::json)
          as looked (channel text, event_id text, delivery_id uuid, producer_id uuid)
      ), waiting as (
        select r.channel, r.event_id from receipts r join looked using (channel, event_id)
        where r.delivery_id is null and r.look_again_at <= ledger_now()
        order by r.channel, r.event_id for update of r skip locked
      )
      update receipts r
      set delivery_id = looked.delivery_id, producer_id = looked.producer_id,
        look_again_at = case when looked.delivery_id is null and ledger_now() - r.received_at < interval '10 minutes'
          then ledger_now() + 5 * greatest(ledger_now() - r.received_at, interval '2 seconds') end
      from waiting join looked using (channel, event_id)
      where r.channel = waiting.channel and r.event_id = waiting.event_id
      returning ${matchedColumns}`.execute(tx);
    await attachReceipts(tx, rows.filter((row) => row.delivery_id !== null).map(matchedFrom), capabilityOf);
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
  readonly detail: Record<string, unknown> | string | null;
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

export interface ReceiptCount {
  readonly channel: string;
  /** Null: evidence of acceptance, or a type that the ledger does not know. */
  readonly status: ReceiptStatus | null;
  readonly count: number;
}

/** What came in during the last hour, by channel and status; the newest 10,000 are looked at. */
export async function countReceipts(db: Db): Promise<readonly ReceiptCount[]> {
  const { rows } = await sql<ReceiptCount>`
    select channel, status, count(*)::integer as count
    from (select channel, status, received_at from receipts order by id desc limit 10000) newest
    where received_at > ledger_now() - interval '1 hour'
    group by channel, status order by channel, count(*) desc, status`.execute(db);
  return rows;
}
