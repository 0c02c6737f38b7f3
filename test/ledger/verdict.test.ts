import { expect, test } from "vitest";
import { counts, ownOutcome, saneRetryAfterS } from "../../src/ledger/verdict.ts";

test.each<[unknown, number | null]>([
  [60, 60],
  ["60", 60],
  [" 1.5 ", 1.5],
  [0, 0],
  [10_072, 10_072],
  [-5, null],
  ["-5", null],
  ["abc", null],
  ["", null],
  [null, null],
  [undefined, null],
  [Number.NaN, null],
  [Number.POSITIVE_INFINITY, null],
  [1e12, null],
  ["Wed, 21 Oct 2026 07:28:00 GMT", null],
])("a provider's wait %j is taken as %j; an absurd one falls back to the ladder's rung", (value, seconds) => {
  expect(saneRetryAfterS(value)).toBe(seconds);
});

test("an attempt that concerned the channel, or that was never made, does not count", () => {
  expect(counts(ownOutcome("unknown", "lease_expired"))).toBe(true);
  expect(counts(ownOutcome("deferred", "never_called"))).toBe(false);
  expect(counts({ ...ownOutcome("refused", "credentials_refused"), scope: "channel" })).toBe(false);
});
