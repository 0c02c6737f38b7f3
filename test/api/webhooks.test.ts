import { sql } from "kysely";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { DeliveryId } from "../../src/ledger/delivery.ts";
import { openDatabase } from "../../src/store/database.ts";
import { membership, type ResendEvent, resendWebhook, type SignedRequest, telegramUpdate } from "../fakes/webhooks.ts";
import { type TestDatabase, testDatabase } from "../support/database.ts";
import { putInDoubt } from "../support/doubt.ts";
import { eventsOf } from "../support/receipts.ts";
import { ADMIN_KEY, type App, appOn, chat, email, openApp, RESEND_SECRET, TELEGRAM_SECRET } from "./open-app.ts";

let database: TestDatabase;
let app: App;
beforeAll(async () => {
  database = await testDatabase(20);
  app = await openApp(database.db);
});
afterAll(() => database.close());
beforeEach(async () => {
  await sql`truncate deliveries, suppressions, recipient_states, recipient_moves, events, receipts cascade`.execute(
    database.db,
  );
});

const hook = (signed: SignedRequest, path = "/v1/webhooks/resend/email", to: App = app) =>
  to.ask(path, { method: "POST", key: null, body: signed.body, headers: signed.headers });
const resendHook = (event: Omit<ResendEvent, "secrets">) => hook(resendWebhook({ secrets: [RESEND_SECRET], ...event }));
const telegramHook = (update: Record<string, unknown>, id?: number, secret = TELEGRAM_SECRET) =>
  hook(telegramUpdate(update, secret, id), "/v1/webhooks/telegram/telegram");
const accepted = async (request: Record<string, unknown> = email()): Promise<DeliveryId> =>
  (await app.post(request)).body.id;
const read = async (id: string) => (await app.ask(`/v1/deliveries/${id}`)).body;
const receipts = async (query = "") => (await app.ask(`/v1/receipts${query}`)).body.data;
const suppressed = async () =>
  (await sql<{ recipient: string; reason: string }>`select recipient, reason from suppressions`.execute(database.db))
    .rows;

describe("resend's webhooks", () => {
  test("a doubtful email's delivery leaves needs-attention when its webhook comes", async () => {
    const id = await accepted();
    await putInDoubt(database.db, id);
    const { status, body } = await resendHook({ deliveryId: id, emailId: "em_1" });
    expect([status, body]).toEqual([200, { received: true, result: "applied" }]);
    expect(await read(id)).toMatchObject({
      ...{ state: "sent", attention: null, provider_message_id: "em_1" },
      receipt: { status: "delivered" },
      attempts: [{ verdict: "accepted", evidence: "receipt" }],
    });
  });

  test("the same event twice is one, also when both come at once", async () => {
    const id = await accepted();
    await putInDoubt(database.db, id);
    const signed = resendWebhook({ secrets: [RESEND_SECRET], deliveryId: id });
    const answers = await Promise.all(Array.from({ length: 20 }, () => hook(signed)));
    const results = answers.map(({ body }) => body.result).toSorted();
    expect(results).toEqual(["applied", ...Array.from({ length: 19 }, () => "duplicate")]);
    expect((await eventsOf(database.db, id)).filter((type) => type === "receipt.delivered")).toHaveLength(1);
  });

  test("ten thousand events at once are all answered, and leave the right receipts", async () => {
    const batch = Array.from({ length: 500 }, () => email());
    const { body } = await app.ask("/v1/deliveries/batch", { json: batch });
    const ids: DeliveryId[] = body.data.map(({ delivery }: { delivery: { id: DeliveryId } }) => delivery.id);
    for (const id of ids.slice(0, 20)) await putInDoubt(database.db, id);
    await sql`update deliveries set state = 'sent', next_attempt_at = null, settled_at = now() where state = 'pending'`.execute(
      database.db,
    );
    await sql`insert into attempts (delivery_id, producer_id, number, ladder, generation, idempotency_key, recipient,
        claimed_by, lease_expires_at, settled_at, verdict, reason)
      select id, producer_id, 1, 1, 1, id || '.1', recipient, 'test', now() + interval '1 minute', now(), 'accepted', 'accepted'
      from deliveries where state = 'sent'`.execute(database.db);
    const kinds = ["email.sent", "email.delivered", "email.opened", "email.clicked", "email.delivery_delayed"];
    const signed = ids.flatMap((deliveryId) =>
      kinds.map((type) => resendWebhook({ secrets: [RESEND_SECRET], type, deliveryId, emailId: `em_${deliveryId}` })),
    );
    const order = [...signed, ...signed, ...signed, ...signed]
      .map((one, index) => ({ one, key: Math.imul(index + 1, 2_654_435_761) >>> 0 }))
      .toSorted((a, b) => a.key - b.key);
    const answers = await Promise.all(order.map(({ one }) => hook(one)));
    const results = Map.groupBy(answers, ({ status, body: answer }) => `${status} ${answer.result}`);
    expect([...results].map(([result, all]) => [result, all.length]).toSorted()).toEqual([
      ["200 applied", 2_500],
      ["200 duplicate", 7_500],
    ]);
    const { rows } = await sql`
      select state, receipt_status, count(*)::integer as n, count(distinct provider_message_id)::integer as ids
      from deliveries group by 1, 2`.execute(database.db);
    expect(rows).toEqual([{ state: "sent", receipt_status: "clicked", n: 500, ids: 500 }]);
    expect((await app.ask("/v1/attention")).body.data).toEqual([]);
  }, 60_000);

  test("events of unknown types, of other things, and about messages that are not ours are answered 2xx, kept, and visible", async () => {
    const id = await accepted();
    for (const type of ["email.brand_new", "contact.created", "email.received"])
      await resendHook({ type, deliveryId: id });
    await resendHook({ emailId: "em_of_another_service" });
    expect(await receipts("?matched=false")).toMatchObject([
      { type: "email.delivered", provider_message_id: "em_of_another_service", delivery_id: null },
      { type: "email.received", status: null },
      { type: "contact.created", status: null },
      { type: "email.brand_new", status: null },
    ]);
    expect(await read(id)).toMatchObject({ state: "pending", receipt: null });
  });

  test.each([
    ["altered", (signed: SignedRequest) => ({ ...signed, body: signed.body.replace("delivered", "bounced") })],
    ["unsigned", (signed: SignedRequest) => ({ ...signed, headers: { "content-type": "application/json" } })],
    ["odd", (signed: SignedRequest) => ({ ...signed, headers: { ...signed.headers, "svix-signature": "v1" } })],
  ])("one that is %s is answered 401, and changes no row", async (_, change) => {
    const id = await accepted();
    await putInDoubt(database.db, id);
    const signed = resendWebhook({ secrets: [RESEND_SECRET], deliveryId: id });
    const { status, body } = await hook(change(signed));
    expect([status, body.type]).toEqual([401, "/problems/invalid-signature"]);
    expect(await receipts()).toEqual([]);
    expect(await read(id)).toMatchObject({ state: "needs_attention" });
  });

  test("one that is older than five minutes is answered 401: a replay of long ago changes nothing", async () => {
    const { status } = await resendHook({ signedAt: new Date(Date.now() - 400_000) });
    expect([status, await receipts()]).toEqual([401, []]);
  });

  test("a body over the limit is refused while it is read, whatever its length says", async () => {
    const signed = resendWebhook({ secrets: [RESEND_SECRET] });
    let sent = 0;
    const endless = new ReadableStream<Uint8Array>({
      pull(controller) {
        sent += 65_536;
        controller.enqueue(new Uint8Array(65_536));
      },
    });
    const answer = await app.ask("/v1/webhooks/resend/email", {
      method: "POST",
      key: null,
      body: endless,
      headers: signed.headers,
    });
    expect(answer.status).toBe(413);
    expect(sent).toBeLessThan(2_000_000);
  });

  test("one for a channel that does not exist, or is another provider's, is answered 404", async () => {
    const signed = resendWebhook({ secrets: [RESEND_SECRET] });
    for (const channel of ["nowhere", "telegram", "EMAIL", "%00"]) {
      expect((await hook(signed, `/v1/webhooks/resend/${channel}`)).status).toBe(404);
    }
  });

  test("when the database is away it is answered 503, so that it is sent again", async () => {
    const closed = openDatabase({ url: "postgres://nobody@127.0.0.1:1/none", poolSize: 2, applicationName: "closed" });
    const admin = { key: ADMIN_KEY, producerId: "01990000-0000-7000-8000-000000000000" as never };
    const broken = appOn({ db: closed.db, admin });
    expect((await hook(resendWebhook({ secrets: [RESEND_SECRET] }), undefined, broken)).status).toBe(503);
    await closed.close();
  }, 20_000);

  test("a hard bounce and a complaint suppress the recipient; a bounce that may pass does not", async () => {
    const ids = [];
    for (const to of ["hard@example.com", "soft@example.com", "angry@example.com"])
      ids.push(await accepted(email({ to })));
    await resendHook({ type: "email.bounced", deliveryId: ids[0] ?? "", to: ["hard@example.com"] });
    const data = { bounce: { type: "Transient" } };
    await resendHook({ type: "email.bounced", deliveryId: ids[1] ?? "", to: ["soft@example.com"], data });
    await resendHook({ type: "email.complained", deliveryId: ids[2] ?? "", to: ["Angry@Example.com"] });
    expect(await suppressed()).toEqual([
      { recipient: "hard@example.com", reason: "hard_bounce" },
      { recipient: "angry@example.com", reason: "complaint" },
    ]);
  });
});

describe("telegram's webhooks", () => {
  const at = (seconds: number) => new Date(1_790_000_000_000 + seconds * 1_000);

  test("who blocks the bot is suppressed, and who unblocks it is not", async () => {
    expect((await telegramHook(membership(42, "kicked", at(0)))).body.result).toBe("applied");
    expect(await suppressed()).toEqual([{ recipient: "42", reason: "recipient_blocked" }]);
    await sql`update suppressions set created_at = ${at(0)}`.execute(database.db);
    expect((await telegramHook(membership(42, "member", at(60)))).body.result).toBe("applied");
    expect(await suppressed()).toEqual([]);
  });

  test("updates that come in another order, or twice, leave what was said last", async () => {
    await telegramHook(membership(42, "member", at(60)), 12);
    expect((await telegramHook(membership(42, "kicked", at(0)), 11)).body.result).toBe("duplicate");
    expect((await telegramHook(membership(42, "member", at(60)), 12)).body.result).toBe("duplicate");
    expect(await suppressed()).toEqual([]);
    expect((await telegramHook(membership(42, "kicked", at(60)), 13)).body.result).toBe("applied");
    expect(await suppressed()).toHaveLength(1);
  });

  test("an operator's suppression does not end when a user unblocks the bot", async () => {
    await sql`insert into suppressions (channel, recipient, reason, created_by)
      values ('telegram', '42', 'asked us to stop', 'eve')`.execute(database.db);
    await telegramHook(membership(42, "member", at(60)));
    expect(await suppressed()).toEqual([{ recipient: "42", reason: "asked us to stop" }]);
  });

  test("a group that moved is remembered", async () => {
    await telegramHook({ message: { chat: { id: -5 }, date: 1_790_000_000, migrate_to_chat_id: -1_009 } });
    const { rows } = await sql`select recipient, moved_to from recipient_moves`.execute(database.db);
    expect(rows).toEqual([{ recipient: "-5", moved_to: "-1009" }]);
  });

  test("what users write is answered 2xx, and nothing of it is kept", async () => {
    const answer = await telegramHook({ message: { chat: { id: 42 }, text: "a private word" } });
    expect([answer.status, answer.body.result]).toEqual([200, "ignored"]);
    expect(await receipts()).toEqual([]);
  });

  test("a wrong secret token, or none, is answered 401 and changes nothing", async () => {
    const { status } = await telegramHook(membership(42, "kicked"), 1, "wrong");
    const bare = { body: "{}", headers: { "content-type": "application/json" } };
    const missing = await hook(bare, "/v1/webhooks/telegram/telegram");
    expect([status, missing.status, await suppressed()]).toEqual([401, 401, []]);
  });
});

describe("receipts that other services report", () => {
  let events = 0;
  const report = (more: Record<string, unknown>) => ({
    ...{ channel: "email", event_id: `ev_${++events}`, status: "delivered", occurred_at: "2026-08-30T06:00:00Z" },
    ...more,
  });
  const post = (json: unknown, key?: string) => app.ask("/v1/receipts", { json, ...(key !== undefined && { key }) });

  test("have the same semantics: matched, once, by id, message id or name", async () => {
    const request = chat();
    const id = await accepted(request);
    await putInDoubt(database.db, id);
    const one = report({ channel: "telegram", name: request.name, status: "sent" });
    expect((await post(one)).body).toEqual({ event_id: one.event_id, result: "applied", delivery_id: id });
    expect((await post(one)).body.result).toBe("duplicate");
    expect(await read(id)).toMatchObject({ state: "sent", receipt: null });
    await post(report({ channel: "telegram", delivery_id: id.toUpperCase(), status: "opened" }));
    expect((await read(id)).receipt).toEqual({ status: "opened", at: "2026-08-30T06:00:00.000Z" });
  });

  test("in a list are answered in order, and a bad one spoils no other", async () => {
    const id = await accepted();
    const { status, body } = await post([
      report({ delivery_id: id }),
      report({ delivery_id: id, status: "lost" }),
      report({ channel: "nowhere", delivery_id: id }),
      report({ provider_message_id: "em_x" }),
      null,
    ]);
    expect(status).toBe(200);
    const short = body.data.map(
      (one: { status: number; receipt?: { result: string } }) => one.receipt?.result ?? one.status,
    );
    expect(short).toEqual(["applied", 422, 422, "unmatched", 422]);
  });

  test("of a producer's key reach its own deliveries alone", async () => {
    const id = await accepted();
    const key = await app.keyFor("shop", "receipts:write", "receipts:read");
    expect((await post(report({ delivery_id: id }), key)).body.result).toBe("unmatched");
    expect((await read(id)).receipt).toBeNull();
    expect((await app.ask("/v1/receipts", { key })).body.data).toHaveLength(1);
    const other = await app.keyFor("other", "receipts:read");
    expect((await app.ask("/v1/receipts", { key: other })).body.data).toEqual([]);
  });

  test("may tell more: text, or an object whose type says that a bounce may pass", async () => {
    const soft = { detail: { type: "Soft" } };
    for (const more of [{ detail: "mailbox full" }, { detail: { type: { toString: 1 } } }, soft]) {
      const to = `u${++events}@example.com`;
      const id = await accepted(email({ to }));
      expect((await post(report({ delivery_id: id, status: "bounced", ...more }))).status).toBe(200);
      expect((await receipts(`?delivery_id=${id}`))[0].detail).toEqual(more.detail);
      expect((await suppressed()).some(({ recipient }) => recipient === to)).toBe(more !== soft);
    }
  });

  test.each<[string, Record<string, unknown>, string]>([
    ["an unknown status", { status: "lost" }, "/status"],
    ["nothing that names a delivery", {}, "/delivery_id"],
    ["a delivery id that is none", { delivery_id: "7" }, "/delivery_id"],
    ["a time without an offset", { name: "n", occurred_at: "2026-08-30T06:00:00" }, "/occurred_at"],
    ["a time in the future", { name: "n", occurred_at: "2099-01-01T00:00:00Z" }, "/occurred_at"],
    ["an empty event id", { name: "n", event_id: "" }, "/event_id"],
    ["U+0000", { name: "n", detail: { a: "\u0000" } }, "/detail/a"],
    ["a detail that is too large", { name: "n", detail: { a: "x".repeat(5_000) } }, "/detail"],
    ["a number for detail", { name: "n", detail: 7 }, "/detail"],
    ["an unknown field", { name: "n", extra: 1 }, "/extra"],
  ])("with %s are refused with a pointer", async (_, more, pointer) => {
    const { status, body } = await post(report(more));
    expect([status, body.errors?.map(({ pointer: at }: { pointer: string }) => at)]).toEqual([422, [pointer]]);
  });
});

test("a channel tells when its last webhook came", async () => {
  await sql`update channels set last_webhook_at = null`.execute(database.db);
  const fresh = await openApp(database.db);
  await hook(resendWebhook({ secrets: [RESEND_SECRET] }), undefined, fresh);
  const { rows } = await sql<{ id: string }>`select id from channels where last_webhook_at is not null`.execute(
    database.db,
  );
  expect(rows).toEqual([{ id: "email" }]);
});
