import type { Capability } from "./capability.ts";
import type { AttemptNumber, Failure, Millis, OnUnknown, SettledAttempt, State } from "./delivery.ts";
import { type NextStep, nextStep } from "./next-step.ts";
import type { Verdict } from "./verdict.ts";

/** What evidence about an earlier attempt does to its delivery. */
export type AfterEvidence = NextStep | { readonly state: "stay" } | { readonly state: "contradiction" };

/** What an attempt is known to have done, as far as evidence needs it. */
export interface Known {
  readonly verdict: Verdict;
  readonly providerMessageId: string | null;
}

/**
 * What new evidence is to what an attempt already has: `replaces` an unknown verdict, `names` the message of an acceptance
 * whose id was lost, tells `nothing` new, or `contradicts` it. Only `unknown` is ever replaced, and only by a proof.
 */
export function weigh(held: Known, proven: Known): "replaces" | "names" | "nothing" | "contradicts" {
  if (proven.verdict === "unknown") return "nothing";
  if (held.verdict === "unknown") return "replaces";
  if (held.verdict !== "accepted") return proven.verdict === "accepted" ? "contradicts" : "nothing";
  if (proven.verdict !== "accepted") return "contradicts";
  if (proven.providerMessageId === null || proven.providerMessageId === held.providerMessageId) return "nothing";
  return held.providerMessageId === null ? "names" : "contradicts";
}

/**
 * What becomes of a delivery when an `unknown` attempt has been replaced by a proof (a late answer, a receipt, a look-up).
 * `history` holds every settled attempt after the replacement, in order. Rule 1 holds whatever came before; evidence
 * against what was already decided is a contradiction, never silently applied and never dropped.
 */
export function afterEvidence(
  delivery: { readonly state: State; readonly failure: Failure | null; readonly ladder: number },
  history: readonly SettledAttempt[],
  proven: Exclude<Verdict, "unknown">,
  table: Capability,
  onUnknown: OnUnknown,
  now: Millis,
): AfterEvidence {
  const inDoubt = history.some((attempt) => attempt.verdict === "unknown");
  switch (delivery.state) {
    case "pending":
    case "needs_attention": {
      if (proven === "accepted") return { state: "sent" };
      const last = history.at(-1);
      // A ladder that a person began and that has no attempt yet is climbed, whatever is learned of the earlier ones.
      if (inDoubt || !last || last.ladder < delivery.ladder) return { state: "stay" };
      const next = nextStep(history, table, onUnknown, now);
      return delivery.state === "pending" && next.state === "pending" ? { state: "stay" } : next;
    }
    case "claimed":
      return proven === "accepted" ? { state: "sent" } : { state: "stay" };
    case "sent": {
      // Sent by a person's word alone, and now every attempt is proven to have had no effect.
      const borneOut = inDoubt || history.some((attempt) => attempt.verdict === "accepted");
      return borneOut ? { state: "stay" } : { state: "contradiction" };
    }
    case "failed":
    case "cancelled":
    case "expired":
    case "suppressed":
      return proven === "accepted" ? { state: "contradiction" } : { state: "stay" };
    default:
      throw new Error(`no evidence rule for ${delivery.state satisfies never}`);
  }
}

/** An attempt as it stands when a receipt comes; `verdict` null while it is open. */
export interface Witnessed {
  readonly number: AttemptNumber;
  readonly verdict: Verdict | null;
  readonly providerMessageId: string | null;
}

/** What a report that the provider has the message is to the attempts that were made. */
export type Attachment =
  /** It is known already. */
  | { readonly to: "nothing" }
  /** It is evidence about this attempt: its acceptance, or its message's id. */
  | { readonly to: "attempt"; readonly number: AttemptNumber }
  /** An attempt is open: it will be looked at again when that settles. */
  | { readonly to: "open_attempt" }
  | { readonly to: "contradiction"; readonly why: "two_message_ids" | "nothing_was_accepted" };

/**
 * Which attempt a provider's report belongs to. A message has one id, so an attempt that has it is the one; then an
 * acceptance whose id was lost; then the first one in doubt. What fits none of them contradicts the ledger.
 */
export function attach(attempts: readonly Witnessed[], providerMessageId: string | null): Attachment {
  const accepted = attempts.filter(({ verdict }) => verdict === "accepted");
  if (accepted.some((attempt) => providerMessageId === null || attempt.providerMessageId === providerMessageId)) {
    return { to: "nothing" };
  }
  const nameless = accepted.find((attempt) => attempt.providerMessageId === null);
  const doubtful = nameless ?? attempts.find(({ verdict }) => verdict === "unknown");
  if (doubtful) return { to: "attempt", number: doubtful.number };
  if (attempts.some(({ verdict }) => verdict === null)) return { to: "open_attempt" };
  return { to: "contradiction", why: accepted.length > 0 ? "two_message_ids" : "nothing_was_accepted" };
}
