import { describe, expect, test } from "vitest";
import { afterCall, type Breaker, CLOSED, FIRST_PROBE_MS, LAST_PROBE_MS } from "../../src/ledger/breaker.ts";

const NOW = 1_000_000;
const open: Breaker = { openedAt: NOW, openUntil: NOW + FIRST_PROBE_MS, recentCalls: "" };

/** `1` failing, `0` good: calls claimed at NOW and answered at NOW. */
const on = (calls: string, breaker: Breaker = CLOSED): Breaker =>
  [...calls].reduce((held, call) => afterCall(held, { claimedAt: NOW, failing: call === "1" }, NOW), breaker);

describe("a closed breaker", () => {
  test.each([
    ["stays closed on nine failing calls", "1".repeat(9), false],
    ["opens on ten in a row, whatever came before", `${"0".repeat(50)}${"1".repeat(10)}`, true],
    ["stays closed while the provider answers one in ten", "1111111110".repeat(9), false],
    ["does not look at what comes after it has opened", `${"1".repeat(10)}${"0".repeat(50)}`, true],
  ])("%s", (_rule, calls, isOpen) => {
    expect(on(calls).openedAt).toBe(isOpen ? NOW : null);
  });

  test("keeps the failing calls of the latest run, and forgets them at the first good one", () => {
    expect(on("01011").recentCalls).toBe("11");
    expect(on("010110").recentCalls).toBe("");
  });

  test("that opens is open for two seconds, and forgets what opened it", () => {
    expect(on("1".repeat(10))).toEqual(open);
  });
});

describe("an open breaker", () => {
  const probe = { claimedAt: NOW + 1, failing: false };
  const later = NOW + 40_000;

  test("is closed by a probe whose answer is not failing", () => {
    expect(afterCall(open, probe, later)).toEqual(CLOSED);
  });

  test.each([
    [2_000, 2_000],
    [4_000, 4_000],
    [10_000, 10_000],
    [30_000, LAST_PROBE_MS],
    [3_600_000, LAST_PROBE_MS],
  ])("stays open by a probe that fails: open for %s ms, the next one comes %s ms later", (openMs, waitMs) => {
    const answered = NOW + openMs;
    expect(afterCall(open, { ...probe, failing: true }, answered)).toEqual({ ...open, openUntil: answered + waitMs });
  });

  test.each([true, false])("is not moved by a call of before it opened (failing: %s)", (failing) => {
    expect(afterCall(open, { claimedAt: NOW, failing }, later)).toBe(open);
  });
});
