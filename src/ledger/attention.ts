import type { Capability } from "./capability.ts";
import type { Action, Failure, LadderKey, Millis, SettledAttempt, State } from "./delivery.ts";
import { sameKeyUntil } from "./next-step.ts";

/** A delivery whose attention item a person looks at. Times in epoch milliseconds. */
export interface Doubtful {
  readonly state: State;
  /** Why the item was opened. */
  readonly reason: string;
  readonly expiresAt: Millis | null;
  /** The recipient is on the channel's suppression list. */
  readonly suppressed: boolean;
  /** Every settled attempt, in order. */
  readonly history: readonly SettledAttempt[];
}

/** One thing that a person may do now, and what it risks. */
export interface Offer {
  readonly action: Action;
  /** A second message may reach the recipient: it must be acknowledged (`acknowledge_duplicate_risk`). */
  readonly mayDuplicate: boolean;
  /** Offered until then (exclusive); null: as long as the item is open. */
  readonly until: Millis | null;
  /** What it does and risks, in words. */
  readonly risk: string;
}

/** Why an action is not offered. */
export interface Refusal {
  readonly action: Action;
  readonly why: string;
}

const isOffer = (answer: Offer | Refusal): answer is Offer => "risk" in answer;

/** What a person may do about this item now. The answer changes by itself when the key's window closes. */
export function offers(doubtful: Doubtful, table: Capability, now: Millis): readonly Offer[] {
  return judgements(doubtful, table, now).filter(isOffer);
}

/** What cannot be done now, and why. */
export function refusals(doubtful: Doubtful, table: Capability, now: Millis): readonly Refusal[] {
  return judgements(doubtful, table, now).filter((answer): answer is Refusal => !isOffer(answer));
}

const judgements = (doubtful: Doubtful, table: Capability, now: Millis): readonly (Offer | Refusal)[] =>
  (["mark_sent", "resend_same_key", "resend", "abandon"] as const).map((action) => judge(action, doubtful, table, now));

/** Is this action offered now, and what does it risk; or why is it not? */
export function judge(action: Action, doubtful: Doubtful, table: Capability, now: Millis): Offer | Refusal {
  switch (action) {
    case "mark_sent":
      return judgeMarkSent(doubtful);
    case "abandon":
      return judgeAbandon(doubtful);
    case "resend":
      return judgeResend(doubtful, now);
    case "resend_same_key":
      return judgeSameKey(doubtful, table, now);
    default:
      throw new Error(`no judgement of ${action satisfies never}`);
  }
}

const FINAL: readonly State[] = ["cancelled", "expired", "suppressed"];
const UNDER_WAY = "an attempt is under way: look again when it has settled";

function judgeMarkSent({ state }: Doubtful): Offer | Refusal {
  const action = "mark_sent";
  if (state === "claimed" || state === "pending") return { action, why: UNDER_WAY };
  if (FINAL.includes(state)) return { action, why: `${state} is final; abandon closes the item and leaves it so` };
  const risk =
    state === "sent"
      ? "It stays sent, and the item is closed."
      : "No further attempt is made. If it was not sent after all, the recipient never gets it.";
  return { action, mayDuplicate: false, until: null, risk };
}

function judgeAbandon({ state }: Doubtful): Offer | Refusal {
  const action = "abandon";
  if (state === "claimed" || state === "pending") return { action, why: UNDER_WAY };
  if (state === "sent") return { action, why: "sent is final; mark_sent closes the item and leaves it so" };
  const risk =
    state === "needs_attention"
      ? "No further attempt is made, and the ledger says failed. If it was not sent, the recipient never gets it; if it was, the ledger is wrong until evidence comes."
      : `It stays ${state}, against what the provider reports, and the item is closed.`;
  return { action, mayDuplicate: false, until: null, risk };
}

/** Why no further attempt can be made at all, or null. */
function barred({ state, expiresAt, suppressed }: Doubtful, now: Millis): string | null {
  if (state !== "needs_attention") return `the delivery is ${state}`;
  if (expiresAt !== null && expiresAt <= now) return "it has expired: an attempt now would come too late";
  if (suppressed) return "the recipient is on the suppression list: remove it there first";
  return null;
}

const doubts = (history: readonly SettledAttempt[]): readonly SettledAttempt[] =>
  history.filter(({ verdict }) => verdict === "unknown");

function judgeResend(doubtful: Doubtful, now: Millis): Offer | Refusal {
  const action = "resend";
  const why = barred(doubtful, now);
  if (why !== null) return { action, why };
  const numbers = doubts(doubtful.history).map(({ number }) => number);
  if (doubtful.reason === "contradiction") {
    return {
      ...{ action, mayDuplicate: true, until: null },
      risk: "The provider reports that it has the message: the recipient gets it twice.",
    };
  }
  const risk =
    numbers.length > 0
      ? `If attempt ${numbers.join(" or ")} went through, the recipient gets the message ${numbers.length > 1 ? "again" : "twice"}.`
      : "No second message: no attempt had an effect.";
  return { action, mayDuplicate: numbers.length > 0, until: null, risk };
}

function judgeSameKey(doubtful: Doubtful, table: Capability, now: Millis): Offer | Refusal {
  const action = "resend_same_key";
  const why = barred(doubtful, now);
  if (why !== null) return { action, why };
  const until = safeRepeatUntil(doubtful.history, table);
  if (until === null) return { action, why: "no repeat is recognised by the provider as one" };
  if (now >= until) return { action, why: "the provider may have forgotten the key" };
  return {
    ...{ action, mayDuplicate: false, until },
    risk: "No second message while the provider remembers the key: it sends once at most, and answers as it did the first time.",
  };
}

/**
 * The key-window clock: until when (exclusive) a repeat under the same key is safe; null: it never is, or there is nothing
 * to settle by it. All doubt must be under the latest key: a repeat says nothing about an earlier one.
 */
export function safeRepeatUntil(history: readonly SettledAttempt[], table: Capability): Millis | null {
  const doubtful = doubts(history);
  const last = history.at(-1);
  if (!last || doubtful.length === 0 || doubtful.some(({ generation }) => generation !== last.generation)) return null;
  return sameKeyUntil(history, table);
}

/** What a resolution does to the delivery; null: nothing, the item alone is closed. */
export interface ResolvedTo {
  readonly state: "sent" | "failed" | "pending";
  readonly failure: Failure | null;
  /** A ladder begins: four attempts, from now on. */
  readonly ladderKey: LadderKey | null;
}

export function resolvedTo(action: Action, state: State): ResolvedTo | null {
  switch (action) {
    case "mark_sent":
      return state === "sent" ? null : { state: "sent", failure: null, ladderKey: null };
    case "abandon":
      return state === "needs_attention" ? { state: "failed", failure: "abandoned", ladderKey: null } : null;
    case "resend":
      return { state: "pending", failure: null, ladderKey: "fresh" };
    case "resend_same_key":
      return { state: "pending", failure: null, ladderKey: "same" };
    default:
      throw new Error(`no consequence of ${action satisfies never}`);
  }
}

/** The reasons that the ledger gives by itself; every other one is a row of the provider's table. */
const OWN_REASONS: ReadonlyMap<string, string> = new Map([
  ["lease_expired", "the worker that held the claim died or hung: whether it had called the provider is not known"],
  ["refused_after_unknown", "the latest attempt was refused, and an earlier one may have gone through"],
  ["exhausted_in_doubt", "all four attempts are made, and one of them may have gone through"],
  ["window_closed", "the provider may have forgotten the key: a repeat could be a second message"],
  ["repeat_unsafe", "the provider does not recognise repeats: another attempt could be a second message"],
  ["expired_in_doubt", "it expired while it waited, and an earlier attempt may have gone through"],
  ["suppressed_in_doubt", "the recipient was suppressed while it waited, and an earlier attempt may have gone through"],
  ["cancelled_in_doubt", "it was cancelled while it waited, and an earlier attempt may have gone through"],
  ["contradiction", "evidence came that contradicts what the ledger had decided"],
  ["adapter_fault", "the adapter failed during the call: what it did is not known"],
  ["unrecognised_answer", "the provider gave an answer that its table does not know"],
]);

/** What a reason means, in words: the table's, or the ledger's own. */
export function meaningOf(reason: string, table: Capability): string {
  return (
    OWN_REASONS.get(reason) ??
    table.answers.find((row) => row.reason === reason && row.verdict === "unknown")?.means ??
    reason
  );
}

const hours = (ms: number): string => `${Math.round(ms / 3_600_000)} h`;

/** What the provider guarantees about repeats and questions, in words, for an operator. */
export function guarantees(table: Capability): readonly string[] {
  const { idempotency } = table;
  const repeats =
    idempotency.by === "key"
      ? `${table.provider} recognises a repeat under the same key for ${hours(idempotency.windowMs)}; the ledger counts on ${hours(idempotency.windowMs - idempotency.marginMs)}.`
      : `${table.provider} recognises no repeat: every attempt that goes through is a message.`;
  return [repeats, ...table.lookup.map(({ note }) => note)];
}
