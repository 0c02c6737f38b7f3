import { afterAll, beforeEach, describe, expect, test } from "vitest";
import type { Outcome } from "../../src/ledger/verdict.ts";
import { openAdapter } from "../../src/providers/index.ts";
import type { Call } from "../../src/providers/provider.ts";
import { capability } from "../../src/providers/resend/capability.ts";
import { DAILY_QUOTA, MONTHLY_QUOTA, openFakeResend, RATE_LIMITED, resendError } from "../fakes/resend.ts";
import { page, type Step } from "../fakes/step.ts";
import { call, DELIVERY, proves } from "./build.ts";

const API_KEY = "re_test_accepted_key_0001";
const fake = await openFakeResend();
const adapter = openAdapter({ provider: "resend", apiKey: API_KEY, baseUrl: fake.url, from: "Ledger <l@example.com>" });
const to = "ada@example.com";
const message = { subject: "Hello", text: "Hi" };
const body = await adapter.render({ deliveryId: DELIVERY, to, message });

beforeEach(() => {
  fake.reset();
  fake.accept([API_KEY]);
});
afterAll(async () => {
  await adapter.close();
  await fake.close();
});

const send = async (given: Partial<Call> = {}) => {
  const seen = await adapter.call(call({ body, to, ...given }));
  return { seen, outcome: proves(capability, seen) };
};

interface Fault {
  readonly rule: string;
  readonly step: Step;
  readonly proves: Partial<Outcome>;
  readonly effects?: number;
  readonly seen?: object;
}

const refused = { verdict: "refused", scope: "delivery" } as const;
const unknown = { verdict: "unknown" } as const;
const FAULTS: readonly Fault[] = [
  { rule: "an accepted email", step: { do: "accept" }, proves: { verdict: "accepted" }, effects: 1 },
  {
    rule: "a slow acceptance",
    step: { do: "accept", delayMs: 60 },
    proves: { verdict: "accepted" },
    effects: 1,
  },
  { rule: "a reset after the request was read", step: { do: "reset" }, proves: unknown, seen: { phase: "sent" } },
  { rule: "a reset after the effect", step: { do: "reset", effect: true }, proves: unknown, effects: 1 },
  { rule: "a close after the request was read", step: { do: "close" }, proves: unknown, seen: { phase: "sent" } },
  { rule: "a close after the effect", step: { do: "close", effect: true }, proves: unknown, effects: 1 },
  { rule: "no answer in time", step: { do: "hang" }, proves: { verdict: "unknown", reason: "timeout" } },
  {
    rule: "no answer in time, after the effect",
    step: { do: "hang", effect: true },
    proves: { verdict: "unknown", reason: "timeout" },
    effects: 1,
  },
  {
    rule: "half of an acceptance",
    step: { do: "cut", effect: true },
    proves: { verdict: "accepted", providerMessageId: null },
    effects: 1,
    seen: { status: 200, body: "none" },
  },
  { rule: "half of a 500", step: { do: "cut", status: 500 }, proves: unknown, seen: { status: 500, body: "none" } },
  { rule: "half of a 422", step: { do: "cut", status: 422 }, proves: refused, seen: { status: 422 } },
  {
    rule: "JSON null with 500",
    step: { do: "answer", status: 500, json: null },
    proves: unknown,
    seen: { status: 500, body: "json" },
  },
  { rule: "JSON null with 422", step: { do: "answer", status: 422, json: null }, proves: refused },
  { rule: "an empty object with 403", step: { do: "answer", status: 403, json: {} }, proves: refused },
  { rule: "a JSON string with 500", step: { do: "answer", status: 500, json: "oops" }, proves: unknown },
  {
    rule: "JSON null with 200",
    step: { do: "answer", status: 200, json: null, effect: true },
    proves: { verdict: "accepted", providerMessageId: null },
    effects: 1,
  },
  {
    rule: "an id that is a number",
    step: { do: "answer", status: 200, json: { id: 5 }, effect: true },
    proves: { verdict: "accepted", providerMessageId: null },
    effects: 1,
  },
  {
    rule: "200 without a body",
    step: { do: "answer", status: 200, effect: true },
    proves: { verdict: "accepted", providerMessageId: null },
    effects: 1,
  },
  {
    rule: "403 as plain text keeps status and text",
    step: { do: "answer", status: 403, raw: "Forbidden by policy" },
    proves: refused,
    seen: { status: 403, body: "text", message: "Forbidden by policy" },
  },
  { rule: "a 503 page", step: page(503), proves: unknown, seen: { status: 503, body: "page" } },
  { rule: "a 502 page after the effect", step: { ...page(502), effect: true } as Step, proves: unknown, effects: 1 },
  { rule: "a 413 page", step: page(413), proves: { verdict: "deferred" } },
  { rule: "a 403 page", step: page(403), proves: { verdict: "deferred" } },
  { rule: "a 429 page", step: page(429, { "retry-after": "70" }), proves: { verdict: "deferred", retryAfterS: 70 } },
  { rule: "429 with retry-after", step: RATE_LIMITED(90), proves: { verdict: "deferred", retryAfterS: 90 } },
  ...["", "abc", "-5", "1e12", "Wed, 21 Oct 2026 07:28:00 GMT", "99999999999"].map((absurd) => ({
    rule: `429 with the retry-after "${absurd}"`,
    step: RATE_LIMITED(absurd),
    proves: { verdict: "deferred", retryAfterS: null } as const,
  })),
  { rule: "the daily quota", step: DAILY_QUOTA, proves: { verdict: "deferred", scope: "channel" } },
  { rule: "the monthly quota", step: MONTHLY_QUOTA, proves: { verdict: "deferred", scope: "channel" } },
  {
    rule: "a suspended key",
    step: resendError(403, "suspended_api_key"),
    proves: { verdict: "refused", scope: "channel" },
  },
  { rule: "422", step: resendError(422, "missing_required_field"), proves: refused },
  { rule: "451", step: resendError(451, "security_error"), proves: refused },
  { rule: "409 of another kind", step: resendError(409, "resource_locked"), proves: unknown },
  { rule: "408", step: resendError(408, "timeout"), proves: unknown },
  { rule: "500", step: resendError(500, "application_error"), proves: unknown },
  {
    rule: "500 after the effect",
    step: { ...resendError(500, "application_error"), effect: true },
    proves: unknown,
    effects: 1,
  },
];

describe("resend over HTTP", () => {
  test.each(FAULTS)("$rule proves what the table says", async ({ step, proves: proven, effects = 0, seen = {} }) => {
    fake.script(to, [step]);
    const answered = await send({ timeoutMs: 600 });
    expect(answered.outcome).toMatchObject(proven);
    expect(answered.seen).toMatchObject(seen);
    expect(fake.effects).toHaveLength(effects);
    expect(fake.calls).toHaveLength(1);
  });

  test("a wrong key holds the channel", async () => {
    fake.accept([]);
    expect((await send()).outcome).toMatchObject({ verdict: "refused", scope: "channel" });
    expect(fake.effects).toEqual([]);
  });

  test("a redirect is not followed", async () => {
    fake.script(to, [{ do: "answer", status: 302, headers: { location: `${fake.url}/elsewhere` } }]);
    expect((await send()).outcome).toMatchObject({ verdict: "unknown", reason: "redirected" });
    expect(fake.calls).toHaveLength(1);
  });

  test("a repeat under the same key, after the answer was lost, gets the first one's id and sends nothing", async () => {
    fake.script(to, [{ do: "reset", effect: true }]);
    expect((await send()).outcome.verdict).toBe("unknown");
    const repeat = await send({ attempt: 2 });
    expect(repeat.outcome).toMatchObject({ verdict: "accepted", providerMessageId: expect.any(String) });
    expect(fake.effects).toHaveLength(1);
  });

  test("a repeat while the first is still running is a concurrent request", async () => {
    fake.script(to, [{ do: "accept", delayMs: 900 }]);
    expect((await send({ timeoutMs: 250 })).outcome).toMatchObject({ verdict: "unknown", reason: "timeout" });
    expect((await send()).outcome).toMatchObject({ verdict: "unknown", reason: "concurrent_request" });
  });

  test("another body under the same key is a payload mismatch, with an alarm", async () => {
    await send();
    const other = await adapter.render({ deliveryId: DELIVERY, to, message: { ...message, text: "Bye" } });
    const { outcome } = await send({ body: other });
    expect(outcome).toMatchObject({ verdict: "unknown", reason: "payload_mismatch", alarm: true });
    expect(fake.effects).toHaveLength(1);
  });

  test("repeated calls carry the same bytes and the same key", async () => {
    const odd = await adapter.render({
      deliveryId: DELIVERY,
      to,
      message: { subject: "ok 😀 – é\u2028", text: '"\\u0000"' },
    });
    fake.script(to, [{ do: "reset" }, { do: "hang" }, resendError(500, "application_error")]);
    for (const attempt of [1, 2, 3, 4]) await send({ body: odd, attempt, timeoutMs: 400 });
    expect(fake.calls.map((made) => made.body)).toEqual([odd, odd, odd, odd]);
    expect(new Set(fake.calls.map((made) => made.key))).toEqual(new Set([`${DELIVERY}.1`]));
    expect(fake.effects).toHaveLength(1);
  });

  test("a call carries what Resend asks for", async () => {
    await send();
    expect(fake.calls[0]?.headers).toMatchObject({
      authorization: `Bearer ${API_KEY}`,
      "idempotency-key": `${DELIVERY}.1`,
      "content-type": "application/json",
      "user-agent": expect.stringMatching(/./),
    });
  });

  test.each(["", " ", "é", "a\nb", "k".repeat(257)])(
    "nothing is sent under the unusable key %j",
    async (idempotencyKey) => {
      const { seen, outcome } = await send({ idempotencyKey });
      expect(seen.phase).toBe("not_sent");
      expect(outcome.verdict).toBe("deferred");
      expect(fake.counts.calls).toBe(0);
    },
  );

  test("what an error says is kept storable: no U+0000, no half character, at most 500 characters", async () => {
    fake.script(to, [resendError(422, "validation_error", `a\u0000b \ud83d ${"x".repeat(498)}😀`)]);
    const { seen, outcome } = await send();
    expect(outcome.verdict).toBe("refused");
    expect(seen.message?.isWellFormed()).toBe(true);
    expect(seen.message).not.toContain("\0");
    expect(seen.message?.length).toBeLessThanOrEqual(500);
  });

  test("an answer beyond 1 MiB is not read to its end; its status counts", async () => {
    fake.script(to, [{ do: "answer", status: 500, raw: "x".repeat(3_000_000) }]);
    const { seen, outcome } = await send();
    expect(seen).toMatchObject({ status: 500, body: "none", code: "BODY_TOO_LARGE" });
    expect(outcome.verdict).toBe("unknown");
  });
});
