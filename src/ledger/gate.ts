import type { HoldReason, Millis } from "./delivery.ts";

/** What the gate must know of a delivery. Times in epoch milliseconds, by the database's clock. */
export interface GateDelivery {
  readonly cancelled: boolean;
  readonly expiresAt: Millis | null;
  /** On its channel's suppression list. */
  readonly suppressed: boolean;
  readonly nextAttemptAt: Millis;
  /** Attempts made so far: more than none means that `nextAttemptAt` is a rung of the ladder. */
  readonly attemptCount: number;
  /** An attempt behind it is `unknown`: it may have been sent. */
  readonly inDoubt: boolean;
  readonly quietUntil: Millis | null;
  readonly recipientPacedUntil: Millis | null;
}

export interface GateChannel {
  /** Paused by an operator, or held by the ledger (bad credentials, quota) until an operator resumes it or `until`. */
  readonly paused: { readonly until: Millis | null } | null;
  /** This process holds credentials for it. */
  readonly configured: boolean;
  readonly breakerOpenUntil: Millis | null;
  readonly pacedUntil: Millis | null;
}

export type GateDecision =
  | { readonly gate: "open" }
  /** `until` null: until somebody acts. */
  | { readonly gate: "hold"; readonly reason: HoldReason; readonly until: Millis | null }
  | { readonly gate: "close"; readonly state: "cancelled" | "expired" | "suppressed" }
  | { readonly gate: "attention"; readonly reason: "cancelled_in_doubt" | "expired_in_doubt" | "suppressed_in_doubt" };

const close = (state: "cancelled" | "expired" | "suppressed", inDoubt: boolean): GateDecision =>
  inDoubt ? { gate: "attention", reason: `${state}_in_doubt` } : { gate: "close", state };

const reached = (at: Millis | null, now: Millis): boolean => at === null || at <= now;

/**
 * May this delivery be attempted now? The first check that is not open decides (design, section 4). `expiresAt` is
 * exclusive: at that very instant the delivery has expired. A close states that nothing was sent, so a delivery in doubt
 * is never closed: it goes to needs-attention with that as the reason.
 */
export function gate(delivery: GateDelivery, channel: GateChannel, now: Millis): GateDecision {
  if (delivery.cancelled) return close("cancelled", delivery.inDoubt);
  if (delivery.expiresAt !== null && delivery.expiresAt <= now) return close("expired", delivery.inDoubt);
  if (delivery.suppressed) return close("suppressed", delivery.inDoubt);
  if (delivery.nextAttemptAt > now) {
    return { gate: "hold", reason: delivery.attemptCount > 0 ? "ladder" : "scheduled", until: delivery.nextAttemptAt };
  }
  if (channel.paused && (channel.paused.until === null || channel.paused.until > now)) {
    return { gate: "hold", reason: "channel_paused", until: channel.paused.until };
  }
  if (!channel.configured) return { gate: "hold", reason: "channel_unconfigured", until: null };
  if (!reached(channel.breakerOpenUntil, now)) {
    return { gate: "hold", reason: "provider_down", until: channel.breakerOpenUntil };
  }
  if (!reached(delivery.quietUntil, now)) return { gate: "hold", reason: "quiet_hours", until: delivery.quietUntil };
  const pacedUntil = Math.max(channel.pacedUntil ?? 0, delivery.recipientPacedUntil ?? 0);
  if (pacedUntil > now) return { gate: "hold", reason: "rate_limited", until: pacedUntil };
  return { gate: "open" };
}
