import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { RecipientLimit } from "../../src/ledger/capability.ts";
import {
  afterCalls,
  callsLeft,
  forgettableAt,
  limitsOf,
  nextCallAt,
  type Pace,
  pacingOf,
  rateOf,
  turnOf,
} from "../../src/ledger/pacing.ts";
import { capability as telegram } from "../../src/providers/telegram/capability.ts";

const NOW = 1_700_000_000_000;

/** The most calls that any window of `ms` sees; the end of a window does not belong to it. */
function busiest(calls: readonly number[], ms: number): number {
  const sorted = calls.toSorted((a, b) => a - b);
  return Math.max(0, ...sorted.map((from, i) => sorted.slice(i).filter((at) => at < from + ms).length));
}

describe("which limits hold", () => {
  const limits = { ...telegram.limits, perSecond: 30 } as const;

  test("the provider's, unless the installation sets a rate; its recipients' limits stay", () => {
    expect(pacingOf(limits, null)).toEqual({ perSecond: 30, perRecipient: limits.perRecipient, source: "provider" });
    expect(pacingOf(limits, 5)).toEqual({ perSecond: 5, perRecipient: limits.perRecipient, source: "setting" });
  });

  test("off ends them all", () => {
    expect(pacingOf(limits, "off")).toEqual({ perSecond: null, perRecipient: [], source: "setting" });
  });

  test.each([
    ["12345", 1],
    ["-100123", 2],
    ["@channel", 2],
  ])("telegram's recipient %s has %i", (recipient, many) => {
    expect(limitsOf(telegram.limits.perRecipient, recipient)).toHaveLength(many);
  });
});

describe("a channel's rate", () => {
  test.each([
    [0.5, 1, 2_000],
    [2, 1, 500],
    [10, 1, 100],
    [11, 1, 100],
    [30, 3, 1000 / 27],
    [100, 10, 1000 / 90],
  ])("%d a second: %i at once, then one every %d ms", (perSecond, burst, everyMs) => {
    expect(rateOf(perSecond)).toEqual({ burst, everyMs });
  });

  test("its first calls come at once, the next when a token does", () => {
    const rate = rateOf(30);
    expect(callsLeft(rate, null, NOW)).toBe(3);
    const tat = afterCalls(rate, null, 3, NOW);
    expect(callsLeft(rate, tat, NOW)).toBe(0);
    const next = nextCallAt(rate, tat, NOW);
    expect(next - NOW).toBeCloseTo(rate.everyMs, 3);
    expect(callsLeft(rate, tat, next - 1)).toBe(0);
    expect(callsLeft(rate, tat, next + 0.01)).toBe(1);
  });

  test("idle time is not saved up beyond a burst", () => {
    const rate = rateOf(100);
    expect(callsLeft(rate, afterCalls(rate, null, 10, NOW), NOW + 3_600_000)).toBe(10);
  });

  test("no second ever sees more calls than it allows, whenever they are asked for", () => {
    fc.assert(
      fc.property(
        fc.oneof(fc.integer({ min: 1, max: 120 }), fc.double({ min: 0.5, max: 40, noNaN: true })),
        fc.array(fc.tuple(fc.double({ min: 0, max: 400, noNaN: true }), fc.integer({ min: 1, max: 20 })), {
          minLength: 1,
          maxLength: 150,
        }),
        (perSecond, asked) => {
          const rate = rateOf(perSecond);
          const calls: number[] = [];
          let now = NOW;
          let tat: number | null = null;
          for (const [pause, wanted] of asked) {
            now += pause;
            const made = Math.min(wanted, callsLeft(rate, tat, now));
            if (made > 0) tat = afterCalls(rate, tat, made, now);
            for (let i = 0; i < made; i += 1) calls.push(now);
          }
          // Fractions of a millisecond are not exact this far from zero.
          expect(busiest(calls, 999.9)).toBeLessThanOrEqual(Math.ceil(perSecond));
        },
      ),
      { numRuns: 300 },
    );
  });

  test("whoever takes every token when it comes has the whole of the refill", () => {
    const rate = rateOf(30);
    let tat: number | null = null;
    let calls = 0;
    for (let now = NOW; now < NOW + 10_000; now += 1) {
      const made = callsLeft(rate, tat, now);
      if (made > 0) tat = afterCalls(rate, tat, made, now);
      calls += made;
    }
    expect(calls).toBeGreaterThanOrEqual(270);
  });
});

describe("a recipient's pace", () => {
  const chat: readonly RecipientLimit[] = [{ recipients: "chat", calls: 1, perMs: 1_000 }];
  const none: Pace = { calls: [], turns: [] };
  const group = telegram.limits.perRecipient;

  test("the first of several is called, the k-th is held until its k-th turn", () => {
    let pace = none;
    const turns = Array.from({ length: 5 }, () => {
      const turn = turnOf(chat, pace, false, NOW);
      pace = turn.pace;
      return turn.at - NOW;
    });
    expect(turns).toEqual([0, 1_000, 2_000, 3_000, 4_000]);
  });

  test("whoever comes later queues behind the turns that were given away", () => {
    const { pace } = turnOf(chat, turnOf(chat, turnOf(chat, none, false, NOW).pace, false, NOW).pace, false, NOW);
    expect(turnOf(chat, pace, false, NOW + 1_500).at).toBe(NOW + 3_000);
    expect(turnOf(chat, pace, true, NOW + 1_500).at).toBe(NOW + 1_500);
  });

  test("a turn that was taken late puts the next one off, and no further", () => {
    const held = { calls: [NOW + 1_400], turns: [NOW + 1_000, NOW + 2_000, NOW + 3_000] };
    const put = turnOf(chat, held, true, NOW + 2_000);
    expect(put.at).toBe(NOW + 2_400);
    expect(put.pace).toEqual({ ...held, putOff: true });
  });

  test("of many whose turns are long past, one is called, one waits for a moment, the others get new turns", () => {
    let pace: Pace = { calls: [NOW - 90_000], turns: [NOW - 60_000] };
    const turns = Array.from({ length: 4 }, () => {
      const turn = turnOf(chat, pace, true, NOW);
      pace = turn.pace;
      return turn.at - NOW;
    });
    expect(turns).toEqual([0, 1_000, 1_000, 2_000]);
  });

  test("a group has twenty a minute beside one a second", () => {
    let pace = none;
    const turns = Array.from({ length: 22 }, () => {
      const turn = turnOf(group.slice(0), pace, false, NOW);
      pace = turn.pace;
      return turn.at - NOW;
    });
    expect(turns.slice(0, 3)).toEqual([0, 1_000, 2_000]);
    expect(turns.slice(19)).toEqual([19_000, 60_000, 61_000]);
  });

  test("is forgotten when its last turn is over", () => {
    expect(forgettableAt(group, { calls: [NOW], turns: [NOW, NOW + 5_000] })).toBe(NOW + 65_000);
  });

  const steps = fc.array(
    fc.record({ pause: fc.integer({ min: 0, max: 4_000 }), arrive: fc.integer({ min: 0, max: 12 }) }),
    { minLength: 1, maxLength: 60 },
  );

  test("no window sees more claims than its limit, whatever is due when, however late turns are taken; and every delivery is called", () => {
    fc.assert(
      fc.property(steps, fc.constantFrom(chat, group), (given, limits) => {
        const { calls, holds, arrived } = live(limits, given);
        for (const limit of limits) expect(busiest(calls, limit.perMs)).toBeLessThanOrEqual(limit.calls);
        expect(calls).toHaveLength(arrived);
        // Nobody is held again and again: a few times each, however many there are.
        expect(holds).toBeLessThanOrEqual(arrived * 6);
      }),
      { numRuns: 40 },
    );
  });

  test("of 5,000 for one chat each is held once or twice, and one is called a second", () => {
    const { calls, holds } = live(chat, [{ pause: 0, arrive: 5_000 }], 250);
    expect(calls).toHaveLength(5_000);
    expect((calls.at(-1) ?? 0) - NOW).toBeLessThan(5_000 * 1_250 + 1_000);
    expect(holds).toBeLessThan(10_000);
  });
});

interface Step {
  readonly pause: number;
  readonly arrive: number;
}

/** Deliveries for one recipient arrive, and are looked at whenever a step is made; at the end until all are called. */
function live(limits: readonly RecipientLimit[], steps: readonly Step[], pollMs = 700) {
  let pace: Pace = { calls: [], turns: [] };
  let now = NOW;
  let holds = 0;
  let arrived = 0;
  const calls: number[] = [];
  let waiting: { until: number; hasTurn: boolean }[] = [];

  function step({ pause, arrive }: Step): void {
    now += pause;
    arrived += arrive;
    for (let i = 0; i < arrive; i += 1) waiting.push({ until: now, hasTurn: false });
    pace = { calls: pace.calls, turns: pace.turns };
    const due = waiting.filter(({ until }) => until <= now);
    waiting = waiting.filter(({ until }) => until > now);
    for (const { hasTurn } of due) {
      const turn = turnOf(limits, pace, hasTurn, now);
      pace = turn.pace;
      if (turn.at <= now) calls.push(now);
      else waiting.push({ until: turn.at, hasTurn: true });
      holds += turn.at > now ? 1 : 0;
    }
  }

  for (const one of steps) step(one);
  while (waiting.length > 0) step({ pause: pollMs, arrive: 0 });
  return { calls, holds, arrived };
}
