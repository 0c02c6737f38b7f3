import type { DeliveryId } from "../../src/ledger/delivery.ts";
import { capabilityOf } from "../../src/providers/index.ts";
import { applyReceipts, type Receipt } from "../../src/store/receipts.ts";
import type { Db } from "../../src/store/schema.ts";

let counter = 0;

/** A receipt with good defaults: delivered, on the channel email. */
export function receipt(more: Partial<Receipt> = {}): Receipt {
  counter += 1;
  return {
    channel: "email",
    eventId: `evt_${counter}`,
    type: `email.${more.status ?? "delivered"}`,
    status: "delivered",
    provesAcceptance: true,
    occurredAt: Date.now(),
    deliveryId: null,
    providerMessageId: null,
    name: null,
    producerId: null,
    suppresses: null,
    recipients: null,
    detail: null,
    ...more,
  };
}

export const apply = (db: Db, ...receipts: readonly Receipt[]) => applyReceipts(db, receipts, capabilityOf);

export async function receiptOf(db: Db, id: DeliveryId) {
  const { receipt_status, receipt_at } = await db
    .selectFrom("deliveries")
    .select(["receipt_status", "receipt_at"])
    .where("id", "=", id)
    .executeTakeFirstOrThrow();
  return receipt_status === null ? null : { status: receipt_status, at: receipt_at?.getTime() };
}

export async function itemsOf(db: Db, id: DeliveryId) {
  return await db
    .selectFrom("attention_items")
    .selectAll()
    .where("delivery_id", "=", id)
    .orderBy("opened_at")
    .orderBy("id")
    .execute();
}

export async function eventsOf(db: Db, id: DeliveryId): Promise<string[]> {
  const rows = await db.selectFrom("events").select("type").where("delivery_id", "=", id).orderBy("id").execute();
  return rows.map(({ type }) => type);
}
