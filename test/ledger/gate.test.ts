import { describe, expect, test } from "vitest";
import { type GateChannel, type GateDelivery, gate } from "../../src/ledger/gate.ts";

const NOW = 1_000_000;
const delivery: GateDelivery = {
  cancelled: false,
  expiresAt: null,
  suppressed: false,
  nextAttemptAt: NOW,
  attemptCount: 0,
  inDoubt: false,
  quietUntil: null,
  recipientPacedUntil: null,
};
const channel: GateChannel = { paused: null, configured: true, breakerOpenUntil: null, pacedUntil: null };

test("a due delivery on a channel that may send finds the gate open", () => {
  expect(gate(delivery, channel, NOW)).toEqual({ gate: "open" });
});

describe("each check, alone", () => {
  test.each<[string, Partial<GateDelivery>, Partial<GateChannel>, unknown]>([
    ["cancelled closes", { cancelled: true }, {}, { gate: "close", state: "cancelled" }],
    ["expired closes", { expiresAt: NOW - 1 }, {}, { gate: "close", state: "expired" }],
    ["at the very instant of expires_at it has expired", { expiresAt: NOW }, {}, { gate: "close", state: "expired" }],
    ["a moment before expires_at it may go", { expiresAt: NOW + 1 }, {}, { gate: "open" }],
    ["a suppressed recipient closes", { suppressed: true }, {}, { gate: "close", state: "suppressed" }],
    ["deliver_at holds", { nextAttemptAt: NOW + 1 }, {}, { gate: "hold", reason: "scheduled", until: NOW + 1 }],
    [
      "a rung holds",
      { nextAttemptAt: NOW + 1, attemptCount: 1 },
      {},
      { gate: "hold", reason: "ladder", until: NOW + 1 },
    ],
    ["a pause holds", {}, { paused: { until: null } }, { gate: "hold", reason: "channel_paused", until: null }],
    ["a pause whose time has come does not", {}, { paused: { until: NOW } }, { gate: "open" }],
    ["no credentials hold", {}, { configured: false }, { gate: "hold", reason: "channel_unconfigured", until: null }],
    [
      "an open breaker holds",
      {},
      { breakerOpenUntil: NOW + 5 },
      { gate: "hold", reason: "provider_down", until: NOW + 5 },
    ],
    ["quiet hours hold", { quietUntil: NOW + 5 }, {}, { gate: "hold", reason: "quiet_hours", until: NOW + 5 }],
    ["the channel's pace holds", {}, { pacedUntil: NOW + 5 }, { gate: "hold", reason: "rate_limited", until: NOW + 5 }],
    [
      "the recipient's pace holds",
      { recipientPacedUntil: NOW + 5 },
      {},
      { gate: "hold", reason: "rate_limited", until: NOW + 5 },
    ],
  ])("%s", (_rule, ofDelivery, ofChannel, decision) => {
    expect(gate({ ...delivery, ...ofDelivery }, { ...channel, ...ofChannel }, NOW)).toEqual(decision);
  });
});

test("the first check that is not open decides, in the order of the design", () => {
  let d: GateDelivery = {
    ...delivery,
    cancelled: true,
    expiresAt: NOW,
    suppressed: true,
    nextAttemptAt: NOW + 1,
    quietUntil: NOW + 1,
    recipientPacedUntil: NOW + 1,
  };
  let c: GateChannel = { paused: { until: null }, configured: false, breakerOpenUntil: NOW + 1, pacedUntil: NOW + 1 };
  const seen: string[] = [];
  const steps: (() => void)[] = [
    () => {
      d = { ...d, cancelled: false };
    },
    () => {
      d = { ...d, expiresAt: null };
    },
    () => {
      d = { ...d, suppressed: false };
    },
    () => {
      d = { ...d, nextAttemptAt: NOW };
    },
    () => {
      c = { ...c, paused: null };
    },
    () => {
      c = { ...c, configured: true };
    },
    () => {
      c = { ...c, breakerOpenUntil: null };
    },
    () => {
      d = { ...d, quietUntil: null };
    },
    () => {
      d = { ...d, recipientPacedUntil: null };
      c = { ...c, pacedUntil: null };
    },
  ];
  for (const open of steps) {
    const decision = gate(d, c, NOW);
    seen.push(decision.gate === "close" ? decision.state : decision.gate === "hold" ? decision.reason : decision.gate);
    open();
  }
  expect(seen).toEqual([
    "cancelled",
    "expired",
    "suppressed",
    "scheduled",
    "channel_paused",
    "channel_unconfigured",
    "provider_down",
    "quiet_hours",
    "rate_limited",
  ]);
  expect(gate(d, c, NOW)).toEqual({ gate: "open" });
});

test.each([
  ["cancelled", { cancelled: true }],
  ["expired", { expiresAt: NOW }],
  ["suppressed", { suppressed: true }],
] as const)("a delivery in doubt is never closed as %s: it goes to needs-attention", (state, of) => {
  expect(gate({ ...delivery, ...of, inDoubt: true, attemptCount: 1 }, channel, NOW)).toEqual({
    gate: "attention",
    reason: `${state}_in_doubt`,
  });
});
