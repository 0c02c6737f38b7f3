import { describe, expect, test } from "vitest";
import type { DeliveryId } from "../../src/ledger/delivery.ts";
import { chooseKey, idempotencyKey, nextRung, nextStep, RUNG_MS } from "../../src/ledger/next-step.ts";
import { attempt, keyed, keyless } from "./tables.ts";

const NOW = 1_000_000;
const HOUR = 3_600_000;
const FIRST = { number: 1, key: "fresh" } as const;
const nextRungFromNow = { state: "pending", nextAttemptAt: NOW + RUNG_MS };

describe("rule 1", () => {
  test.each([
    [[attempt(1, "accepted")]],
    [[attempt(1, "unknown"), attempt(2, "accepted")]],
    [[attempt(1, "accepted"), attempt(2, "unknown")]],
    [[attempt(1, "accepted"), attempt(2, "refused")]],
  ])("accepted is sent, whatever came before or after: %#", (history) => {
    expect(nextStep(history, keyed, "attention", NOW)).toEqual({ state: "sent" });
  });
});

describe("rule 2", () => {
  test("refused is failed", () => {
    expect(nextStep([attempt(1, "refused")], keyed, "attention", NOW)).toEqual({ state: "failed", failure: "refused" });
  });
  test("refused after a deferral is failed", () => {
    const history = [attempt(1, "deferred"), attempt(2, "refused", { generation: 2 })];
    expect(nextStep(history, keyed, "attention", NOW)).toEqual({ state: "failed", failure: "refused" });
  });
  test("refused while an earlier attempt is unknown goes to needs-attention", () => {
    const history = [attempt(1, "unknown"), attempt(2, "refused")];
    expect(nextStep(history, keyed, "attention", NOW)).toEqual({
      state: "needs_attention",
      reason: "refused_after_unknown",
    });
  });
  test("a refusal of the whole channel waits for the next rung and burns nothing", () => {
    const many = Array.from({ length: 9 }, (_, i) => attempt(i + 1, "refused", { generation: i + 1, counted: false }));
    expect(nextStep(many, keyed, "attention", NOW)).toEqual(nextRungFromNow);
  });
});

describe("rule 3", () => {
  test("deferred waits for the next rung", () => {
    expect(nextStep([attempt(1, "deferred")], keyless, "attention", NOW)).toEqual(nextRungFromNow);
  });
  test("the fourth deferral is failed as exhausted", () => {
    const four = [1, 2, 3, 4].map((n) => attempt(n, "deferred", { generation: n }));
    expect(nextStep(four, keyless, "attention", NOW)).toEqual({ state: "failed", failure: "exhausted" });
  });
  test("the fourth attempt deferred while one is unknown goes to needs-attention", () => {
    const four = [attempt(1, "unknown"), attempt(2, "deferred"), attempt(3, "deferred"), attempt(4, "deferred")];
    expect(nextStep(four, keyed, "attention", NOW)).toEqual({ state: "needs_attention", reason: "exhausted_in_doubt" });
  });
  test("attempts that concerned the channel do not count against the four", () => {
    const history = [
      ...[1, 2, 3].map((n) => attempt(n, "deferred", { generation: n })),
      attempt(4, "deferred", { generation: 4, counted: false }),
    ];
    expect(nextStep(history, keyless, "attention", NOW)).toEqual(nextRungFromNow);
  });
});

describe("rule 4", () => {
  test("unknown at a provider without a key goes to needs-attention at once, with the attempt's reason", () => {
    const history = [attempt(1, "unknown", { reason: "timeout" })];
    expect(nextStep(history, keyless, "attention", NOW)).toEqual({ state: "needs_attention", reason: "timeout" });
  });
  test("unknown at a provider with a key is repeated on the next rung", () => {
    expect(nextStep([attempt(1, "unknown", { claimedAt: NOW })], keyed, "attention", NOW)).toEqual(nextRungFromNow);
  });
  test("no repeat when the key's window, less the margin, will be closed at the next rung", () => {
    const lastMoment = 23 * HOUR - RUNG_MS;
    const history = [attempt(1, "unknown")];
    expect(nextStep(history, keyed, "attention", lastMoment - 1)).toMatchObject({ state: "pending" });
    expect(nextStep(history, keyed, "attention", lastMoment)).toMatchObject({ state: "needs_attention" });
  });
  test("the window is counted from the first attempt under the key", () => {
    const history = [attempt(1, "unknown", { claimedAt: 0 }), attempt(2, "unknown", { claimedAt: 22 * HOUR })];
    expect(nextStep(history, keyed, "attention", 23 * HOUR)).toMatchObject({ state: "needs_attention" });
  });
  test("an unknown that no repeat can settle is not repeated", () => {
    const history = [attempt(1, "unknown", { reason: "payload_mismatch" })];
    expect(nextStep(history, keyed, "attention", NOW)).toEqual({
      state: "needs_attention",
      reason: "payload_mismatch",
    });
  });
  test("the fourth unknown goes to needs-attention", () => {
    const four = [1, 2, 3, 4].map((n) => attempt(n, "unknown", { claimedAt: NOW }));
    expect(nextStep(four, keyed, "attention", NOW)).toMatchObject({ state: "needs_attention" });
  });
});

describe("rule 5", () => {
  test("the first attempt takes the first key", () => {
    expect(chooseKey([], keyed, "attention", NOW, FIRST)).toEqual({ generation: 1, repeats: false });
  });
  test.each(["refused", "deferred"] as const)("a fresh key after %s, which proves that nothing happened", (verdict) => {
    expect(chooseKey([attempt(1, verdict)], keyed, "attention", NOW, FIRST)).toEqual({ generation: 2, repeats: false });
  });
  test("the same key after unknown", () => {
    expect(chooseKey([attempt(1, "unknown")], keyed, "attention", NOW, FIRST)).toEqual({
      generation: 1,
      repeats: true,
    });
  });
  test("the same key as long as any attempt under it is unknown", () => {
    const history = [attempt(1, "unknown"), attempt(2, "deferred")];
    expect(chooseKey(history, keyed, "attention", NOW, FIRST)).toEqual({ generation: 1, repeats: true });
  });
  test("a rung that is reached after the window closed makes no attempt", () => {
    expect(chooseKey([attempt(1, "unknown")], keyed, "attention", 23 * HOUR, FIRST)).toEqual({
      attention: "window_closed",
    });
  });
  test("an idempotency key is printable ASCII of at most 256 characters, and tells the delivery and the generation", () => {
    const key = idempotencyKey("0190a6e0-0000-7000-8000-000000000000" as DeliveryId, 2);
    expect(key).toBe("0190a6e0-0000-7000-8000-000000000000.2");
    expect(key).toMatch(/^[\x21-\x7e]{1,256}$/);
  });
});

describe("rule 6", () => {
  test.each([
    [null, 1],
    [0, 1],
    [1, 1],
    [60, 1],
    [60.5, 2],
    [90, 2],
    [120, 2],
    [10_072, 168],
  ])("a provider that asks for %s s gets the rung %i", (retryAfterS, rung) => {
    expect(nextRung(NOW, retryAfterS)).toBe(NOW + rung * RUNG_MS);
  });
});

describe("rule 7: on_unknown resend", () => {
  test("an unknown that no key protects is sent again on the next rung, under a fresh key", () => {
    const history = [attempt(1, "unknown")];
    expect(nextStep(history, keyless, "resend", NOW)).toEqual(nextRungFromNow);
    expect(chooseKey(history, keyless, "resend", NOW + RUNG_MS, FIRST)).toEqual({ generation: 2, repeats: false });
  });
  test("where a repeat is safe, the key stays", () => {
    expect(chooseKey([attempt(1, "unknown")], keyed, "resend", NOW, FIRST)).toEqual({ generation: 1, repeats: true });
  });
  test("a fresh key when the window has closed", () => {
    expect(chooseKey([attempt(1, "unknown")], keyed, "resend", 23 * HOUR, FIRST)).toEqual({
      generation: 2,
      repeats: false,
    });
  });
  test("only the ladder's end leads to needs-attention", () => {
    const four = [1, 2, 3, 4].map((n) => attempt(n, "unknown", { generation: n }));
    expect(nextStep(four.slice(0, 3), keyless, "resend", NOW)).toEqual(nextRungFromNow);
    expect(nextStep(four, keyless, "resend", NOW)).toMatchObject({ state: "needs_attention" });
  });
});
