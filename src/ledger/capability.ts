import type { ReceiptStatus } from "./delivery.ts";
import type { Answer, Outcome, Phase, Verdict } from "./verdict.ts";

/** How a provider recognises a request that it has already had. Durations in milliseconds. */
export type Idempotency =
  | {
      readonly by: "key";
      /** HTTP header that carries the key. */
      readonly header: string;
      /** Characters. */
      readonly maxLength: number;
      /** How long the provider remembers a key, counted from its first use. */
      readonly windowMs: number;
      /** Taken off the window for clocks and travel: no repeat later than windowMs − marginMs. */
      readonly marginMs: number;
      /** The provider compares the body too: repeats must be the same bytes. */
      readonly payloadBound: boolean;
      readonly source: string;
    }
  | { readonly by: "none"; readonly source: string };

export type StatusMatch = number | readonly [from: number, to: number];

/** One row: what an answer looks like, and what that proves. The first row that matches decides. */
export interface AnswerRow {
  readonly when: {
    readonly phase?: Phase;
    /** Any of these; a pair is an inclusive range. `null` in the answer never matches. */
    readonly status?: readonly StatusMatch[];
    readonly body?: readonly Answer["body"][];
    readonly ok?: boolean;
    /** Any of these error names or numbers. */
    readonly code?: readonly string[];
    /** Any of these appears in the error text (case-insensitive). */
    readonly text?: readonly string[];
    readonly hasMessageId?: boolean;
    readonly hasMovedTo?: boolean;
    /** Another call on this channel was accepted while this one was under way: the credentials were good until then. */
    readonly acceptedMeanwhile?: boolean;
  };
  readonly verdict: Verdict;
  readonly reason: string;
  readonly scope?: "channel";
  /** With `scope: "channel"`: hold it this many seconds (or as long as the provider says); without: until an operator acts. */
  readonly holdS?: number;
  /** `unknown` that a same-key repeat can never settle. */
  readonly repeat?: "never";
  readonly suppresses?: true;
  readonly alarm?: true;
  readonly slowsChannel?: true;
  /** It blames the provider, for everyone: enough of them open the channel's breaker. */
  readonly failing?: true;
  /** In words, for the README and `GET /v1/providers`. */
  readonly means: string;
  /** Provider document, package or measurement that the row rests on. */
  readonly source: string;
}

export interface Lookup {
  readonly by: "provider_message_id" | "request_log" | "none";
  readonly note: string;
  readonly source: string;
}

/** At most so many calls in any such time, for one recipient. */
export interface RecipientLimit {
  /** In words: `chat`, `group`. */
  readonly recipients: string;
  /** A regular expression: which recipients are meant; absent: all. */
  readonly matching?: string;
  readonly calls: number;
  readonly perMs: number;
}

export interface Limits {
  /** Calls; `learned`: its answers say how many; null: none that are known. */
  readonly perSecond: number | "learned" | null;
  readonly perRecipient: readonly RecipientLimit[];
  readonly maxRecipients: number | null;
  readonly maxBatch: number | null;
  readonly sizes: string;
  readonly source: string;
}

/** What one provider guarantees (design, section 3). Data: the pipeline never asks which provider it is. */
export interface Capability {
  readonly provider: string;
  readonly idempotency: Idempotency;
  readonly answers: readonly AnswerRow[];
  readonly lookup: readonly Lookup[];
  /** Webhook event type → receipt, or `evidence` (proves acceptance, no receipt), or `ignored`. */
  readonly receipts: Readonly<Record<string, ReceiptStatus | "evidence" | "ignored">>;
  readonly limits: Limits;
}

/** The table of a provider, by its name. */
export type CapabilityOf = (provider: string) => Capability;

/** Facts about a call that its answer alone does not tell. */
export interface CallContext {
  readonly acceptedMeanwhile: boolean;
}

const statusMatches = (wanted: readonly StatusMatch[], status: number | null): boolean =>
  status !== null &&
  wanted.some((match) => (typeof match === "number" ? status === match : status >= match[0] && status <= match[1]));

function matches(when: AnswerRow["when"], answer: Answer, context: CallContext): boolean {
  const text = (answer.message ?? "").toLowerCase();
  return (
    (when.phase === undefined || when.phase === answer.phase) &&
    (when.status === undefined || statusMatches(when.status, answer.status)) &&
    (when.body === undefined || when.body.includes(answer.body)) &&
    (when.ok === undefined || when.ok === answer.ok) &&
    (when.code === undefined || (answer.code !== null && when.code.includes(answer.code))) &&
    (when.text === undefined || when.text.some((part) => text.includes(part.toLowerCase()))) &&
    (when.hasMessageId === undefined || when.hasMessageId === (answer.providerMessageId !== null)) &&
    (when.hasMovedTo === undefined || when.hasMovedTo === (answer.movedTo !== null)) &&
    (when.acceptedMeanwhile === undefined || when.acceptedMeanwhile === context.acceptedMeanwhile)
  );
}

/** The reason of an answer that no row of the table matches: it proves nothing. */
export const UNRECOGNISED = "unrecognised_answer";

/** What an answer proves, by the provider's table. The default for anything not in the table is `unknown`. */
export function classify(table: Capability, answer: Answer, context: CallContext): Outcome {
  const row = table.answers.find((candidate) => matches(candidate.when, answer, context));
  return {
    verdict: row?.verdict ?? "unknown",
    reason: row?.reason ?? UNRECOGNISED,
    scope: row?.scope ?? "delivery",
    providerMessageId: row?.verdict === "accepted" ? answer.providerMessageId : null,
    retryAfterS: row?.verdict === "deferred" ? answer.retryAfterS : null,
    holdS: row?.holdS === undefined ? null : (answer.retryAfterS ?? row.holdS),
    suppresses: row?.suppresses ?? false,
    movedTo: row?.verdict === "deferred" ? answer.movedTo : null,
    alarm: row?.alarm ?? row === undefined,
    slowsChannel: row?.slowsChannel ?? false,
    failing: row?.failing ?? false,
  };
}

/** Can a repeat under the same key ever settle an attempt that is unknown for this reason? */
export function repeatMaySettle(table: Capability, reason: string): boolean {
  if (table.idempotency.by !== "key") return false;
  return !table.answers.some((row) => row.reason === reason && row.repeat === "never");
}
