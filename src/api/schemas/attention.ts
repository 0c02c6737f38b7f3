import { z } from "zod";
import { ACTIONS, STATES } from "../../ledger/delivery.ts";
import { VERDICTS } from "../../ledger/verdict.ts";
import { instantAhead } from "../instant.ts";
import * as schemas from "../schemas.ts";
import { receipt } from "./receipts.ts";

const { time, storable } = schemas;

const offer = z
  .strictObject({
    action: z.enum(ACTIONS),
    may_duplicate: z.boolean().meta({ description: "true: acknowledge_duplicate_risk must be given" }),
    until: time.nullable().meta({ description: "offered until then; null: as long as the item is open" }),
    risk: z.string(),
  })
  .meta({ id: "Offer", description: "what may be done about the item now, and what it risks" });

const resolution = z
  .strictObject({
    action: z.enum([...ACTIONS, "evidence"]),
    by: z.string(),
    at: time,
    note: z.string().nullable(),
  })
  .meta({ id: "Resolution" });

const why = z.strictObject({
  text: z.string(),
  attempt: z
    .strictObject({
      number: z.int(),
      verdict: z.enum(VERDICTS).nullable(),
      reason: z.string().nullable(),
      phase: z.enum(["not_sent", "sent"]).nullable(),
      status_code: z.int().nullable(),
      error: z.strictObject({ code: z.string().nullable(), message: z.string().nullable() }).nullable(),
      means: z.string(),
    })
    .nullable()
    .meta({ description: "the attempt that is in doubt" }),
  contradiction: z
    .record(z.string(), z.unknown())
    .nullable()
    .meta({ description: "what contradicts what; further: what came while the item was open" }),
});

export const attentionItem = z
  .strictObject({
    id: z.uuid(),
    delivery_id: z.uuid(),
    producer: z.string(),
    channel: z.string(),
    to: z.string(),
    preview: z
      .string()
      .nullable()
      .meta({ description: "the frozen message's subject or beginning; null: no longer kept" }),
    reason: z.string(),
    why,
    opened_at: time,
    age_s: z.int(),
    assignee: z.string().nullable(),
    snoozed_until: time.nullable(),
    same_key_until: time
      .nullable()
      .meta({ description: "until when a repeat under the same key is safe; null: it is not, or there is none" }),
    actions: z.array(offer).meta({ description: "none once it is resolved" }),
    not_possible: z
      .array(z.strictObject({ action: z.enum(ACTIONS), why: z.string() }))
      .meta({ description: "what cannot be done now, and why; none once it is resolved" }),
    guarantees: z.array(z.string()).meta({ description: "what the provider guarantees about repeats, in words" }),
    lookup: z.strictObject({ asked: z.int(), next_at: time.nullable() }).meta({
      description: "how often the provider was asked what became of it, and when it is asked next (where it can be)",
    }),
    resolution: resolution.nullable(),
    delivery: schemas.deliveryWithAttempts,
    receipts: z.array(receipt),
    history: z
      .array(z.looseObject({ at: time, type: z.string() }))
      .meta({ description: "who did what with it, when and why; what the provider said when it was asked" }),
    same_recipient: z
      .array(z.strictObject({ id: z.uuid(), name: z.string(), state: z.enum(STATES), accepted_at: time }))
      .meta({ description: "what else the recipient was sent over this channel within a day, at most five" }),
  })
  .meta({ id: "AttentionItem" });

export const attentionPage = z
  .strictObject({
    data: z.array(attentionItem),
    next_cursor: z.string().nullable(),
    total: z.int().meta({ description: "items that the filter names; 10000 means that or more" }),
  })
  .meta({ id: "AttentionPage" });

export const attentionSummary = z
  .strictObject({
    total: z.int(),
    data: z.array(
      z.strictObject({
        channel: z.string(),
        reason: z.string(),
        count: z.int(),
        snoozed: z.int(),
        oldest_at: time,
        oldest_age_s: z.int(),
      }),
    ),
  })
  .meta({ id: "AttentionSummary" });

const decision = {
  action: z.enum(ACTIONS),
  note: storable(2_000).meta({ description: "why; kept with who and when" }),
  acknowledge_duplicate_risk: z
    .boolean()
    .optional()
    .meta({ description: "required to be true where the action may send a second message" }),
};

export const resolveRequest = z
  .strictObject({
    ...decision,
    provider_message_id: storable(255)
      .optional()
      .meta({ description: "with mark_sent: the message's id, if it was found" }),
  })
  .refine((body) => body.provider_message_id === undefined || body.action === "mark_sent", {
    path: ["provider_message_id"],
    error: "belongs to mark_sent alone",
  })
  .meta({ id: "ResolveRequest" });

const filter = z.strictObject({
  channel: storable(63).optional(),
  reason: storable(63).optional(),
  assignee: storable(100).optional(),
  producer: storable(100).optional(),
  older_than: z.int().min(0).max(1e9).optional().meta({ description: "seconds" }),
});

export const bulkResolveRequest = z
  .strictObject({
    ...decision,
    ids: z.array(z.uuid()).min(1).max(1_000).optional(),
    filter: filter.optional(),
    expected_count: z
      .int()
      .min(1)
      .max(1_000)
      .optional()
      .meta({ description: "with filter: how many items it must name" }),
  })
  .refine((body) => (body.ids === undefined) !== (body.filter === undefined), {
    path: ["ids"],
    error: "give either ids or filter",
  })
  .refine((body) => (body.filter === undefined) === (body.expected_count === undefined), {
    path: ["expected_count"],
    error: "belongs to filter, and filter needs it",
  })
  .meta({ id: "BulkResolveRequest" });

export const bulkResolveAnswer = z
  .strictObject({
    data: z.array(
      z.union([
        z.strictObject({ id: z.uuid(), status: z.literal(200), delivery: schemas.delivery }),
        z.strictObject({ id: z.uuid(), status: z.int(), problem: schemas.problem }),
      ]),
    ),
  })
  .meta({ id: "BulkResolveAnswer" });

export const assignRequest = z
  .strictObject({ assignee: storable(100).nullable().meta({ description: "null: nobody" }) })
  .meta({ id: "AssignRequest" });
export const noteRequest = z.strictObject({ note: storable(2_000) }).meta({ id: "NoteRequest" });
export const snoozeRequest = z
  .strictObject({
    until: instantAhead
      .refine((text) => Date.parse(text) > Date.now(), "must be in the future")
      .nullable()
      .meta({ description: "null: it is back in the lists at once" }),
  })
  .meta({ id: "SnoozeRequest" });
