import type { z } from "zod";
import type { ReceiptRow } from "../store/receipts.ts";
import type { receipt } from "./schemas/receipts.ts";

export const receiptView = (row: ReceiptRow): z.infer<typeof receipt> => ({
  id: row.id,
  channel: row.channel,
  event_id: row.event_id,
  type: row.type,
  status: row.status,
  occurred_at: row.occurred_at.toISOString(),
  received_at: row.received_at.toISOString(),
  delivery_id: row.delivery_id,
  provider_message_id: row.provider_message_id,
  name: row.name,
  detail: row.detail,
});
