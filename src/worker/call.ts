import { type Capability, classify } from "../ledger/capability.ts";
import { type Answer, NEVER_CALLED, type Outcome, ownOutcome } from "../ledger/verdict.ts";
import type { Adapter } from "../providers/provider.ts";
import type { Claim } from "../store/claims.ts";

/** A committed claim with its request body: all that a call needs. */
export interface Ready {
  readonly claim: Claim;
  readonly body: string;
}

export interface Called {
  readonly outcome: Outcome;
  /** What was seen; null when no call was made. */
  readonly answer: Answer | null;
  /** How long the provider took; null when no call was made. */
  readonly latencyMs: number | null;
}

export interface CallLimits {
  readonly timeoutMs: number;
  /** Monotonic milliseconds (`performance.now()`) at which the lease certainly still holds. */
  readonly leaseHoldsUntil: number;
}

/** Makes the calls of one channel and remembers when its credentials were last seen to work. */
export function createCaller(adapter: Adapter, table: Capability, clock: () => number) {
  let lastAcceptedAt = Number.NEGATIVE_INFINITY;

  /**
   * One provider call, or none when too little of the lease is left to wait for an answer: then the claim is given back
   * (`never_called`). Never rejects.
   */
  return async function call({ claim, body }: Ready, limits: CallLimits, signal: AbortSignal): Promise<Called> {
    const startedAt = clock();
    if (signal.aborted || startedAt + limits.timeoutMs >= limits.leaseHoldsUntil) {
      return { outcome: ownOutcome("deferred", NEVER_CALLED), answer: null, latencyMs: null };
    }
    let answer: Answer;
    try {
      answer = await adapter.call({ ...claim, body, attempt: claim.number, signal, timeoutMs: limits.timeoutMs });
    } catch {
      // An adapter answers, whatever happened. One that throws is broken, and what it did is not known.
      return { outcome: ownOutcome("unknown", "adapter_fault"), answer: null, latencyMs: null };
    }
    const outcome = classify(table, answer, { acceptedMeanwhile: lastAcceptedAt > startedAt });
    const answeredAt = clock();
    if (outcome.verdict === "accepted") lastAcceptedAt = answeredAt;
    // A call that the ledger itself cut off does not speak against the provider.
    const failing = outcome.failing && !signal.aborted;
    return { outcome: { ...outcome, failing }, answer, latencyMs: answeredAt - startedAt };
  };
}
