import { z } from "zod";
import { FAILURES, HOLD_REASONS, ON_UNKNOWN, RECEIPT_STATUSES, STATES } from "../ledger/delivery.ts";
import { VERDICTS } from "../ledger/verdict.ts";
import { ADMIN_PRODUCER, SCOPES } from "../store/keys.ts";
import { quietHours } from "./quiet-hours.ts";

/** The shapes of the answers: what openapi.yaml says, and what the tests hold the service to. */

export const time = z.iso.datetime({ precision: 3 }).meta({ description: "RFC 3339, UTC, milliseconds" });

/** A caller's own words. */
export const storable = (max: number) =>
  z
    .string()
    .min(1)
    .max(max)
    .refine((text) => text.isWellFormed() && !text.includes("\0"), "must be text that can be stored");

export const problem = z
  .strictObject({
    type: z.string(),
    title: z.string(),
    status: z.int(),
    detail: z.string(),
    instance: z.string().optional(),
    errors: z.array(z.strictObject({ pointer: z.string(), detail: z.string() })).optional(),
    resolution: z
      .strictObject({ action: z.string(), by: z.string(), at: time, note: z.string().nullable() })
      .optional()
      .meta({ description: "with already-resolved: what won" }),
    actual_count: z.int().optional().meta({ description: "with count-mismatch" }),
  })
  .meta({ id: "Problem", description: "RFC 9457" });

export const attempt = z
  .strictObject({
    number: z.int().min(1),
    idempotency_key: z.string(),
    to: z.string().meta({ description: "where it went: the recipient, or the address it moved to" }),
    claimed_at: time,
    claimed_by: z.string(),
    lease_expires_at: time,
    settled_at: time.nullable(),
    verdict: z.enum(VERDICTS).nullable(),
    reason: z.string().nullable(),
    counted: z.boolean().meta({ description: "false: it does not count against the four attempts" }),
    phase: z.enum(["not_sent", "sent"]).nullable(),
    status_code: z.int().nullable(),
    error: z.strictObject({ code: z.string().nullable(), message: z.string().nullable() }).nullable(),
    provider_message_id: z.string().nullable(),
    retry_after_s: z.number().nullable(),
    evidence: z.string().nullable().meta({ description: "what replaced an unknown verdict" }),
    evidence_at: time.nullable(),
  })
  .meta({ id: "Attempt" });

const deliveryFields = {
  id: z.uuid(),
  name: z.string(),
  occurrence: z.strictObject({ schedule: z.string(), due_at: time }).nullable(),
  producer: z.string(),
  channel: z.string(),
  provider: z.string(),
  to: z.string(),
  state: z.enum(STATES),
  failure: z.enum(FAILURES).nullable(),
  hold: z.strictObject({ reason: z.enum(HOLD_REASONS), until: time.nullable() }).nullable(),
  receipt: z.strictObject({ status: z.enum(RECEIPT_STATUSES), at: time }).nullable(),
  attempt_count: z.int(),
  provider_message_id: z.string().nullable(),
  next_attempt_at: time.nullable(),
  deliver_at: time.nullable(),
  expires_at: time.nullable(),
  accepted_at: time,
  settled_at: time.nullable(),
  metadata: z.record(z.string(), z.unknown()).nullable(),
  on_unknown: z.enum(ON_UNKNOWN),
  quiet_hours: quietHours.nullable().meta({ description: "its own, or else its producer's" }),
  attention: z.strictObject({ id: z.uuid(), reason: z.string(), opened_at: time }).nullable(),
};

/** As lists and intake answer it. */
export const delivery = z.strictObject(deliveryFields).meta({ id: "Delivery" });
/** As the single read answers it. */
export const deliveryWithAttempts = z
  .strictObject({ ...deliveryFields, attempts: z.array(attempt) })
  .meta({ id: "DeliveryWithAttempts" });

export const remembered = z
  .strictObject({ id: z.uuid(), name: z.string(), removed: z.literal(true), outcome: z.unknown() })
  .meta({ id: "RememberedDelivery", description: "the delivery was removed by retention; its name is remembered" });

export const deliveryPage = z
  .strictObject({ data: z.array(delivery), next_cursor: z.string().nullable() })
  .meta({ id: "DeliveryPage" });

export const batchAnswer = z
  .strictObject({
    data: z.array(
      z.union([
        z.strictObject({ status: z.literal([200, 202]), delivery: z.union([delivery, remembered]) }),
        z.strictObject({ status: z.int(), problem }),
      ]),
    ),
  })
  .meta({ id: "BatchAnswer" });

export const timeline = z
  .strictObject({ data: z.array(z.looseObject({ at: time, type: z.string() })), next_cursor: z.null() })
  .meta({ id: "Timeline" });

export const frozenMessage = z
  .strictObject({
    message: z
      .record(z.string(), z.unknown())
      .nullable()
      .meta({ description: "as it was posted; null: it is no longer kept" }),
  })
  .meta({ id: "FrozenMessage" });

export const keyRequest = z
  .strictObject({
    name: storable(100),
    producer: z
      .string()
      .regex(/^[a-z][a-z0-9_-]{0,99}$/, "must be 1 to 100 of a-z, 0-9, _ and -, beginning with a letter")
      .nullish()
      .meta({
        description: "whose deliveries it posts and sees; none: an operator's key, which sees all and posts none",
      }),
    scopes: z.array(z.enum(SCOPES)).min(1).max(SCOPES.length),
  })
  .refine((key) => typeof key.producer === "string" || !key.scopes.includes("deliveries:write"), {
    path: ["producer"],
    error: "is required for deliveries:write: deliveries belong to a producer",
  })
  .refine((key) => key.producer === ADMIN_PRODUCER || !key.scopes.includes("keys:write"), {
    path: ["scopes"],
    error: "may hold keys:write for the producer admin only: who makes keys can do anything",
  })
  .meta({ id: "KeyRequest" });

const keyFields = {
  id: z.uuid(),
  name: z.string(),
  producer: z.string().nullable(),
  scopes: z.array(z.enum(SCOPES)),
  hint: z.string(),
  created_at: time,
  revoked_at: time.nullable(),
};
export const apiKey = z.strictObject(keyFields).meta({ id: "ApiKey" });
export const newApiKey = z
  .strictObject({ ...keyFields, key: z.string().meta({ description: "shown this once" }) })
  .meta({ id: "NewApiKey" });
export const keyList = z.strictObject({ data: z.array(apiKey), next_cursor: z.null() }).meta({ id: "ApiKeyList" });

export const channel = z
  .strictObject({
    id: z.string(),
    provider: z.string(),
    configured: z.boolean(),
    paused: z
      .strictObject({
        at: time,
        until: time.nullable(),
        reason: z.string(),
        note: z.string().nullable(),
        by: z.string().nullable(),
      })
      .nullable(),
    backlog: z.int().meta({ description: "pending deliveries; 10000 means that or more" }),
    in_flight: z.int(),
    oldest_due_at: time.nullable(),
    breaker: z
      .strictObject({ state: z.enum(["closed", "open"]), opened_at: time.nullable(), until: time.nullable() })
      .meta({ description: "open: the provider fails for everyone; until: when the next single probe is made" }),
    rate: z
      .strictObject({ per_second: z.number().nullable(), source: z.enum(["setting", "provider", "learned"]) })
      .meta({ description: "calls a second at most, null: no limit; and who says so" }),
    verdicts: z
      .strictObject({
        accepted: z.int(),
        refused: z.int(),
        deferred: z.int(),
        unknown: z.int(),
        calls_per_minute: z.number(),
        latency_ms: z.strictObject({ mean: z.number().nullable(), max: z.number().nullable() }),
      })
      .meta({ description: "what the calls of the last five minutes proved" }),
    last_webhook_at: time.nullable(),
  })
  .meta({ id: "Channel" });
export const channelList = z
  .strictObject({ data: z.array(channel), next_cursor: z.null() })
  .meta({ id: "ChannelList" });
export const channelActivity = z
  .strictObject({
    channel: z.string(),
    minutes: z
      .array(
        z.strictObject({
          at: time,
          accepted: z.int(),
          refused: z.int(),
          deferred: z.int(),
          unknown: z.int(),
          latency_ms: z.strictObject({ mean: z.number(), max: z.number() }),
        }),
      )
      .meta({ description: "the last hour's calls by the minute, oldest first; minutes without a call are left out" }),
    rungs: z
      .array(z.strictObject({ at: time, count: z.int() }))
      .meta({ description: "further attempts due in the next ten minutes, by the minute" }),
    receipts: z
      .array(z.strictObject({ status: z.enum(RECEIPT_STATUSES).nullable(), count: z.int() }))
      .meta({ description: "the last hour's, among the ledger's newest 10000; null: evidence of acceptance alone" }),
  })
  .meta({ id: "ChannelActivity" });
export const channelActivityList = z
  .strictObject({ data: z.array(channelActivity), next_cursor: z.null() })
  .meta({ id: "ChannelActivityList" });
export const pauseRequest = z.strictObject({ reason: storable(500) }).meta({ id: "PauseRequest" });
export const resumeRequest = z
  .strictObject({ reason: storable(500).optional() })
  .meta({ id: "ResumeRequest", description: "why, for the record" });

export const providers = z
  .strictObject({
    names_remembered_days: z.int(),
    data: z.array(
      z.looseObject({
        provider: z.string(),
        idempotency: z.looseObject({ by: z.enum(["key", "none"]) }),
        answers: z.array(
          z.looseObject({ verdict: z.enum(VERDICTS), reason: z.string(), means: z.string(), source: z.string() }),
        ),
        lookup: z.array(z.looseObject({})),
        receipts: z.record(z.string(), z.string()),
        limits: z.looseObject({}),
      }),
    ),
    next_cursor: z.null(),
  })
  .meta({ id: "Providers" });

export const health = z
  .strictObject({ status: z.enum(["ok", "unavailable"]), faults: z.array(z.string()).optional() })
  .meta({ id: "Health" });
