import type { Capability } from "../../src/ledger/capability.ts";
import type { AttemptNumber, SettledAttempt } from "../../src/ledger/delivery.ts";

const HOUR = 3_600_000;

const base: Omit<Capability, "idempotency"> = {
  provider: "example",
  answers: [
    {
      when: { status: [409] },
      verdict: "unknown",
      reason: "payload_mismatch",
      repeat: "never",
      means: "the key was used with another body",
      source: "example",
    },
  ],
  lookup: [],
  receipts: {},
  limits: { perSecond: null, perRecipient: [], maxRecipients: null, maxBatch: null, sizes: "", source: "example" },
};

/** Deduplicates on the key for 24 hours, less one. */
export const keyed: Capability = {
  ...base,
  idempotency: {
    by: "key",
    header: "Idempotency-Key",
    maxLength: 256,
    windowMs: 24 * HOUR,
    marginMs: HOUR,
    payloadBound: true,
    source: "example",
  },
};

/** Recognises nothing. */
export const keyless: Capability = { ...base, idempotency: { by: "none", source: "example" } };

/** A settled attempt with good defaults. */
export function attempt(
  number: number,
  verdict: SettledAttempt["verdict"],
  more: Partial<Omit<SettledAttempt, "number" | "verdict">> = {},
): SettledAttempt {
  return {
    number: number as AttemptNumber,
    ladder: 1,
    generation: 1,
    claimedAt: 0,
    verdict,
    reason: verdict,
    counted: true,
    retryAfterS: null,
    ...more,
  };
}
