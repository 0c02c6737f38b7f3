import type { Capability } from "./capability.ts";
import type { Failure, Millis, OnUnknown, SettledAttempt, State } from "./delivery.ts";
import { type NextStep, nextStep } from "./next-step.ts";
import type { Verdict } from "./verdict.ts";

/** What evidence about an earlier attempt does to its delivery. */
export type AfterEvidence = NextStep | { readonly state: "stay" } | { readonly state: "contradiction" };

/** May evidence replace this verdict with that one? Only `unknown` is ever replaced, and only by a proof. */
export const mayReplace = (held: Verdict, proven: Verdict): boolean => held === "unknown" && proven !== "unknown";

/**
 * What becomes of a delivery when an `unknown` attempt has been replaced by a proof (a late answer, a receipt, a look-up).
 * `history` is the current ladder's settled attempts after the replacement. Rule 1 holds whatever came before; evidence
 * against what was already decided is a contradiction, never silently applied and never dropped.
 */
export function afterEvidence(
  delivery: { readonly state: State; readonly failure: Failure | null },
  history: readonly SettledAttempt[],
  proven: Exclude<Verdict, "unknown">,
  table: Capability,
  onUnknown: OnUnknown,
  now: Millis,
): AfterEvidence {
  switch (delivery.state) {
    case "pending":
    case "needs_attention": {
      if (proven === "accepted") return { state: "sent" };
      const stillInDoubt = history.some((attempt) => attempt.verdict === "unknown");
      if (stillInDoubt || history.length === 0) return { state: "stay" };
      const next = nextStep(history, table, onUnknown, now);
      return delivery.state === "pending" && next.state === "pending" ? { state: "stay" } : next;
    }
    case "claimed":
      return proven === "accepted" ? { state: "sent" } : { state: "stay" };
    case "sent":
      return { state: "stay" };
    case "failed":
    case "cancelled":
    case "expired":
    case "suppressed":
      return proven === "accepted" ? { state: "contradiction" } : { state: "stay" };
    default:
      throw new Error(`no evidence rule for ${delivery.state satisfies never}`);
  }
}
