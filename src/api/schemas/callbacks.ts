import { z } from "zod";
import { instant } from "../instant.ts";
import { time } from "../schemas.ts";

const TYPE = /^(delivery|attention|receipt)\.(?:[a-z_]+|\*)$/;

export const callbackRequest = z
  .strictObject({
    url: z
      .string()
      .max(2_048, "must have at most 2048 characters")
      .meta({ description: "https; where messages are posted" }),
    secret: z.string().optional().meta({
      description: "whsec_ and 24 to 64 bytes in Base64; none: one is made for a new callback, and kept otherwise",
    }),
    types: z
      .array(z.string().regex(TYPE, "must be a type like delivery.sent, or a prefix like receipt.*"))
      .min(1)
      .max(50)
      .optional()
      .meta({ description: "none: a delivery's ends, needs_attention, attention.resolved and .closed, and receipts" }),
  })
  .meta({ id: "CallbackRequest" });

const fields = {
  url: z.string(),
  types: z.array(z.string()).nullable().meta({ description: "null: all that concern a producer" }),
  enabled: z.boolean(),
  disabled: z.strictObject({ at: time, reason: z.string() }).nullable(),
  failing_since: time.nullable(),
  last_success_at: time.nullable(),
  last_failure: z.strictObject({ at: time, error: z.string() }).nullable(),
  old_secret_until: time.nullable().meta({ description: "while it is rotated: until when the old secret also signs" }),
  backlog: z.int().meta({ description: "messages that wait; 10000 means that or more" }),
  created_at: time,
};
export const callback = z.strictObject(fields).meta({ id: "Callback" });
export const callbackWithSecret = z
  .strictObject({
    ...fields,
    secret: z.string().optional().meta({ description: "when it was made or given: shown this once" }),
  })
  .meta({ id: "CallbackWithSecret" });

export const callbackTest = z
  .strictObject({ ok: z.boolean(), status: z.int().nullable(), error: z.string().nullable() })
  .meta({ id: "CallbackTest", description: "what came back for a message of the type ledger.test" });

export const replayRequest = z
  .strictObject({
    after: z.string().max(200).optional().meta({ description: "a next_cursor of GET /v1/events" }),
    since: instant.optional(),
  })
  .refine((body) => (body.after === undefined) !== (body.since === undefined), {
    path: ["after"],
    error: "give either after or since",
  })
  .meta({ id: "ReplayRequest" });
