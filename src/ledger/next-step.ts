import assert from "node:assert";
import { type Capability, repeatMaySettle } from "./capability.ts";
import type { DeliveryId, LadderKey, Millis, OnUnknown, SettledAttempt } from "./delivery.ts";

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
  history.filter((attempt) => attempt.counted && attempt.ladder === history.at(-1)?.ladder).length < MAX_ATTEMPTS;

const underKey = (history: readonly SettledAttempt[], generation: number): readonly SettledAttempt[] =>
  history.filter((attempt) => attempt.generation === generation);

/**
 * Until when (exclusive) an attempt under the key of the latest attempt can add no effect to the ones before it under that
 * key; null when no repeat is ever safe. The window counts from the key's first attempt, whatever ladder it was on.
 */
export function sameKeyUntil(history: readonly SettledAttempt[], table: Capability): Millis | null {
  const last = history.at(-1);
  if (!last) return null;
  const sameKey = underKey(history, last.generation);
  const { idempotency } = table;
  if (idempotency.by !== "key" || !sameKey.every((a) => a.verdict !== "unknown" || repeatMaySettle(table, a.reason))) {
    return null;
  }
  const first = sameKey[0];
  assert(first, "the latest attempt is under its own key");
  return first.claimedAt + idempotency.windowMs - idempotency.marginMs;
}

/** The ladder that an attempt is made on: its number, from 1, and how a person began it. */
export interface Ladder {
  readonly number: number;
  readonly key: LadderKey;
}

/**
 * The key for an attempt that is about to be claimed at `now` (rules 4, 5 and 7). A fresh key is minted only when every
 * attempt under the earlier key is proven without effect, when the producer accepts duplicates (`onUnknown: "resend"`) and
 * no repeat under the old key is safe, or when a person began a ladder so. `history` holds every settled attempt.
 */
export function chooseKey(
  history: readonly SettledAttempt[],
  table: Capability,
  onUnknown: OnUnknown,
  now: Millis,
  ladder: Ladder,
): KeyChoice {
  const last = history.at(-1);
  if (!last) return { generation: 1, repeats: false };
  const fresh: KeyChoice = { generation: last.generation + 1, repeats: false };
  const begins = last.ladder < ladder.number;
  if (begins && ladder.key === "fresh") return fresh;
  if (!begins && !isInDoubt(underKey(history, last.generation))) return fresh;
  const until = sameKeyUntil(history, table);
  if (until !== null && now < until) return { generation: last.generation, repeats: true };
  if (!begins && onUnknown === "resend") return fresh;
  return { attention: until === null ? "repeat_unsafe" : "window_closed" };
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
  const ladder = { number: history.at(-1)?.ladder ?? 1, key: "fresh" } as const;
  const key = chooseKey(history, table, onUnknown, nextAttemptAt, ladder);
  if ("generation" in key) return { state: "pending", nextAttemptAt };
  return otherwise.state === "needs_attention" ? otherwise : { state: "needs_attention", reason: key.attention };
}

/**
 * What happens after an attempt settled. Pure; rules 1–7 of the design. `history` holds every attempt, in order, all
 * settled, the last one on the current ladder (doubt outlives a ladder, the four attempts do not); `now` is the moment of
 * the verdict. Times in epoch milliseconds.
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
