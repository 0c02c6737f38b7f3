import type { Capability } from "./capability.ts";
import type { AttemptNumber, Failure, HoldReason, Millis, OnUnknown, SettledAttempt, State } from "./delivery.ts";
import { type AfterEvidence, afterEvidence, weigh } from "./evidence.ts";
import { type NextStep, nextStep } from "./next-step.ts";
import { counts, type Outcome, type Verdict } from "./verdict.ts";

/** A delivery as the database holds it, locked, when a settlement is decided. */
export interface HeldDelivery {
  readonly state: State;
  readonly failure: Failure | null;
  readonly onUnknown: OnUnknown;
  /** The current ladder: a person's resend starts the next one. */
  readonly ladder: number;
  readonly providerMessageId: string | null;
}

/** An attempt as the database holds it. */
export interface HeldAttempt {
  readonly number: AttemptNumber;
  readonly ladder: number;
  readonly generation: number;
  readonly claimedAt: Millis;
  readonly claimedBy: string;
  readonly leaseExpiresAt: Millis;
  readonly settled: {
    readonly verdict: Verdict;
    readonly reason: string;
    readonly counted: boolean;
    readonly retryAfterS: number | null;
    readonly providerMessageId: string | null;
  } | null;
}

/**
 * Who says so. `answer`: the provider, through the claim of `by`. `never_called`: whoever made the claim `by`, about that claim alone.
 * `lease`: anybody who finds that the lease has run out. `receipt`: the provider, afterwards, by a webhook or when asked.
 */
export type Witness =
  | { readonly source: "answer" | "never_called"; readonly by: string }
  | { readonly source: "lease" | "receipt" };

/** Everything that one settlement writes, in one commit. */
export interface SettlementChange {
  /** True when an `unknown` verdict is replaced by evidence, or an acceptance named; false when an open attempt is settled. */
  readonly isEvidence: boolean;
  /** False when the attempt's verdict stands as it is, and only the contradiction is recorded. */
  readonly writesVerdict: boolean;
  readonly counted: boolean;
  /** What the delivery becomes; null when only the attempt is written. */
  readonly delivery: {
    readonly state: State;
    readonly failure: Failure | null;
    readonly nextAttemptAt: Millis | null;
    readonly holdReason: HoldReason | null;
  } | null;
  readonly inDoubt: boolean;
  /** Attention reason to open an item with. */
  readonly attention: string | null;
}

/**
 * What a verdict about attempt `number` changes, or null when somebody else was first: the attempt is settled already and
 * this is no evidence, the lease has not run out after all, or the claim is not the witness's own. Pure; the caller holds
 * the delivery's lock, and `now` is the database's.
 */
export function settlement(
  delivery: HeldDelivery,
  attempts: readonly HeldAttempt[],
  number: AttemptNumber,
  outcome: Outcome,
  witness: Witness,
  table: Capability,
  now: Millis,
): SettlementChange | null {
  const attempt = attempts.find((candidate) => candidate.number === number);
  if (!attempt) return null;
  if (witness.source === "lease" && (attempt.settled || attempt.leaseExpiresAt > now)) return null;
  if (witness.source === "never_called" && attempt.claimedBy !== witness.by) return null;
  if (witness.source === "receipt" && !attempt.settled) return null;
  const counted = counts(outcome);
  const after = attempts.map((candidate) =>
    candidate === attempt ? withOutcome(candidate, outcome, counted) : candidate,
  );
  const { settled } = attempt;
  if (settled === null) {
    const history = settledOf(after);
    const next =
      delivery.state === "claimed"
        ? nextStep(history, table, delivery.onUnknown, now)
        : lateStep(delivery, history, outcome, table, now);
    return {
      isEvidence: false,
      writesVerdict: true,
      counted,
      inDoubt: isInDoubt(after),
      ...consequence(next, delivery),
    };
  }
  const weight = weigh(settled, outcome);
  if (weight === "nothing") return null;
  if (weight === "contradicts") {
    const contradiction = consequence({ state: "contradiction" }, delivery);
    const unchanged = { counted: settled.counted, inDoubt: isInDoubt(attempts) };
    return { isEvidence: true, writesVerdict: false, ...unchanged, ...contradiction };
  }
  const next = lateStep(delivery, settledOf(after), outcome, table, now);
  return { isEvidence: true, writesVerdict: true, counted, inDoubt: isInDoubt(after), ...consequence(next, delivery) };
}

/** A verdict for a delivery that no longer waits for it. */
function lateStep(
  delivery: HeldDelivery,
  history: readonly SettledAttempt[],
  outcome: Outcome,
  table: Capability,
  now: Millis,
): AfterEvidence {
  if (outcome.verdict === "unknown") return { state: "stay" };
  const { providerMessageId: held } = delivery;
  const proven = outcome.providerMessageId;
  if (
    outcome.verdict === "accepted" &&
    delivery.state === "sent" &&
    held !== null &&
    proven !== null &&
    held !== proven
  ) {
    return { state: "contradiction" };
  }
  return afterEvidence(delivery, history, outcome.verdict, table, delivery.onUnknown, now);
}

function consequence(
  next: NextStep | AfterEvidence,
  { state }: HeldDelivery,
): Pick<SettlementChange, "delivery" | "attention"> {
  const become = { failure: null, nextAttemptAt: null, holdReason: null };
  switch (next.state) {
    case "stay":
      return { delivery: null, attention: null };
    case "contradiction":
      // One that waits would be attempted again: it stops, for a person to decide.
      return {
        delivery: state === "pending" ? { ...become, state: "needs_attention" } : null,
        attention: "contradiction",
      };
    case "sent":
      return { delivery: { ...become, state: "sent" }, attention: null };
    case "failed":
      return { delivery: { ...become, state: "failed", failure: next.failure }, attention: null };
    case "pending":
      return {
        delivery: { ...become, state: "pending", nextAttemptAt: next.nextAttemptAt, holdReason: "ladder" },
        attention: null,
      };
    case "needs_attention":
      return { delivery: { ...become, state: "needs_attention" }, attention: next.reason };
    default:
      throw new Error(`no consequence for ${next satisfies never}`);
  }
}

const withOutcome = (attempt: HeldAttempt, outcome: Outcome, counted: boolean): HeldAttempt => {
  const { verdict, reason, retryAfterS, providerMessageId } = outcome;
  return { ...attempt, settled: { verdict, reason, counted, retryAfterS, providerMessageId } };
};

const isInDoubt = (attempts: readonly HeldAttempt[]): boolean =>
  attempts.some(({ settled }) => settled?.verdict === "unknown");

/** The settled attempts, in order. */
export function settledOf(attempts: readonly HeldAttempt[]): SettledAttempt[] {
  return attempts
    .toSorted((a, b) => a.number - b.number)
    .flatMap(({ settled, number, ladder, generation, claimedAt }) =>
      settled ? [{ number, ladder, generation, claimedAt, ...settled }] : [],
    );
}
