import { z } from "zod";
import { RECEIPT_STATUSES } from "../../ledger/delivery.ts";
import { instant } from "../instant.ts";
import * as schemas from "../schemas.ts";

const { time, storable } = schemas;

export const receipt = z
  .strictObject({
    id: z.uuid(),
    channel: z.string(),
    event_id: z.string(),
    type: z.string().meta({ description: "the provider's own word" }),
    status: z.enum(RECEIPT_STATUSES).nullable(),
    occurred_at: time,
    received_at: time,
    delivery_id: z.uuid().nullable().meta({ description: "null: it matches none of the ledger's messages (yet)" }),
    provider_message_id: z.string().nullable(),
    name: z.string().nullable(),
    detail: z.union([z.record(z.string(), z.unknown()), z.string()]).nullable(),
  })
  .meta({ id: "Receipt" });

export const receiptPage = z
  .strictObject({ data: z.array(receipt), next_cursor: z.string().nullable() })
  .meta({ id: "ReceiptPage" });

/** What a receiver of webhooks may report: a receipt, or that the provider has the message (`sent`). */
const REPORTED = ["sent", ...RECEIPT_STATUSES] as const;

const MAX_DETAIL = 4_096;

export const receiptRequest = z
  .strictObject({
    channel: storable(63),
    event_id: storable(255).meta({ description: "the provider's id of the event: the same event twice is one" }),
    status: z.enum(REPORTED).meta({ description: "sent is evidence of acceptance, and no receipt" }),
    occurred_at: instant.refine((text) => Date.parse(text) < Date.now() + 86_400_000, "must not be in the future"),
    delivery_id: z
      .uuid()
      .transform((id) => id.toLowerCase())
      .optional(),
    provider_message_id: storable(255).optional(),
    name: storable(1_024).optional(),
    detail: z
      .union([z.record(z.string(), z.unknown()), z.string()], { error: "must be text or an object" })
      .refine(
        (value) => JSON.stringify(value).length <= MAX_DETAIL,
        `must have at most ${MAX_DETAIL} characters as JSON`,
      )
      .optional()
      .meta({
        description:
          "text or an object, kept for operators; with bounced, the type Transient, Soft or Undetermined suppresses nobody",
      }),
  })
  .refine(
    (body) => body.delivery_id !== undefined || body.provider_message_id !== undefined || body.name !== undefined,
    { path: ["delivery_id"], error: "give delivery_id, provider_message_id or name" },
  )
  .meta({ id: "ReceiptRequest" });

const RESULTS = ["applied", "unmatched", "duplicate"] as const;
export const received = z
  .strictObject({
    event_id: z.string(),
    result: z.enum(RESULTS).meta({
      description: "unmatched: kept, and applied when a message that it fits is known; duplicate: it changed nothing",
    }),
    delivery_id: z.uuid().nullable(),
  })
  .meta({ id: "ReceivedReceipt" });

export const receivedList = z
  .strictObject({
    data: z.array(
      z.union([
        z.strictObject({ status: z.literal(200), receipt: received }),
        z.strictObject({ status: z.int(), problem: schemas.problem }),
      ]),
    ),
  })
  .meta({ id: "ReceivedReceipts" });

export const webhookAnswer = z
  .strictObject({ received: z.literal(true), result: z.enum([...RESULTS, "ignored"]) })
  .meta({ id: "WebhookAnswer" });
