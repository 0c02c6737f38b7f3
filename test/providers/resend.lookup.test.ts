import fc from "fast-check";
import { afterAll, beforeEach, describe, expect, test } from "vitest";
import type { DeliveryId } from "../../src/ledger/delivery.ts";
import { openAdapter, openLookup } from "../../src/providers/index.ts";
import type { Finding, LookupClient, Sought } from "../../src/providers/provider.ts";
import { openResendLookup } from "../../src/providers/resend/lookup.ts";
import { type RecordsSettings, timeOf } from "../../src/providers/resend/records.ts";
import { openFakeResend, RATE_LIMITED, resendError } from "../fakes/resend.ts";
import { page, type Step } from "../fakes/step.ts";
import { call, DELIVERY } from "./build.ts";

const SEND_KEY = "re_test_sending_key_0001";
const FULL_KEY = "re_test_full_access_0001";
const OTHER = "0198c0de-0000-7000-8000-00000000000f" as DeliveryId;
const MINUTE_MS = 60_000;
const fake = await openFakeResend({ fullAccess: [FULL_KEY] });
const adapter = openAdapter({
  provider: "resend",
  apiKey: SEND_KEY,
  baseUrl: fake.url,
  from: "Ledger <l@example.com>",
});
const opened: LookupClient[] = [];
const NEVER = new AbortController().signal;
const NOW = Date.now();

beforeEach(() => {
  fake.reset();
  fake.accept([SEND_KEY, FULL_KEY]);
});
afterAll(async () => {
  await Promise.all([adapter.close(), ...opened.map((client) => client.close())]);
  await fake.close();
});

/** A client for which time passes only while it waits. */
function open(more: Partial<RecordsSettings> = {}) {
  const waits: number[] = [];
  let passed = 0;
  const client = openResendLookup({
    apiKey: FULL_KEY,
    baseUrl: fake.url,
    clock: {
      now: () => Date.now() + passed,
      wait: async (ms) => {
        waits.push(ms);
        passed += ms;
      },
    },
    ...more,
  });
  opened.push(client);
  return { client, waits };
}

const around = (at = NOW): Sought["spans"] => [{ from: at - MINUTE_MS, until: at + MINUTE_MS }];
const find = (more: Partial<RecordsSettings> = {}, sought: Partial<Sought> = {}): Promise<Finding> =>
  open(more).client.find({ deliveryId: DELIVERY, spans: around(), ...sought }, NEVER);

async function send(step: Step, deliveryId = DELIVERY) {
  fake.script("ada@example.com", [step]);
  const to = "ada@example.com";
  const body = await adapter.render({ deliveryId, to, message: { subject: "Hello", text: "Hi" } });
  return await adapter.call(call({ body, to, deliveryId, idempotencyKey: `${deliveryId}.1`, timeoutMs: 300 }));
}
const tagged = (deliveryId: string) => ({ to: "ada@example.com", tags: [{ name: "delivery_id", value: deliveryId }] });
const asked = () => fake.questions.map(({ path }) => path.replace(/\?.*/, ""));
const emailIdAt = (index: number) => (fake.log.entries.at(index) as { response_body: { id: string } }).response_body.id;

describe("what the log shows", () => {
  test.each<[string, Step]>([
    ["reset", { do: "reset", effect: true }],
    ["never answered", { do: "hang", effect: true }],
    ["answered by the edge alone", { ...(page(502) as Extract<Step, { do: "answer" }>), effect: true }],
  ])("an email whose request was %s was accepted", async (_, step) => {
    await send({ do: "accept" }, OTHER);
    expect((await send(step)).providerMessageId).toBeNull();
    const found = await find();
    expect(found).toMatchObject({ found: "accepted", providerMessageId: emailIdAt(1), status: null, statusAt: null });
    expect(Math.abs((found as { acceptedAt: number }).acceptedAt - Date.now())).toBeLessThan(MINUTE_MS);
  });

  test.each([
    ["queued", null],
    ["scheduled", null],
    ["sent", null],
    ["canceled", null],
    ["constructor", null],
    ["delivered", "delivered"],
    ["delivery_delayed", "delayed"],
    ["bounced", "bounced"],
    ["complained", "complained"],
    ["opened", "opened"],
    ["clicked", "clicked"],
    ["failed", "failed"],
    ["suppressed", "suppressed"],
  ])("an email whose last event is %s is %s", async (event, status) => {
    await send({ do: "reset", effect: true });
    fake.log.report(emailIdAt(0), event);
    expect(await find()).toMatchObject({ found: "accepted", providerMessageId: emailIdAt(0), status });
    expect(asked()).toEqual(["/logs", `/logs/${fake.log.entries[0]?.id}`, `/emails/${emailIdAt(0)}`]);
  });

  test("an acceptance stands when the email itself cannot be read", async () => {
    await send({ do: "reset", effect: true });
    fake.script("GET /emails/:id", [resendError(500, "application_error")]);
    expect(await find()).toMatchObject({ found: "accepted", providerMessageId: emailIdAt(0), status: null });
  });

  test("recorded errors are told, and prove nothing", async () => {
    await send(resendError(500, "application_error"));
    await send(resendError(422, "invalid_parameter"));
    const found = await find();
    expect(found).toMatchObject({ found: "not_accepted" });
    expect((found as { note: string }).note).toMatch(
      /^recorded: (500 application_error|422 invalid_parameter) at \d{4}-.*, (500|422) .*; none was accepted$/,
    );
  });

  test("an acceptance is found among errors", async () => {
    await send(resendError(500, "application_error"));
    await send({ do: "reset", effect: true });
    await send(resendError(429, "rate_limit_exceeded"));
    expect(await find()).toMatchObject({ found: "accepted", providerMessageId: emailIdAt(1) });
  });

  test("a success without the email's id is told, for it is no proof", async () => {
    fake.log.add(NOW, { request_body: tagged(DELIVERY), response_body: null });
    expect(await find()).toMatchObject({ found: "no_answer", note: expect.stringContaining("without the email's id") });
  });

  test("other people's requests are not ours", async () => {
    fake.log.add(NOW);
    fake.log.add(NOW, { request_body: tagged(OTHER) });
    fake.log.add(NOW, { request_body: { ...tagged(OTHER), subject: DELIVERY, headers: { "X-Id": DELIVERY } } });
    expect(await find()).toMatchObject({ found: "nothing" });
  });

  test("a request whose body and tags are written otherwise is ours too", async () => {
    const response_body = '{"id":"em_1"}';
    fake.log.add(NOW, { request_body: JSON.stringify(tagged(DELIVERY)), response_body });
    expect(await find()).toMatchObject({ found: "accepted", providerMessageId: "em_1" });
    fake.log.clear();
    fake.log.add(NOW, { request_body: { tags: { delivery_id: DELIVERY.toUpperCase() } }, response_body });
    expect(await find()).toMatchObject({ found: "accepted", providerMessageId: "em_1" });
  });

  test("a request with large attachments is read", async () => {
    const attachments = [{ filename: "a", content: "A".repeat(3_000_000) }];
    fake.log.add(NOW, { request_body: { ...tagged(DELIVERY), attachments }, response_body: { id: "em_1" } });
    expect(await find()).toMatchObject({ found: "accepted", providerMessageId: "em_1" });
  });

  test("only emails, and only of the doubtful time, are read", async () => {
    const inTime = fake.log.add(NOW - 2.5 * MINUTE_MS);
    fake.log.add(NOW - 3.5 * MINUTE_MS, { request_body: tagged(DELIVERY) });
    fake.log.add(NOW + 3.5 * MINUTE_MS, { request_body: tagged(DELIVERY) });
    fake.log.add(NOW, { endpoint: "/emails/batch" });
    fake.log.add(NOW, { endpoint: "/emails", method: "GET" });
    expect(await find()).toMatchObject({ found: "nothing" });
    expect(asked()).toEqual(["/logs", `/logs/${inTime}`]);
    expect(await find({}, { spans: [] })).toMatchObject({ found: "nothing" });
    expect(asked()).toHaveLength(2);
  });

  test("each of several doubtful times is looked at", async () => {
    const early = NOW - 60 * MINUTE_MS;
    fake.log.add(NOW - 30 * MINUTE_MS, { request_body: tagged(DELIVERY) });
    fake.log.add(early, { request_body: tagged(DELIVERY), response_body: { id: "em_early" } });
    const spans = [...around(), ...around(early)];
    expect(await find({}, { spans })).toMatchObject({ found: "accepted", providerMessageId: "em_early" });
    expect(asked().filter((path) => path.startsWith("/logs/"))).toHaveLength(1);
  });

  test("times are read as PostgreSQL and RFC 3339 write them", () => {
    const at = Date.parse("2026-03-30T13:43:54.622Z");
    for (const text of ["2026-03-30 13:43:54.622865+00", "2026-03-30T13:43:54.622Z", "2026-03-30 13:43:54.622"]) {
      expect(timeOf(text)).toBe(at);
    }
    expect(timeOf("2026-03-30 15:43:54.622+02")).toBe(at);
    expect(timeOf("2026-03-30T15:43:54.622+02:00")).toBe(at);
    expect(timeOf("yesterday")).toBeNaN();
  });
});

describe("no answer", () => {
  const garbage = (raw: string): Step => ({ do: "answer", status: 200, raw });
  const ATLOG: [string, Step, string][] = [
    ["a limit", RATE_LIMITED(2), "429 rate_limit_exceeded: Too many requests"],
    ["a fault", resendError(500, "application_error", "An unexpected error occurred"), "500 application_error"],
    ["a missing permission", resendError(403, "invalid_permission"), "403 invalid_permission"],
    ["a page", page(502), "502 with a page"],
    ["nothing to read", { do: "answer", status: 503 }, "answered 503"],
    ["another success", { do: "answer", status: 204 }, "answered 204"],
    ["a redirect", { do: "answer", status: 302, headers: { location: "http://127.0.0.1:9/" } }, "answered 302"],
    ["an empty object", garbage("{}"), "something else"],
    ["a list", garbage("[]"), "something else"],
    ["null", garbage("null"), "something else"],
    ["half of JSON", garbage('{"data":['), "something else"],
    ["a page as success", garbage("<html></html>"), "something else"],
    ["a time that is none", garbage('{"has_more":false,"data":[{"id":"a","created_at":"x"}]}'), "something else"],
    ["a reset", { do: "reset" }, "was not answered"],
    ["half an answer", { do: "cut" }, "not to the end"],
    ["silence", { do: "hang" }, "no complete answer within 150 ms"],
  ];

  test.each(ATLOG)("the log answers %s", async (_, step, words) => {
    fake.script("GET /logs", [step]);
    const found = await find({ timeoutMs: 150 });
    expect(found).toMatchObject({ found: "no_answer", note: expect.stringContaining(words) });
    expect((found as { note: string }).note).toMatch(/^GET \/logs /);
    expect(asked()).toEqual(["/logs"]);
  });

  test.each(ATLOG.filter(([name]) => !["an empty object", "a time that is none"].includes(name)))(
    "an entry of the log answers %s",
    async (_, step, words) => {
      fake.log.add(NOW, { request_body: tagged(DELIVERY) });
      fake.script("GET /logs/:id", [step]);
      const { found, note } = (await find({ timeoutMs: 150 })) as { found: string; note: string };
      expect(found).toBe("no_answer");
      expect(note).toContain(words);
    },
  );

  test("an entry that is gone, or says nothing, leaves the others", async () => {
    fake.log.add(NOW, { request_body: null });
    fake.log.add(NOW);
    fake.script("GET /logs/:id", [resendError(404, "not_found")]);
    expect(await find()).toMatchObject({ found: "no_answer", note: "2 requests of that time could not be read" });
    fake.log.add(NOW, { request_body: tagged(DELIVERY), response_body: { id: "em_1" } });
    fake.script("GET /logs/:id", [resendError(404, "not_found"), { do: "accept" }]);
    fake.log.add(NOW + 1, { request_body: tagged(OTHER) });
    expect(await find()).toMatchObject({ found: "accepted", providerMessageId: "em_1" });
  });

  test("a wrong key, and one that may only send", async () => {
    expect(await find({ apiKey: "re_test_wrong_key_000001" })).toMatchObject({
      found: "no_answer",
      note: "GET /logs answered 401 validation_error: API key is invalid",
    });
    expect(await find({ apiKey: SEND_KEY })).toMatchObject({
      found: "no_answer",
      note: "GET /logs answered 401 restricted_api_key: This API key is restricted to only send emails",
    });
  });

  test("nobody listens", async () => {
    const found = await find({ baseUrl: "http://127.0.0.1:9" });
    expect(found).toMatchObject({ found: "no_answer", note: expect.stringContaining("ECONNREFUSED") });
  });

  test("the ledger stops waiting", async () => {
    fake.script("GET /logs", [{ do: "hang" }]);
    const sought = { deliveryId: DELIVERY, spans: around() };
    expect(await open().client.find(sought, AbortSignal.timeout(50))).toMatchObject({
      found: "no_answer",
      note: expect.stringContaining("cut off"),
    });
    expect(await open().client.find(sought, AbortSignal.abort())).toMatchObject({ found: "no_answer" });
  });

  test("notes hold no secrets", async () => {
    fake.script("GET /logs", [resendError(403, FULL_KEY, `the key ${FULL_KEY} \u0000 is odd ${"x".repeat(2_000)}`)]);
    const { note } = (await find()) as { note: string };
    expect(note).not.toContain(FULL_KEY);
    expect([note.length, note.includes("\0")]).toEqual([500, false]);
  });

  test("whatever an entry holds, it neither throws nor proves anything", async () => {
    const { client } = open();
    await fc.assert(
      fc.asyncProperty(fc.jsonValue(), fc.jsonValue(), fc.jsonValue(), async (request_body, response_body, tags) => {
        fake.log.clear();
        fake.log.add(NOW, { request_body, response_body });
        fake.log.add(NOW, { request_body: { tags }, response_body });
        const { found } = await client.find({ deliveryId: DELIVERY, spans: around() }, NEVER);
        expect(["nothing", "no_answer"]).toContain(found);
      }),
      { numRuns: 60 },
    );
  });
});

describe("bounds and pace", () => {
  const addMany = (count: number, at: (index: number) => number, more = {}) => {
    for (let index = 0; index < count; index += 1) fake.log.add(at(index), more);
  };

  test("pages are turned until the log is older than the doubtful time", async () => {
    const early = NOW - 60 * MINUTE_MS;
    addMany(250, (index) => NOW - index);
    addMany(250, (index) => early - 5 * MINUTE_MS - index);
    fake.log.add(early, { request_body: tagged(DELIVERY), response_body: { id: "em_1" } });
    expect(await find({}, { spans: around(early) })).toMatchObject({ found: "accepted", providerMessageId: "em_1" });
    expect(asked().filter((path) => path === "/logs")).toHaveLength(3);
  });

  test("no more than 50 pages are turned at a time, and that is said; the next look-up goes on", async () => {
    const early = NOW - 120 * MINUTE_MS;
    addMany(5_200, (index) => NOW - index * 1_000, { endpoint: "/domains" });
    fake.log.add(early, { request_body: tagged(DELIVERY), response_body: { id: "em_1" } });
    const { client } = open();
    const sought = { deliveryId: DELIVERY, spans: around(early) };
    const found = await client.find(sought, NEVER);
    expect(found).toMatchObject({
      found: "no_answer",
      note: expect.stringContaining("50 pages of the log go back only"),
    });
    expect(asked()).toHaveLength(50);
    expect(await client.find(sought, NEVER)).toMatchObject({ found: "accepted", providerMessageId: "em_1" });
    expect(asked().length).toBeLessThan(60);
  });

  test("a log whose pages never end is not turned for ever", async () => {
    const same = { id: "a", endpoint: "/x", method: "GET", response_status: 200, user_agent: null };
    const json = { object: "list", has_more: true, data: [{ ...same, created_at: new Date(NOW).toISOString() }] };
    fake.script("GET /logs", Array(60).fill({ do: "answer", status: 200, json }));
    expect(await find()).toMatchObject({ found: "nothing" });
    expect(asked()).toHaveLength(2);
  });

  test("no more than 200 entries are read at a time; the next look-up goes on", async () => {
    addMany(230, () => NOW + MINUTE_MS);
    fake.log.add(NOW, { request_body: tagged(DELIVERY), response_body: { id: "em_1" } });
    const { client } = open();
    const sought = { deliveryId: DELIVERY, spans: around() };
    expect(await client.find(sought, NEVER)).toEqual({
      found: "no_answer",
      note: "31 requests of that time were not read yet",
    });
    expect(asked().filter((path) => path !== "/logs")).toHaveLength(200);
    expect(await client.find(sought, NEVER)).toMatchObject({ found: "accepted", providerMessageId: "em_1" });
    expect(asked().filter((path) => path.startsWith("/logs/"))).toHaveLength(231);
  });

  test("successes are read first, and those of our own user agent before others", async () => {
    addMany(5, () => NOW + 2, { response_status: 500 });
    addMany(5, () => NOW + 1);
    const ours = { request_body: tagged(DELIVERY), user_agent: "delivery-ledger", response_body: { id: "em_1" } };
    const id = fake.log.add(NOW, ours);
    expect(await find()).toMatchObject({ found: "accepted" });
    expect(asked()).toEqual(["/logs", `/logs/${id}`, "/emails/em_1"]);
  });

  test("look-ups after an outage share what they read", async () => {
    const outage = NOW - 60 * MINUTE_MS;
    addMany(500, (index) => NOW - index * 5_000, { endpoint: "/domains" });
    for (let index = 0; index < 150; index += 1) {
      const deliveryId = `0198c0de-0000-7000-8000-${String(index).padStart(12, "0")}`;
      fake.log.add(outage + index, { request_body: tagged(deliveryId), response_body: { id: `em_${index}` } });
    }
    addMany(200, (index) => outage - 60 * MINUTE_MS - index);
    const { client } = open();
    for (let index = 0; index < 150; index += 1) {
      const deliveryId = `0198c0de-0000-7000-8000-${String(index).padStart(12, "0")}` as DeliveryId;
      const found = await client.find({ deliveryId, spans: around(outage) }, NEVER);
      expect(found).toMatchObject({ found: "accepted", providerMessageId: `em_${index}` });
    }
    const pages = asked().filter((path) => path === "/logs");
    expect(asked().filter((path) => path.startsWith("/logs/"))).toHaveLength(150);
    // Down to the outage once, and then none of the old pages again.
    expect(pages.length).toBeLessThan(15);
  });

  test("recent pages are read anew, for entries may come late", async () => {
    addMany(150, (index) => NOW - index * 1_000);
    const { client } = open();
    const sought = { deliveryId: DELIVERY, spans: around(NOW - 2.5 * MINUTE_MS) };
    expect(await client.find(sought, NEVER)).toMatchObject({ found: "nothing" });
    fake.log.add(NOW - 140_000, { request_body: tagged(DELIVERY), response_body: { id: "em_late" } });
    expect(await client.find(sought, NEVER)).toMatchObject({ found: "accepted", providerMessageId: "em_late" });
  });

  test("requests are a second apart, whoever asks", async () => {
    addMany(3, () => NOW);
    let now = NOW;
    const slots: number[] = [];
    const clock = {
      now: () => now,
      wait: async (ms: number) => {
        slots.push(now + ms);
      },
    };
    const { client } = open({ clock });
    const sought = { deliveryId: DELIVERY, spans: around() };
    await Promise.all([client.find(sought, NEVER), client.find({ ...sought, deliveryId: OTHER }, NEVER)]);
    // The clock stands still: each request after the first has to wait a second longer than the one before it.
    expect(fake.questions).toHaveLength(slots.length + 1);
    expect(slots).toEqual(slots.map((_, index) => NOW + (index + 1) * 1_000));
    now += 60 * MINUTE_MS;
    await client.find(sought, NEVER);
    expect(slots.at(-1)).toBeLessThanOrEqual(now);
  });

  test("a rate limit is respected, within reason", async () => {
    const { client, waits } = open();
    const sought = { deliveryId: DELIVERY, spans: around() };
    for (const [asks, waited] of [
      [7, 7_000],
      [86_400, 60_000],
    ] as const) {
      fake.script("GET /logs", [RATE_LIMITED(asks)]);
      await client.find(sought, NEVER);
      waits.length = 0;
      await client.find(sought, NEVER);
      expect(waits[0]).toBeGreaterThan(waited - 1_000);
      expect(waits[0]).toBeLessThanOrEqual(waited);
    }
  });
});

test("only an account of Resend with a key for it can be asked", async () => {
  const account = { provider: "resend", apiKey: SEND_KEY, baseUrl: fake.url } as const;
  expect(openLookup(account)).toBeNull();
  expect(openLookup({ provider: "sandbox" })).toBeNull();
  expect(openLookup({ provider: "telegram", botToken: "1:a" })).toBeNull();
  const client = openLookup({ ...account, lookupApiKey: FULL_KEY });
  if (!client) throw new Error("no client");
  opened.push(client);
  await send({ do: "reset", effect: true });
  expect(await client.find({ deliveryId: DELIVERY, spans: [] }, NEVER)).toMatchObject({ found: "nothing" });
  expect(fake.questions).toHaveLength(0);
});
