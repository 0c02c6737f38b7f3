export const VERDICTS = ["accepted", "refused", "deferred", "unknown"] as const;
/** What a provider's answer proves about one attempt (design, section 2). */
export type Verdict = (typeof VERDICTS)[number];

/**
 * How far a request got. `not_sent`: proven that no byte of it was written (name not resolved, connection refused or
 * timed out, TLS not established). `sent`: anything after, and anything of which that is not proven.
 */
export type Phase = "not_sent" | "sent";

/** What a provider call was seen to do. Facts only; `classify` (capability.ts) says what they prove. */
export interface Answer {
  readonly phase: Phase;
  /** HTTP status, or null when none was seen. */
  readonly status: number | null;
  /** `json`: a body of the provider's API; `page`: HTML, from an edge or a proxy; `text`: readable, but neither; `none`: empty, cut off or never seen. */
  readonly body: "json" | "page" | "text" | "none";
  /** The provider's error name or number (`validation_error`, `400`), or the transport's code (`ECONNREFUSED`). */
  readonly code: string | null;
  /** Human text of the error, secrets removed, at most 500 characters. */
  readonly message: string | null;
  /** The provider's own word for success, apart from the HTTP status: Telegram's `ok`. Null where the provider has none. */
  readonly ok: boolean | null;
  readonly providerMessageId: string | null;
  /** Seconds to wait, as the provider said it; already made sane by `saneRetryAfterS`. */
  readonly retryAfterS: number | null;
  /** The recipient's new address, when the provider says it moved (Telegram's `migrate_to_chat_id`). */
  readonly movedTo: string | null;
  /** Calls a second that the provider says it allows this account; already made sane by `saneLimitPerSecond`. */
  readonly limitPerSecond: number | null;
}

/** A verdict with everything that settlement needs to know about it. */
export interface Outcome {
  readonly verdict: Verdict;
  /** snake_case word for the log, the ledger and the operator. */
  readonly reason: string;
  /** `channel`: the answer concerns the whole channel, which is held; the attempt does not count. */
  readonly scope: "delivery" | "channel";
  readonly providerMessageId: string | null;
  readonly retryAfterS: number | null;
  /** How long a channel-wide answer holds the channel, in seconds; null: until an operator resumes it. */
  readonly holdS: number | null;
  /** The recipient goes onto the channel's suppression list. */
  readonly suppresses: boolean;
  /** The next attempt goes to this recipient instead. */
  readonly movedTo: string | null;
  /** Must be looked at by the ledger's own operators: the answer should not occur. */
  readonly alarm: boolean;
  /** The provider asked everybody on this channel to slow down. */
  readonly slowsChannel: boolean;
  /** It blames the provider, for everyone: enough of them open the channel's breaker. */
  readonly failing: boolean;
}

const LONGEST_RETRY_AFTER_S = 31 * 24 * 3600;

/**
 * A wait in seconds as providers write it (number or decimal text), or null when it is missing or absurd: negative, not a
 * number, or beyond 31 days. Absurd waits fall back to the ladder's own rung.
 */
export function saneRetryAfterS(value: unknown): number | null {
  const seconds =
    typeof value === "number"
      ? value
      : typeof value === "string" && /^\s*\d{1,12}(\.\d+)?\s*$/.test(value)
        ? Number(value)
        : Number.NaN;
  return Number.isFinite(seconds) && seconds >= 0 && seconds <= LONGEST_RETRY_AFTER_S ? seconds : null;
}

const HIGHEST_LIMIT_PER_SECOND = 10_000;

/** Calls a second as a provider says it, or null when that is absurd: to obey it would stop the channel, or be no limit. */
export const saneLimitPerSecond = (perSecond: number): number | null =>
  perSecond >= 0.01 && perSecond <= HIGHEST_LIMIT_PER_SECOND ? perSecond : null;

/** No provider call was made under this claim: its worker says so itself. */
export const NEVER_CALLED = "never_called";

/**
 * Does this attempt count against the ladder's four? Not when the answer concerned the whole channel, and not when no
 * call was made: one wrong key, or one broken database connection, must never turn a backlog into `failed`.
 */
export const counts = (outcome: Pick<Outcome, "scope" | "reason">): boolean =>
  outcome.scope === "delivery" && outcome.reason !== NEVER_CALLED;

/** An outcome that no provider answered: the ledger's own word about an attempt (`lease_expired`, `never_called`, …). */
export function ownOutcome(verdict: Exclude<Verdict, "accepted">, reason: string): Outcome {
  return {
    verdict,
    reason,
    scope: "delivery",
    providerMessageId: null,
    retryAfterS: null,
    holdS: null,
    suppresses: false,
    movedTo: null,
    alarm: false,
    slowsChannel: false,
    failing: false,
  };
}
