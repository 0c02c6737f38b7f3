import type { Rule } from "./deliveries.ts";
import type { AttemptRow } from "./history.ts";
import type { Story } from "./story.ts";

const RUNG_MS = 60_000;
const MOST = 4;

const NO_EFFECT = ["refused", "deferred"];
const pairs = <T>(list: readonly T[]): (readonly [T, T])[] =>
  list.slice(1).map((after, index) => [list[index] as T, after]);

/** Attempts are numbered without a gap, on ladders and under keys that only go up, one step at a time. */
export function* inOrder({ delivery, attempts }: Story): Iterable<string> {
  if (attempts.length !== delivery.attempt_count)
    yield `${attempts.length} attempts, and it counts ${delivery.attempt_count}`;
  for (const [index, attempt] of attempts.entries()) {
    const { number, generation, idempotency_key: key } = attempt;
    if (number !== index + 1) yield `attempt ${number} stands in place ${index + 1}`;
    if (key !== `${delivery.id}.${generation}`)
      yield `attempt ${number} has the key ${key} in generation ${generation}`;
    if (attempt.settled_at === null || attempt.verdict === null)
      yield `attempt ${number} is open, with all faults over`;
  }
  for (const [a, b] of pairs(attempts)) {
    if (b.generation !== a.generation && b.generation !== a.generation + 1)
      yield `generation ${b.generation} after ${a.generation}`;
    if (b.ladder < a.ladder) yield `ladder ${b.ladder} after ${a.ladder}`;
  }
}

/** Four attempts a ladder. */
export function* fourAtMost({ attempts }: Story): Iterable<string> {
  for (const [ladder, made] of Map.groupBy(attempts, (attempt) => attempt.ladder)) {
    const counted = made.filter((attempt) => attempt.counted).length;
    if (counted > MOST) yield `${counted} attempts on ladder ${ladder}`;
  }
}

/** A further attempt waits for its rung, and is planned exactly for it: 60 s, or the first multiple not before the provider's wish. */
export function* onTheRungs({ attempts, events }: Story): Iterable<string> {
  for (const [a, b] of pairs(attempts)) {
    if (a.ladder !== b.ladder || a.settled_at === null) continue;
    if (b.claimed_at < a.settled_at + rungMs(a))
      yield `attempt ${b.number} was made ${b.claimed_at - a.settled_at} ms after the verdict before it`;
  }
  for (const { type, at, data } of events) {
    const { next_attempt_at: next, attempt } = data;
    if (type !== "delivery.pending" || typeof next !== "string") continue;
    const planned = Date.parse(next) - at;
    const wish = attempts.find(({ number }) => number === attempt);
    if (planned % RUNG_MS !== 0 || planned <= 0 || (wish && wish.evidence_at === null && planned !== rungMs(wish))) {
      yield `after attempt ${attempt} the next one was planned in ${planned} ms`;
    }
  }
}

/** What evidence replaced no longer says what the first verdict's wish was. */
const rungMs = ({ retry_after_s: wish, evidence_at: replaced }: AttemptRow): number =>
  RUNG_MS * Math.max(1, replaced === null ? Math.ceil((wish ?? 0) / 60) : 1);

/** A fresh key only when nothing under the key before it can have had an effect, or somebody accepted that. */
export function* freshKeysAreProven({ posts, attempts, items }: Story): Iterable<string> {
  const accepted = items.filter(({ resolution }) => resolution === "resend").length;
  let used = 0;
  for (const [a, b] of pairs(attempts)) {
    if (b.generation === a.generation) continue;
    const before = attempts.filter((attempt) => attempt.generation === a.generation);
    const isProven = before.every(
      (one) => NO_EFFECT.includes(one.verdict ?? "") && !(one.evidence_at !== null && one.evidence_at > b.claimed_at),
    );
    if (isProven || posts[0]?.onUnknown === "resend") continue;
    used += 1;
    if (b.ladder === a.ladder || used > accepted)
      yield `attempt ${b.number} has a fresh key, and attempt ${a.number} is ${a.verdict} (${a.reason})`;
  }
}

/** A key is repeated only where the provider recognises it, while it remembers it, and with the same bytes. */
export function* sameKeysAreSafe({ guarantee, attempts, calls }: Story): Iterable<string> {
  const window = guarantee.deduplicates;
  for (const [generation, made] of Map.groupBy(attempts, (attempt) => attempt.generation)) {
    if (made.length > 1 && window === null)
      yield `${made.length} attempts under generation ${generation}, and the provider recognises none`;
  }
  for (const [key, made] of Map.groupBy(calls, (call) => call.key)) {
    const [first] = made;
    if (key === null || !first) continue;
    const last = made.at(-1) ?? first;
    if (window !== null && last.at - first.at >= window.windowMs)
      yield `the key ${key} was repeated after ${last.at - first.at} ms`;
    if (made.some(({ body }) => body !== first.body)) yield `different bytes under the key ${key}`;
  }
}

/** No provider was called without a claim, and each claim was good for one call. */
export function* claimedBeforeCalled({ attempts, calls }: Story): Iterable<string> {
  const able = attempts.filter(({ reason }) => reason !== "never_called");
  if (calls.length > able.length) yield `${calls.length} calls, and ${able.length} claims for them`;
  for (const [key, made] of Map.groupBy(calls, (call) => call.key)) {
    if (key === null) continue;
    const claims = able.filter((attempt) => attempt.idempotency_key === key).length;
    if (made.length > claims) yield `${made.length} calls under the key ${key}, and ${claims} claims for them`;
  }
}

/** A verdict is no more than what happened: acceptances have an effect, refusals and deferrals have none. */
export function* verdictsAreTrue(story: Story): Iterable<string> {
  const { guarantee, attempts, effects } = story;
  const groups =
    guarantee.deduplicates === null
      ? [attempts]
      : [...Map.groupBy(attempts, ({ idempotency_key: key }) => key).values()];
  for (const group of groups) {
    const keys = new Set(group.map(({ idempotency_key: key }) => key));
    const made =
      guarantee.deduplicates === null
        ? effects.length
        : effects.filter(({ key }) => key !== null && keys.has(key)).length;
    const accepted = group.filter(({ verdict }) => verdict === "accepted").length;
    const possible = group.filter(({ verdict }) => !NO_EFFECT.includes(verdict ?? "")).length;
    const about = guarantee.deduplicates === null ? "" : ` under ${[...keys][0]}`;
    if (accepted > 0 && made === 0) yield `${accepted} attempts are accepted, and no message was made${about}`;
    if (guarantee.deduplicates === null && accepted > made)
      yield `${accepted} attempts are accepted, and ${made} messages were made`;
    if (made > possible) yield `${made} messages were made, and ${possible} attempts can have made one${about}`;
  }
}

export const ATTEMPT_RULES: readonly Rule[] = [
  inOrder,
  fourAtMost,
  onTheRungs,
  freshKeysAreProven,
  sameKeysAreSafe,
  claimedBeforeCalled,
  verdictsAreTrue,
];
