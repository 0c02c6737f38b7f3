import { afterAll, beforeEach, describe, expect, test } from "vitest";
import type { Outcome } from "../../src/ledger/verdict.ts";
import { openAdapter } from "../../src/providers/index.ts";
import type { Call } from "../../src/providers/provider.ts";
import { capability } from "../../src/providers/telegram/capability.ts";
import { page, type Step } from "../fakes/step.ts";
import { BLOCKED, FLOOD, MIGRATED, openFakeTelegram, telegramError } from "../fakes/telegram.ts";
import { call, DELIVERY, proves } from "./build.ts";

const TOKEN = "123456:AAaccepted_token";
const fake = await openFakeTelegram();
const adapter = openAdapter({ provider: "telegram", botToken: TOKEN, apiRoot: fake.url });
const to = "-1001234567890";
const render = (message: object, chat = to) => adapter.render({ deliveryId: DELIVERY, to: chat, message });
const body = await render({ text: "hi" });

beforeEach(() => {
  fake.reset();
  fake.accept([TOKEN]);
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
  {
    rule: "an accepted message",
    step: { do: "accept" },
    proves: { verdict: "accepted", providerMessageId: expect.stringMatching(/^\d+$/) },
    effects: 1,
  },
  {
    rule: "an acceptance with status 500",
    step: { do: "answer", status: 500, json: { ok: true, result: { message_id: 9 } }, effect: true },
    proves: { verdict: "accepted", providerMessageId: "9" },
    effects: 1,
    seen: { status: 500 },
  },
  {
    rule: "an acceptance without a message",
    step: { do: "answer", status: 200, json: { ok: true, result: true }, effect: true },
    proves: { verdict: "accepted", providerMessageId: null, alarm: true },
    effects: 1,
  },
  {
    rule: "a message that is to be numbered later",
    step: { do: "answer", status: 200, json: { ok: true, result: { message_id: 0 } }, effect: true },
    proves: { verdict: "accepted", providerMessageId: null },
    effects: 1,
  },
  { rule: "a reset after the request was read", step: { do: "reset" }, proves: unknown, seen: { phase: "sent" } },
  { rule: "a reset after the effect", step: { do: "reset", effect: true }, proves: unknown, effects: 1 },
  { rule: "a close after the effect", step: { do: "close", effect: true }, proves: unknown, effects: 1 },
  { rule: "no answer in time", step: { do: "hang" }, proves: { verdict: "unknown", reason: "timeout" } },
  { rule: "no answer, after the effect", step: { do: "hang", effect: true }, proves: unknown, effects: 1 },
  {
    rule: "half of an acceptance",
    step: { do: "cut", effect: true },
    proves: { verdict: "accepted", providerMessageId: null, alarm: true },
    effects: 1,
    seen: { status: 200, body: "none" },
  },
  { rule: "half of a 500", step: { do: "cut", status: 500 }, proves: unknown, seen: { status: 500 } },
  { rule: "JSON null", step: { do: "answer", status: 200, json: null }, proves: unknown },
  { rule: "an empty object", step: { do: "answer", status: 400, json: {} }, proves: unknown },
  {
    rule: "an error without a code",
    step: { do: "answer", status: 400, json: { ok: false, description: "Bad Request: chat not found" } },
    proves: unknown,
  },
  { rule: "a 502 page", step: page(502), proves: unknown, seen: { status: 502, body: "page" } },
  { rule: "a 200 page", step: page(200), proves: unknown },
  { rule: "a 413 page", step: page(413), proves: refused },
  { rule: "a 403 page", step: page(403), proves: refused },
  { rule: "a 404 page", step: page(404), proves: refused },
  { rule: "a 429 page", step: page(429), proves: { verdict: "deferred" } },
  {
    rule: "a topic that is not there",
    step: telegramError(400, "Bad Request: message thread not found"),
    proves: refused,
  },
  {
    rule: "markup that cannot be parsed",
    step: telegramError(400, "Bad Request: can't parse entities: Character '.' is reserved"),
    proves: refused,
    seen: { message: "Bad Request: can't parse entities: Character '.' is reserved" },
  },
  {
    rule: "a 400 that nobody knows",
    step: telegramError(400, "Bad Request: NEW_FAULT"),
    proves: { ...refused, alarm: true },
  },
  { rule: "a blocked bot", step: BLOCKED, proves: { ...refused, suppresses: true } },
  {
    rule: "a group that moved",
    step: MIGRATED(-1_009_990_001),
    proves: { verdict: "deferred", movedTo: "-1009990001" },
  },
  {
    rule: "a migration to something that is no chat id",
    step: telegramError(400, "Bad Request: upgraded", { migrate_to_chat_id: "x" }),
    proves: { ...refused, alarm: true },
  },
  { rule: "a flood wait of hours", step: FLOOD(10_072), proves: { verdict: "deferred", retryAfterS: 10_072 } },
  { rule: "a flood wait of 0", step: FLOOD(0), proves: { verdict: "deferred", retryAfterS: 0 } },
  ...["abc", -5, 1e12, null].map((absurd) => ({
    rule: `a flood wait of ${absurd}`,
    step: {
      do: "answer",
      status: 429,
      json: { ok: false, error_code: 429, description: "Too Many Requests", parameters: { retry_after: absurd } },
    } as const,
    proves: { verdict: "deferred", retryAfterS: null } as const,
  })),
  {
    rule: "a flood wait that stands in the header only",
    step: { do: "answer", status: 429, json: { ok: false, error_code: 429 }, headers: { "retry-after": "75" } },
    proves: { verdict: "deferred", retryAfterS: 75 },
  },
  {
    rule: "a restart of the Bot API",
    step: telegramError(500, "Internal Server Error: restart"),
    proves: unknown,
  },
  {
    rule: "a logged out bot",
    step: telegramError(400, "Logged out"),
    proves: { verdict: "refused", scope: "channel" },
  },
];

describe("telegram over HTTP", () => {
  test.each(FAULTS)("$rule proves what the table says", async ({ step, proves: proven, effects = 0, seen = {} }) => {
    fake.script(to, [step]);
    const answered = await send({ timeoutMs: 600 });
    expect(answered.outcome).toMatchObject(proven);
    expect(answered.seen).toMatchObject(seen);
    expect(fake.effects).toHaveLength(effects);
    expect(fake.calls).toHaveLength(1);
  });

  test("a wrong token holds the channel", async () => {
    fake.accept([]);
    expect((await send()).outcome).toMatchObject({ verdict: "refused", scope: "channel" });
  });

  test("a redirect is not followed", async () => {
    fake.script(to, [{ do: "answer", status: 307, headers: { location: `${fake.url}/bot${TOKEN}/sendMessage` } }]);
    expect((await send()).outcome).toMatchObject({ verdict: "unknown", reason: "redirected" });
    expect(fake.calls).toHaveLength(1);
  });

  test("a call is made once, whatever comes: nothing retries by itself", async () => {
    for (const step of [FLOOD(1), telegramError(500, "x"), { do: "reset" } as const]) {
      fake.reset();
      fake.script(to, [step]);
      await send();
      expect(fake.counts.calls).toBe(1);
    }
  });

  test("of many calls under way at once, each gets the answer to its own", async () => {
    const chats = Array.from({ length: 60 }, (_, index) => String(1_000 + index));
    const steps: readonly Step[] = [{ do: "accept", delayMs: 20 }, { do: "reset" }, BLOCKED, FLOOD(61), page(502)];
    for (const [index, chat] of chats.entries()) fake.script(chat, [steps[index % steps.length] ?? { do: "accept" }]);
    const verdicts = await Promise.all(
      chats.map(async (chat) => (await send({ body: await render({ text: chat }, chat), to: chat })).outcome.reason),
    );
    const expected = ["accepted", "connection_lost", "recipient_blocked", "rate_limited", "server_error"];
    expect(verdicts).toEqual(chats.map((_, index) => expected[index % expected.length]));
    expect(fake.effects.map(({ recipient }) => recipient).sort()).toEqual(chats.filter((_, index) => index % 5 === 0));
  });

  test("a request that cannot be read is never made", async () => {
    for (const odd of ["", "{", "null", '{"method":"logOut","payload":{}}', '{"method":"../x"}']) {
      const { seen } = await send({ body: odd });
      expect(seen.phase).toBe("not_sent");
    }
    expect(fake.counts.calls).toBe(0);
  });
});

describe("the rendered message", () => {
  test("goes by the method that its contents ask for", async () => {
    for (const message of [{ text: "t" }, { photo: "p", caption: "c" }, { document: "https://x.test/d.pdf" }]) {
      await send({ body: await render(message) });
    }
    expect(fake.calls.map(({ path }) => path.split("/").at(-1))).toEqual(["sendMessage", "sendPhoto", "sendDocument"]);
    expect(fake.effects.map(({ content }) => content)).toEqual([
      { chat_id: Number(to), text: "t" },
      { chat_id: Number(to), photo: "p", caption: "c" },
      { chat_id: Number(to), document: "https://x.test/d.pdf" },
    ]);
  });

  test("arrives as it was posted", async () => {
    const message = {
      text: "v1.2-rc (ada_x) 😀 \\u0000",
      parse_mode: "MarkdownV2",
      message_thread_id: 1,
      reply_markup: { inline_keyboard: [[{ text: "é", callback_data: "1" }]] },
      link_preview_options: { is_disabled: true },
    };
    await send({ body: await render(message) });
    expect(fake.effects[0]?.content).toEqual({ chat_id: Number(to), ...message });
  });

  test("goes to a channel by its name, and to a moved chat by its new id", async () => {
    await send({ body: await render({ text: "t" }, "@channel") });
    await send({ body: await render({ text: "t" }, "-9007199254740991") });
    expect(fake.effects.map(({ content }) => (content as { chat_id: unknown }).chat_id)).toEqual([
      "@channel",
      -9_007_199_254_740_991,
    ]);
  });
});
