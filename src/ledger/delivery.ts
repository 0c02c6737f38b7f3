import type { Verdict } from "./verdict.ts";

/** A UUIDv7 in canonical lower-case text. Branded, so that it cannot change places with another string. */
export type DeliveryId = string & { readonly __brand: "DeliveryId" };
export type ProducerId = string & { readonly __brand: "ProducerId" };
/** Counts a delivery's attempts from 1; never reused. */
export type AttemptNumber = number & { readonly __brand: "AttemptNumber" };
/** Epoch milliseconds, as read from the database's clock. */
export type Millis = number;

export const STATES = [
  "pending",
  "claimed",
  "sent",
  "failed",
  "needs_attention",
  "cancelled",
  "expired",
  "suppressed",
] as const;
export type State = (typeof STATES)[number];

export const FAILURES = ["refused", "exhausted", "abandoned"] as const;
export type Failure = (typeof FAILURES)[number];

/** Why a pending delivery waits (design, section 4). */
export const HOLD_REASONS = [
  "scheduled",
  "ladder",
  "channel_paused",
  "channel_unconfigured",
  "provider_down",
  "quiet_hours",
  "rate_limited",
] as const;
export type HoldReason = (typeof HOLD_REASONS)[number];

/** What a provider reports after its acceptance (design, section 2); kept apart from the state. */
export const RECEIPT_STATUSES = [
  "delivered",
  "delayed",
  "bounced",
  "complained",
  "failed",
  "suppressed",
  "opened",
  "clicked",
] as const;
export type ReceiptStatus = (typeof RECEIPT_STATUSES)[number];

export const ON_UNKNOWN = ["attention", "resend"] as const;
/** What a producer prefers where an outcome is unknown and no repeat is safe: a gap (`attention`) or a duplicate (`resend`). */
export type OnUnknown = (typeof ON_UNKNOWN)[number];

/** What a person can do about an attention item. */
export const ACTIONS = ["mark_sent", "resend_same_key", "resend", "abandon"] as const;
export type Action = (typeof ACTIONS)[number];
/** How an attention item ended: by a person's action, or by evidence. */
export type Resolution = Action | "evidence";

/** Under which key a ladder begins: every ladder after the first was begun by a person. */
export type LadderKey = "fresh" | "same";

/**
 * Which states may follow which. `sent`, `cancelled`, `expired` and `suppressed` are final; evidence and operators may
 * still move `failed` and `needs_attention`. The database enforces the same table (trigger `deliveries_guard`).
 */
export const TRANSITIONS: Readonly<Record<State, readonly State[]>> = {
  pending: ["claimed", "sent", "failed", "needs_attention", "cancelled", "expired", "suppressed"],
  claimed: ["pending", "sent", "failed", "needs_attention"],
  needs_attention: ["pending", "sent", "failed"],
  failed: ["pending", "sent", "needs_attention"],
  sent: [],
  cancelled: [],
  expired: [],
  suppressed: [],
};

/** One settled attempt, as far as the next decision needs it. */
export interface SettledAttempt {
  readonly number: AttemptNumber;
  /** Four attempts at most a ladder; a person's resend starts the next one, from 1. */
  readonly ladder: number;
  /** The idempotency key's suffix: attempts with one generation share one key. */
  readonly generation: number;
  readonly claimedAt: Millis;
  readonly verdict: Verdict;
  readonly reason: string;
  /** False when it must not count against the ladder's four: the refusal concerned the channel, or no call was made. */
  readonly counted: boolean;
  /** Seconds the provider asked us to wait, or null. */
  readonly retryAfterS: number | null;
}
