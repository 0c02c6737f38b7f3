import fc from "fast-check";
import { expect, test } from "vitest";
import { ACTIONS, type OnUnknown } from "../../src/ledger/delivery.ts";
import { type Outcome, ownOutcome, VERDICTS } from "../../src/ledger/verdict.ts";
import { LEASE_MS, Life } from "./machine.ts";
import { keyed, keyless } from "./tables.ts";

const outcome: fc.Arbitrary<Outcome> = fc
  .record({
    verdict: fc.constantFrom(...VERDICTS),
    reason: fc.constantFrom("timeout", "rate_limited", "payload_mismatch", "server_error"),
    scope: fc.constantFrom("delivery", "delivery", "delivery", "channel"),
    retryAfterS: fc.option(fc.integer({ min: 0, max: 200_000 })),
    messageId: fc.constantFrom(null, "m-1", "m-2"),
  })
  .map(({ verdict, reason, scope, retryAfterS, messageId }) => ({
    ...ownOutcome("unknown", reason),
    verdict,
    scope: verdict === "refused" || verdict === "deferred" ? (scope as Outcome["scope"]) : "delivery",
    retryAfterS: verdict === "deferred" ? retryAfterS : null,
    providerMessageId: verdict === "accepted" ? messageId : null,
  }));

const action = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({ do: fc.constant("wait" as const), ms: fc.integer({ min: 1, max: 3 * 60_000 }) }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant("wait" as const), ms: fc.integer({ min: 1, max: 30 * 3_600_000 }) }),
  },
  { weight: 5, arbitrary: fc.record({ do: fc.constant("claim" as const), worker: fc.constantFrom("a", "b") }) },
  { weight: 5, arbitrary: fc.record({ do: fc.constant("answer" as const), outcome }) },
  { weight: 2, arbitrary: fc.constant({ do: "sweep" as const }) },
  { weight: 1, arbitrary: fc.constant({ do: "never called" as const }) },
  // A provider's report, by a webhook or when asked, which may be about another message.
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant("report" as const), messageId: fc.constantFrom(null, "m-1", "m-2") }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant("resolve" as const),
      action: fc.constantFrom(...ACTIONS),
      acknowledged: fc.boolean(),
    }),
  },
  // Evidence about any attempt, settled or open: a late answer.
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constant("evidence" as const), number: fc.integer({ min: 1, max: 6 }), outcome }),
  },
);
type Action = typeof action extends fc.Arbitrary<infer A> ? A : never;

function perform(life: Life, step: Action): void {
  const open = life.open;
  switch (step.do) {
    case "wait":
      life.now += step.ms;
      return;
    case "claim":
      life.claim(step.worker);
      return;
    case "answer":
      if (open) life.settle(open.number, step.outcome, { source: "answer", by: open.claimedBy });
      return;
    case "sweep":
      // Also before the lease has run out: then it must change nothing.
      if (open) life.settle(open.number, ownOutcome("unknown", "lease_expired"), { source: "lease" });
      return;
    case "never called":
      if (open)
        life.settle(open.number, ownOutcome("deferred", "never_called"), {
          source: "never_called",
          by: open.claimedBy,
        });
      return;
    case "report":
      life.report(step.messageId);
      return;
    case "resolve":
      life.resolve(step.action, step.acknowledged);
      return;
    case "evidence":
      life.settle(step.number, step.outcome, { source: "answer", by: "evidence" });
      return;
    default:
      throw new Error(step satisfies never);
  }
}

const RESTING = ["sent", "failed", "needs_attention", "cancelled", "expired", "suppressed"];

/** Faults are over: workers come back, time passes, the provider answers `last` to everything. */
function runToRest(life: Life, last: Outcome): void {
  for (let rounds = 0; !RESTING.includes(life.state); rounds += 1) {
    expect(rounds, "every history ends").toBeLessThan(20);
    life.now = Math.max(life.now, life.nextAttemptAt) + LEASE_MS;
    if (life.open) perform(life, { do: "sweep" });
    life.claim("a");
    if (life.open) perform(life, { do: "answer", outcome: last });
  }
  life.check();
}

const lives = fc.record({
  table: fc.constantFrom(keyed, keyless),
  onUnknown: fc.constantFrom<OnUnknown>("attention", "resend"),
  expiresAt: fc.option(fc.integer({ min: 1, max: 6 * 60_000 })),
  actions: fc.array(action, { maxLength: 60 }),
  last: outcome.filter(({ scope }) => scope === "delivery"),
});

test("whatever happens, in whatever order, the design's rules hold, and every history ends in rest", () => {
  fc.assert(
    fc.property(lives, ({ table, onUnknown, expiresAt, actions, last }) => {
      const life = new Life(table, onUnknown);
      life.expiresAt = expiresAt;
      for (const step of actions) {
        perform(life, step);
        life.check();
      }
      runToRest(life, last);
    }),
    { numRuns: 5_000 },
  );
});

test("a sweep before the lease has run out changes nothing", () => {
  const life = new Life(keyless, "attention");
  life.claim("a");
  life.now += LEASE_MS - 1;
  perform(life, { do: "sweep" });
  expect(life.state).toBe("claimed");
  life.now += 1;
  perform(life, { do: "sweep" });
  expect(life.state).toBe("needs_attention");
});

test("an answer that comes after the lease ran out is evidence: the delivery leaves needs-attention by itself", () => {
  const life = new Life(keyless, "attention");
  life.claim("a");
  life.now += LEASE_MS;
  perform(life, { do: "sweep" });
  life.settle(1, { ...ownOutcome("unknown", "ok"), verdict: "accepted" }, { source: "answer", by: "a" });
  expect(life.state).toBe("sent");
});

test("a late refusal proves that nothing was sent", () => {
  const life = new Life(keyless, "attention");
  life.claim("a");
  life.now += LEASE_MS;
  perform(life, { do: "sweep" });
  life.settle(1, ownOutcome("refused", "bad_request"), { source: "answer", by: "a" });
  expect([life.state, life.failure]).toEqual(["failed", "refused"]);
});

test("a claim is given back only by the worker that holds it", () => {
  const life = new Life(keyless, "attention");
  life.claim("a");
  life.settle(1, ownOutcome("deferred", "never_called"), { source: "never_called", by: "b" });
  expect(life.state).toBe("claimed");
});
