import assert from "node:assert";
import { type Capability, repeatMaySettle } from "./capability.ts";
import type { DeliveryId, Millis, OnUnknown, SettledAttempt } from "./delivery.ts";

/** Design, rule 6: four attempts at most, on 60-second rungs counted from the moment of the verdict. */
export const MAX_ATTEMPTS = 4;
export const RUNG_MS = 60_000;

/** What happens to a delivery after its latest attempt settled. */
export type NextStep =
  | { readonly state: "sent" }
  | { readonly state: "failed"; readonly failure: "refused" | "exhausted" }
  | { readonly state: "pending"; readonly nextAttemptAt: Millis }
  | { readonly state: "needs_attention"; readonly reason: string };

/** Under which key the next attempt goes, or why it must not be made. */
export type KeyChoice =
  | { readonly generation: number; readonly repeats: boolean }
  | { readonly attention: "window_closed" | "repeat_unsafe" };

/** The idempotency key: unique across environments that share a provider account, and reveals nothing. ASCII, ≤ 256. */
export const idempotencyKey = (id: DeliveryId, generation: number): string => `${id}.${generation}`;

/** The first rung after `now` that is not before the wait that the provider asked for (seconds). */
export function nextRung(now: Millis, retryAfterS: number | null): Millis {
  const rungs = Math.max(1, Math.ceil(((retryAfterS ?? 0) * 1000) / RUNG_MS));
  return now + rungs * RUNG_MS;
}

const isInDoubt = (history: readonly SettledAttempt[]): boolean =>
  history.some((attempt) => attempt.verdict === "unknown");

const attemptsLeft = (history: readonly SettledAttempt[]): boolean =>
  history.filter((attempt) => attempt.counted).length < MAX_ATTEMPTS;

const underKey = (history: readonly SettledAttempt[], generation: number): readonly SettledAttempt[] =>
  history.filter((attempt) => attempt.generation === generation);

/** May an attempt be made at `at` under the key of the latest attempt, one of whose attempts is in doubt? */
function repeatIsSafe(history: readonly SettledAttempt[], table: Capability, at: Millis): "safe" | KeyChoice {
  const last = history.at(-1);
  assert(last, "a repeat needs an attempt to repeat");
  const sameKey = underKey(history, last.generation);
  const { idempotency } = table;
  if (idempotency.by !== "key" || !sameKey.every((a) => a.verdict !== "unknown" || repeatMaySettle(table, a.reason))) {
    return { attention: "repeat_unsafe" };
  }
  const first = sameKey[0];
  assert(first, "the latest attempt is under its own key");
  return at < first.claimedAt + idempotency.windowMs - idempotency.marginMs ? "safe" : { attention: "window_closed" };
}

/**
 * The key for an attempt that is about to be claimed at `now` (rules 4, 5 and 7). A fresh key is minted only when every
 * attempt under the earlier key is proven without effect, or when the producer accepts duplicates (`onUnknown: "resend"`)
 * and no repeat under the old key is safe.
 */
export function chooseKey(
  history: readonly SettledAttempt[],
  table: Capability,
  onUnknown: OnUnknown,
  now: Millis,
  firstGeneration: number,
): KeyChoice {
  const last = history.at(-1);
  if (!last) return { generation: firstGeneration, repeats: false };
  if (!isInDoubt(underKey(history, last.generation))) return { generation: last.generation + 1, repeats: false };
  const repeat = repeatIsSafe(history, table, now);
  if (repeat === "safe") return { generation: last.generation, repeats: true };
  return onUnknown === "resend" ? { generation: last.generation + 1, repeats: false } : repeat;
}

/** A further attempt at the first rung that allows one, or the reason why there is none. */
function climb(
  history: readonly SettledAttempt[],
  table: Capability,
  onUnknown: OnUnknown,
  now: Millis,
  otherwise: NextStep,
): NextStep {
  if (!attemptsLeft(history)) return otherwise;
  const nextAttemptAt = nextRung(now, history.at(-1)?.retryAfterS ?? null);
  const key = chooseKey(history, table, onUnknown, nextAttemptAt, 1);
  if ("generation" in key) return { state: "pending", nextAttemptAt };
  return otherwise.state === "needs_attention" ? otherwise : { state: "needs_attention", reason: key.attention };
}

/**
 * What happens after an attempt settled. Pure; rules 1–7 of the design. `history` holds every attempt of the current
 * ladder, in order, all settled; `now` is the moment of the verdict. Times in epoch milliseconds.
 */
export function nextStep(
  history: readonly SettledAttempt[],
  table: Capability,
  onUnknown: OnUnknown,
  now: Millis,
): NextStep {
  const last = history.at(-1);
  assert(last, "a next step needs a settled attempt");
  const inDoubt = isInDoubt(history);
  if (history.some((attempt) => attempt.verdict === "accepted")) return { state: "sent" };
  switch (last.verdict) {
    case "accepted":
      return { state: "sent" };
    case "refused":
      if (!last.counted) return climb(history, table, onUnknown, now, { state: "failed", failure: "exhausted" });
      return inDoubt
        ? { state: "needs_attention", reason: "refused_after_unknown" }
        : { state: "failed", failure: "refused" };
    case "deferred": {
      const spent: NextStep = inDoubt
        ? { state: "needs_attention", reason: "exhausted_in_doubt" }
        : { state: "failed", failure: "exhausted" };
      return climb(history, table, onUnknown, now, spent);
    }
    case "unknown":
      return climb(history, table, onUnknown, now, { state: "needs_attention", reason: last.reason });
    default:
      throw new Error(`no next step for ${last.verdict satisfies never}`);
  }
}
