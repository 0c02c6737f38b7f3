import type { Millis } from "./delivery.ts";

/**
 * So many failing calls in a row, over all replicas, say that the provider fails for everyone. One that it answers in
 * between says that it does not: a bad day of some deliveries must not stop the others.
 */
export const FAILING_CALLS = 10;
/** The first probe is made so soon after the breaker has opened: a hiccup must not stop a channel for long. */
export const FIRST_PROBE_MS = 2_000;
/** While the provider is down, probes are made this far apart at most. */
export const LAST_PROBE_MS = 30_000;

/** Until the next probe: as long again as the breaker has been open, within these bounds. */
const probeWaitMs = (openedAt: Millis, now: Millis): number =>
  Math.min(Math.max(now - openedAt, FIRST_PROBE_MS), LAST_PROBE_MS);

/** A channel's breaker, shared by all replicas. Times in epoch milliseconds, by the database's clock. */
export interface Breaker {
  /** Null: it is closed, and calls are made. */
  readonly openedAt: Millis | null;
  /** While it is open: when the next probe may be made. */
  readonly openUntil: Millis | null;
  /** The latest calls, if they were failing: a `1` each. */
  readonly recentCalls: string;
}

export const CLOSED: Breaker = { openedAt: null, openUntil: null, recentCalls: "" };

/** A call that was answered (or that proved that it could not be). */
export interface SeenCall {
  readonly claimedAt: Millis;
  /** It blames the provider, for everyone (capability table, `failing`). */
  readonly failing: boolean;
}

/**
 * The breaker after one more call. It opens when the latest calls were all failing. While it is open only probes are
 * claimed, so that a call claimed after the opening is one: its answer closes the breaker, or keeps it open until the next.
 * Calls claimed before, whose answers come late, say nothing of now.
 */
export function afterCall(breaker: Breaker, call: SeenCall, now: Millis): Breaker {
  if (breaker.openedAt !== null) {
    if (call.claimedAt <= breaker.openedAt) return breaker;
    return call.failing ? { ...breaker, openUntil: now + probeWaitMs(breaker.openedAt, now) } : CLOSED;
  }
  const recentCalls = call.failing ? `${breaker.recentCalls}1` : "";
  if (recentCalls.length < FAILING_CALLS) return { ...CLOSED, recentCalls };
  return { openedAt: now, openUntil: now + FIRST_PROBE_MS, recentCalls: "" };
}
