import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type AttemptNumber, RECEIPT_STATUSES, type ReceiptStatus } from "../../src/ledger/delivery.ts";
import { attach, type Witnessed, weigh } from "../../src/ledger/evidence.ts";
import { type Reported, standing } from "../../src/ledger/receipt.ts";

const fold = (reports: readonly Reported[]) =>
  reports.reduce<Reported | null>((held, next) => standing(held, next), null);
const at = (status: ReceiptStatus, time: number): Reported => ({ status, at: time });

describe("which report stands", () => {
  test.each<[ReceiptStatus, ReceiptStatus]>([
    ["delivered", "delayed"],
    ["opened", "delivered"],
    ["clicked", "opened"],
    ["bounced", "delivered"],
    ["bounced", "clicked"],
    ["failed", "delivered"],
    ["suppressed", "delivered"],
    ["complained", "delivered"],
    ["complained", "bounced"],
  ])("%s outweighs %s, whichever came first and whatever the times", (heavy, light) => {
    for (const times of [
      [1, 2],
      [2, 1],
      [1, 1],
    ] as const) {
      expect(fold([at(heavy, times[0]), at(light, times[1])])?.status).toBe(heavy);
      expect(fold([at(light, times[0]), at(heavy, times[1])])?.status).toBe(heavy);
    }
  });

  test("of two that weigh the same, the later one stands", () => {
    expect(fold([at("bounced", 2), at("failed", 1)])).toEqual(at("bounced", 2));
    expect(fold([at("bounced", 1), at("failed", 2)])).toEqual(at("failed", 2));
  });

  test("the result is the same in every order", () => {
    const report = fc.record({ status: fc.constantFrom(...RECEIPT_STATUSES), at: fc.integer({ min: 0, max: 3 }) });
    fc.assert(
      fc.property(fc.array(report, { minLength: 1, maxLength: 8 }), fc.nat(), (reports, seed) => {
        const shuffled = reports
          .map((one, index) => ({ one, key: Math.imul(index + 1, seed | 1) >>> 3 }))
          .toSorted((a, b) => a.key - b.key)
          .map(({ one }) => one);
        expect(fold(shuffled)).toEqual(fold(reports));
      }),
    );
  });
});

const to = (number: number) => ({ to: "attempt", number: number as AttemptNumber }) as const;
const attempt = (number: number, verdict: Witnessed["verdict"], providerMessageId: string | null = null) =>
  ({ number, verdict, providerMessageId }) as Witnessed;

describe("which attempt a report of the provider's belongs to", () => {
  test.each<[string, Witnessed[], string | null, ReturnType<typeof attach>]>([
    ["one that has its id: nothing new", [attempt(1, "accepted", "m")], "m", { to: "nothing" }],
    ["an acceptance, when it names no id: nothing new", [attempt(1, "accepted", "m")], null, { to: "nothing" }],
    ["an acceptance whose id was lost", [attempt(1, "accepted")], "m", to(1)],
    ["the first in doubt", [attempt(1, "deferred"), attempt(2, "unknown")], "m", to(2)],
    ["the one in doubt, also while another is open", [attempt(1, "unknown"), attempt(2, null)], "m", to(1)],
    ["an open attempt: it waits", [attempt(1, null)], "m", { to: "open_attempt" }],
    [
      "none, when another id is held",
      [attempt(1, "accepted", "n")],
      "m",
      { to: "contradiction", why: "two_message_ids" },
    ],
    ["none, when all are refused", [attempt(1, "refused")], "m", { to: "contradiction", why: "nothing_was_accepted" }],
    ["none, when none was made", [], "m", { to: "contradiction", why: "nothing_was_accepted" }],
  ])("%s", (_, attempts, id, attachment) => expect(attach(attempts, id)).toEqual(attachment));
});

describe("what new evidence is to an attempt that has a verdict", () => {
  const known = (
    verdict: "accepted" | "refused" | "deferred" | "unknown",
    providerMessageId: string | null = null,
  ) => ({
    verdict,
    providerMessageId,
  });
  test.each([
    ["a proof replaces unknown", known("unknown"), known("refused"), "replaces"],
    ["unknown proves nothing", known("refused"), known("unknown"), "nothing"],
    ["unknown proves nothing, also about unknown", known("unknown"), known("unknown"), "nothing"],
    ["the same acceptance again", known("accepted", "m"), known("accepted", "m"), "nothing"],
    ["an acceptance without an id", known("accepted", "m"), known("accepted"), "nothing"],
    ["the id of an acceptance that had none", known("accepted"), known("accepted", "m"), "names"],
    ["another id", known("accepted", "m"), known("accepted", "n"), "contradicts"],
    ["a refusal of what was accepted", known("accepted", "m"), known("refused"), "contradicts"],
    ["an acceptance of what was refused", known("refused"), known("accepted", "m"), "contradicts"],
    ["a deferral of what was refused", known("refused"), known("deferred"), "nothing"],
  ] as const)("%s: %#", (_, held, proven, weight) => expect(weigh(held, proven)).toBe(weight));
});
