import { describe, expect, test } from "vitest";
import { openAdapter, PROVIDERS } from "../../src/providers/index.ts";
import type { Call } from "../../src/providers/provider.ts";
import { openSandbox, type SandboxCall } from "../../src/providers/sandbox/adapter.ts";
import { capability } from "../../src/providers/sandbox/capability.ts";
import { sandbox } from "../../src/providers/sandbox/index.ts";
import { answer, call, decidingRow, proves, type Row } from "./build.ts";

const adapter = openAdapter({ provider: "sandbox" });
const play = async (to: string, given: Partial<Call> = {}) =>
  proves(capability, await adapter.call(call({ body: "{}", to, ...given })));

describe("the sandbox plays", () => {
  test.each([
    ["accept@sandbox", { verdict: "accepted", providerMessageId: expect.any(String) }],
    ["ada@example.com", { verdict: "accepted" }],
    ["constructor@sandbox", { verdict: "accepted" }],
    ["__proto__@sandbox", { verdict: "accepted" }],
    ["refuse@sandbox", { verdict: "refused", scope: "delivery" }],
    ["defer@sandbox", { verdict: "deferred", retryAfterS: null }],
    ["defer-90@sandbox", { verdict: "deferred", retryAfterS: 90 }],
    ["defer-999999999@sandbox", { verdict: "deferred", retryAfterS: null }],
    ["timeout@sandbox", { verdict: "unknown", reason: "timeout" }],
    ["reset@sandbox", { verdict: "unknown", reason: "connection_lost" }],
    ["error@sandbox", { verdict: "unknown", reason: "server_error" }],
    ["unreachable@sandbox", { verdict: "deferred", reason: "not_sent", failing: false }],
    ["down@sandbox", { verdict: "deferred", reason: "not_sent", failing: true }],
    ["lost@sandbox", { verdict: "accepted", providerMessageId: null }],
    ["badkey@sandbox", { verdict: "refused", scope: "channel" }],
    ["slow-5@sandbox", { verdict: "accepted" }],
  ])("%s", async (to, outcome) => {
    expect(await play(to)).toMatchObject(outcome);
  });

  test.each(["refuse", "defer", "defer-90", "unreachable", "error", "timeout"])(
    "%s-then-accept@sandbox: the first attempt only",
    async (behaviour) => {
      const to = `${behaviour}-then-accept@sandbox`;
      expect(await play(to)).toEqual(await play(`${behaviour}@sandbox`));
      expect(await play(to, { attempt: 2 })).toMatchObject({ verdict: "accepted" });
    },
  );

  test("slow@sandbox is cut off by the time-out and by the signal", async () => {
    expect(await play("slow@sandbox", { timeoutMs: 10 })).toMatchObject({ verdict: "unknown", reason: "timeout" });
    const signal = AbortSignal.timeout(10);
    expect(await play("slow@sandbox", { signal })).toMatchObject({ verdict: "unknown", reason: "cut_off" });
  });
});

test("the sandbox records what it was given, the latest thousand", async () => {
  const own = openSandbox();
  for (let attempt = 1; attempt <= 1_001; attempt += 1)
    await own.call(call({ body: "{}", to: "refuse@sandbox", attempt }));
  expect(own.recorded).toHaveLength(1_000);
  expect(own.recorded[0]).toEqual({
    deliveryId: expect.any(String),
    to: "refuse@sandbox",
    body: "{}",
    idempotencyKey: expect.any(String),
    attempt: 2,
  });
});

test("a record of one's own is given every call before it is played", async () => {
  const given: SandboxCall[] = [];
  await openAdapter({ provider: "sandbox", record: (made) => given.push(made) }).call(call({ body: '{"text":"t"}' }));
  expect(given).toMatchObject([{ body: '{"text":"t"}', to: "ada@example.com" }]);
});

test("its messages have a text", () => {
  expect(sandbox.message.safeParse({ text: "t", subject: "s", html: "<p>" }).success).toBe(true);
  for (const odd of [{}, { text: 5 }, { text: "t", more: 1 }, { text: "a\0" }, { text: "\ud83d" }, null, "t"]) {
    expect(sandbox.message.safeParse(odd).success, JSON.stringify(odd)).toBe(false);
  }
});

test("the providers are listed by their own names", () => {
  expect(
    Object.entries(PROVIDERS).map(([name, provider]) => [name, provider.name, provider.capability.provider]),
  ).toEqual([
    ["resend", "resend", "resend"],
    ["telegram", "telegram", "telegram"],
    ["sandbox", "sandbox", "sandbox"],
  ]);
});

const ROWS: readonly Row[] = [
  { rule: "not_sent", seen: { phase: "not_sent", code: "EHOSTDOWN" }, proves: {} },
  { rule: "not_sent", seen: { phase: "not_sent" }, proves: {} },
  { rule: "accepted", seen: { status: 200, providerMessageId: "1" }, proves: {} },
  { rule: "accepted_without_id", seen: { status: 200 }, proves: {} },
  { rule: "credentials_refused", seen: { status: 401 }, proves: {} },
  { rule: "invalid_request", seen: { status: 422 }, proves: {} },
  { rule: "rate_limited", seen: { status: 429 }, proves: {} },
  { rule: "server_error", seen: { status: 500 }, proves: {} },
  { rule: "timeout", seen: { code: "TIMEOUT" }, proves: {} },
  { rule: "cut_off", seen: { code: "ABORTED" }, proves: {} },
  { rule: "connection_lost", seen: { code: "ECONNRESET" }, proves: {} },
];

test("every row of the sandbox's table is tested, in its order", () => {
  expect(ROWS.map((row) => decidingRow(capability, row))).toEqual(capability.answers.map((_, index) => index));
  expect(ROWS.map((row) => proves(capability, answer(row.seen)).reason)).toEqual(ROWS.map(({ rule }) => rule));
});
