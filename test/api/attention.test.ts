import { sql } from "kysely";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { moveInTime } from "../support/builders.ts";
import { type TestDatabase, testDatabase } from "../support/database.ts";
import { putInDoubt } from "../support/doubt.ts";
import { apply, receipt } from "../support/receipts.ts";
import { type App, chat, email, openApp, pointers } from "./open-app.ts";

let database: TestDatabase;
let app: App;
const HOUR = 3_600_000;
beforeAll(async () => {
  database = await testDatabase();
  app = await openApp(database.db);
});
afterAll(() => database.close());
beforeEach(async () => {
  await sql`truncate deliveries, suppressions, events, receipts cascade`.execute(database.db);
});

type Request = Record<string, unknown>;
type Doubt = Parameters<typeof putInDoubt>[2];
/** A delivery in needs-attention, and its item. */
async function doubtful(request: Request = chat(), more: Doubt = {}) {
  const { id } = (await app.post(request)).body;
  return { id, item: await putInDoubt(database.db, id, more) };
}
const list = async (query = "") => (await app.ask(`/v1/attention${query}`)).body;
const read = async (item: string) => (await app.ask(`/v1/attention/${item}`)).body;
const resolve = (item: string, json: Request, key?: string) =>
  app.ask(`/v1/attention/${item}/resolve`, {
    json: { note: "looked at it", ...json },
    ...(key !== undefined && { key }),
  });
const deliveryOf = async (id: string) => (await app.ask(`/v1/deliveries/${id}`)).body;
const actionsOf = (item: { actions: { action: string }[] }) => item.actions.map(({ action }) => action);
const types = async (id: string) =>
  (await app.ask(`/v1/deliveries/${id}/timeline`)).body.data.map(({ type }: { type: string }) => type);

describe("an item shows what an operator needs to decide", () => {
  test("which attempt is in doubt, which phase of which answer, and what the provider guarantees", async () => {
    const { item, id } = await doubtful();
    const shown = (await list()).data[0];
    expect(shown).toMatchObject({
      id: item,
      delivery_id: id,
      channel: "telegram",
      to: "-100123",
      preview: "It is on its way.",
      reason: "timeout",
      why: {
        text: "the request was written, and no answer came in time",
        attempt: { number: 1, verdict: "unknown", phase: "sent", error: { code: "TIMEOUT" } },
        contradiction: null,
      },
      guarantees: [expect.stringContaining("telegram recognises no repeat"), expect.any(String)],
      delivery: { state: "needs_attention", attempts: [{ number: 1 }], attention: { id: item } },
      resolution: null,
    });
  });

  test("what each action risks; a resend that may duplicate says so", async () => {
    await doubtful();
    const [{ actions, same_key_until }] = (await list()).data;
    expect(actions).toEqual([
      { action: "mark_sent", may_duplicate: false, until: null, risk: expect.any(String) },
      {
        ...{ action: "resend", may_duplicate: true, until: null },
        risk: "If attempt 1 went through, the recipient gets the message twice.",
      },
      { action: "abandon", may_duplicate: false, until: null, risk: expect.any(String) },
    ]);
    expect(same_key_until).toBeNull();
  });

  test("its receipts, and what else the recipient was sent around that time", async () => {
    const other = (await app.post(chat())).body;
    await app.post(chat({ to: "7" }));
    const { id, item } = await doubtful();
    await apply(database.db, receipt({ channel: "telegram", deliveryId: other.id, status: "delivered" }));
    await sql`update deliveries set state = 'failed', failure = 'abandoned' where id = ${id}`.execute(database.db);
    await apply(database.db, receipt({ channel: "telegram", deliveryId: id, status: "opened" }));
    const shown = await read(item);
    expect(shown.same_recipient).toMatchObject([{ id: other.id, name: other.name }]);
    expect(shown.receipts).toMatchObject([{ status: "opened" }]);
  });
});

describe("the key-window clock", () => {
  test("while the provider remembers the key, a repeat under it is offered as the safe action; then it is not", async () => {
    const { id, item } = await doubtful(email());
    const open = await read(item);
    expect(actionsOf(open)).toEqual(["mark_sent", "resend_same_key", "resend", "abandon"]);
    const claimedAt = Date.parse(open.delivery.attempts[0].claimed_at);
    expect(Date.parse(open.same_key_until)).toBe(claimedAt + 23 * HOUR);
    expect(open.actions[1]).toMatchObject({ may_duplicate: false, until: open.same_key_until });
    await moveInTime(database.db, id, 23 * HOUR);
    const lapsed = await read(item);
    expect(actionsOf(lapsed)).toEqual(["mark_sent", "resend", "abandon"]);
    expect(lapsed.same_key_until).toBeNull();
    expect((await resolve(item, { action: "resend_same_key" })).body).toMatchObject({
      type: "/problems/not-possible",
      detail: "the provider may have forgotten the key",
    });
  });

  test("a repeat under the same key needs no acknowledgement, and starts a ladder that keeps the key", async () => {
    const { id, item } = await doubtful(email());
    const { status, body } = await resolve(item, { action: "resend_same_key" });
    expect([status, body.state]).toEqual([200, "pending"]);
    expect(app.woken).toContain("email");
    const { rows } = await sql`select ladder, ladder_key from deliveries where id = ${id}`.execute(database.db);
    expect(rows).toEqual([{ ladder: 2, ladder_key: "same" }]);
  });

  test("is not offered for a delivery that has expired, or whose recipient is suppressed", async () => {
    const { id, item } = await doubtful(email({ expires_at: new Date(Date.now() + HOUR).toISOString() }));
    await sql`insert into suppressions (channel, recipient, reason, created_by)
      values ('email', 'ada@example.com', 'complaint', 'ledger')`.execute(database.db);
    expect(actionsOf(await read(item))).toEqual(["mark_sent", "abandon"]);
    await sql`truncate suppressions`.execute(database.db);
    expect(actionsOf(await read(item))).toContain("resend");
    await moveInTime(database.db, id, HOUR);
    expect(actionsOf(await read(item))).toEqual(["mark_sent", "abandon"]);
  });
});

describe("resolving", () => {
  test("mark_sent: the delivery is sent, by a person's word, which is kept with who, when and why", async () => {
    const { id, item } = await doubtful();
    const key = await app.keyFor(null, "attention:read", "attention:write");
    const answer = await resolve(item, { action: "mark_sent", note: "she has it", provider_message_id: "77" }, key);
    expect(answer.body).toMatchObject({ state: "sent", provider_message_id: "77", attention: null });
    const resolution = { action: "mark_sent", by: "key of null", note: "she has it" };
    expect((await read(item)).resolution).toMatchObject(resolution);
    expect((await read(item)).history).toMatchObject([{ type: "attention.resolved", ...resolution }]);
    expect(await types(id)).toEqual(["delivery.accepted", "attention.resolved", "delivery.sent"]);
  });

  test("abandon: it is failed, as abandoned", async () => {
    const { item } = await doubtful();
    expect((await resolve(item, { action: "abandon" })).body).toMatchObject({ state: "failed", failure: "abandoned" });
  });

  test("resend: a fresh ladder under a fresh key, at once", async () => {
    const { id, item } = await doubtful();
    const { body } = await resolve(item, { action: "resend", acknowledge_duplicate_risk: true });
    expect(body).toMatchObject({ state: "pending", hold: null, attention: null });
    const { rows } = await sql`select ladder, ladder_key, in_doubt from deliveries where id = ${id}`.execute(
      database.db,
    );
    expect(rows).toEqual([{ ladder: 2, ladder_key: "fresh", in_doubt: true }]);
  });

  test("a resend that may duplicate must be acknowledged; nothing changes until it is", async () => {
    const { id, item } = await doubtful();
    for (const json of [{}, { acknowledge_duplicate_risk: false }]) {
      const { status, body } = await resolve(item, { action: "resend", ...json });
      expect([status, body.type]).toEqual([422, "/problems/duplicate-risk"]);
      expect(body.errors).toMatchObject([{ pointer: "/acknowledge_duplicate_risk" }]);
    }
    expect((await deliveryOf(id)).state).toBe("needs_attention");
  });

  test("the first resolution wins; the second is told what won, by whom and when", async () => {
    const { item } = await doubtful();
    await resolve(item, { action: "abandon", note: "too late" });
    const { status, body } = await resolve(item, { action: "mark_sent" });
    expect([status, body.type]).toEqual([409, "/problems/already-resolved"]);
    expect(body.resolution).toMatchObject({ action: "abandon", by: "admin", note: "too late" });
  });

  test("of twenty operators acting at once exactly one wins", async () => {
    const { id, item } = await doubtful();
    const actions = ["mark_sent", "abandon", "resend"];
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, n) =>
        resolve(item, { action: actions[n % 3], acknowledge_duplicate_risk: true, note: `operator ${n}` }),
      ),
    );
    const won = answers.filter(({ status }) => status === 200);
    expect(won).toHaveLength(1);
    const lost = answers.filter(({ status }) => status === 409);
    expect(lost).toHaveLength(19);
    const { resolution } = await read(item);
    for (const { body } of lost) expect(body.resolution).toEqual(resolution);
    expect((await types(id)).filter((type: string) => type === "attention.resolved")).toHaveLength(1);
  });

  test("what evidence has settled is not resolved again", async () => {
    const { id, item } = await doubtful(email());
    await apply(database.db, receipt({ deliveryId: id }));
    const { status, body } = await resolve(item, { action: "abandon" });
    expect([status, body.resolution.action, body.resolution.by]).toEqual([409, "evidence", "ledger"]);
  });

  test("a contradiction about what is final is closed without moving it", async () => {
    const { id } = (await app.post(email())).body;
    await app.ask(`/v1/deliveries/${id}/cancel`, { method: "POST" });
    await apply(database.db, receipt({ deliveryId: id, providerMessageId: "em_1" }));
    const [item] = (await list()).data;
    expect(item).toMatchObject({ reason: "contradiction", why: { contradiction: { why: "nothing_was_accepted" } } });
    expect(actionsOf(item)).toEqual(["abandon"]);
    expect((await resolve(item.id, { action: "mark_sent" })).body.type).toBe("/problems/not-possible");
    expect((await resolve(item.id, { action: "abandon" })).body).toMatchObject({ state: "cancelled", attention: null });
  });

  test.each<[string, Request, string]>([
    ["an unknown action", { action: "retry" }, "/action"],
    ["no note", { action: "abandon", note: undefined }, "/note"],
    ["an empty note", { action: "abandon", note: "" }, "/note"],
    ["an unknown field", { action: "abandon", force: true }, "/force"],
    ["a message id with another action", { action: "abandon", provider_message_id: "1" }, "/provider_message_id"],
  ])("%s is refused with a pointer", async (_, json, pointer) => {
    const { item } = await doubtful();
    const answer = await resolve(item, json);
    expect([answer.status, pointers(answer)]).toEqual([422, [pointer]]);
  });

  test("an item of another producer's is not there", async () => {
    const { item } = await doubtful();
    const key = await app.keyFor("other", "attention:read", "attention:write");
    expect((await resolve(item, { action: "abandon" }, key)).status).toBe(404);
    expect((await app.ask("/v1/attention", { key })).body.data).toEqual([]);
    expect((await app.ask("/v1/attention/summary", { key })).body).toEqual({ total: 0, data: [] });
  });
});

describe("in bulk", () => {
  const bulk = (json: Request) =>
    app.ask("/v1/attention/resolve", { json: { action: "abandon", note: "outage", ...json } });

  test("by ids: one answer each, in order; the same id twice is decided in order", async () => {
    const [a, b] = [await doubtful(), await doubtful()];
    await resolve(b.item, { action: "mark_sent" });
    const unknown = "01990000-0000-7000-8000-000000000000";
    const { body } = await bulk({ ids: [a.item, b.item, unknown, a.item] });
    expect(body.data.map(({ id, status }: { id: string; status: number }) => [id, status])).toEqual([
      [a.item, 200],
      [b.item, 409],
      [unknown, 404],
      [a.item, 409],
    ]);
    expect(body.data[0].delivery).toMatchObject({ id: a.id, state: "failed" });
  });

  test("by filter, with the expected count: another count resolves nothing, and says how many there are", async () => {
    await Promise.all([doubtful(), doubtful(), doubtful(email())]);
    const filter = { channel: "telegram" };
    const { status, body } = await bulk({ filter, expected_count: 3 });
    expect([status, body.type, body.actual_count]).toEqual([409, "/problems/count-mismatch", 2]);
    expect((await list()).data).toHaveLength(3);
    expect((await bulk({ filter, expected_count: 2 })).body.data).toHaveLength(2);
    expect((await list()).data).toHaveLength(1);
  });

  test("a resend of many needs the acknowledgement for each that may duplicate", async () => {
    const [a, b] = [await doubtful(), await doubtful()];
    const json = { ids: [a.item, b.item], action: "resend" };
    const refused = (await bulk(json)).body.data.map(({ status }: { status: number }) => status);
    expect(refused).toEqual([422, 422]);
    const done = (await bulk({ ...json, acknowledge_duplicate_risk: true })).body.data;
    expect(done.map(({ status }: { status: number }) => status)).toEqual([200, 200]);
  });

  test.each<[string, Request, string]>([
    ["neither ids nor filter", {}, "/ids"],
    ["both", { ids: ["01990000-0000-7000-8000-000000000000"], filter: {}, expected_count: 1 }, "/ids"],
    ["a filter without a count", { filter: {} }, "/expected_count"],
    ["no ids", { ids: [] }, "/ids"],
    ["an unknown filter", { filter: { colour: "red" }, expected_count: 1 }, "/filter/colour"],
  ])("%s is refused with a pointer", async (_, json, pointer) => {
    const answer = await bulk(json);
    expect([answer.status, pointers(answer)]).toEqual([422, [pointer]]);
  });
});

describe("the queue", () => {
  test("is listed oldest first, and paged without losing or repeating an item, also of one millisecond", async () => {
    const made = [];
    for (let n = 0; n < 7; n += 1) made.push((await doubtful(chat(), { agoMs: n < 2 ? 5_000 : 10_000 })).item);
    await sql`update attention_items set opened_at = date_trunc('second', opened_at)`.execute(database.db);
    const seen: string[] = [];
    for (let cursor: string | null = ""; cursor !== null; ) {
      const page = await list(`?limit=2${cursor ? `&cursor=${cursor}` : ""}`);
      seen.push(...page.data.map(({ id }: { id: string }) => id));
      cursor = page.next_cursor;
    }
    expect(seen.toSorted()).toEqual(made.toSorted());
    expect(new Set(seen.slice(5))).toEqual(new Set(made.slice(0, 2)));
  });

  test.each([
    "x",
    "YXR0ZW50aW9uOjE6eA",
    Buffer.from("attention:999999999999999:01990000-0000-7000-8000-000000000000").toString("base64url"),
    "ZGVsaXZlcmllczoxOjAxOTkwMDAwLTAwMDAtNzAwMC04MDAwLTAwMDAwMDAwMDAwMA",
  ])("a cursor that is none of its own is refused: %s", async (cursor) =>
    expect((await list(`?cursor=${cursor}`)).type).toBe("/problems/invalid-cursor"),
  );

  test("is filtered by channel, reason, assignee, producer and age", async () => {
    const old = await doubtful(chat(), { agoMs: 120_000 });
    const lease = await doubtful(email(), { reason: "lease_expired" });
    await app.ask(`/v1/attention/${lease.item}/assign`, { json: { assignee: "eve" } });
    const ids = async (query: string) => (await list(query)).data.map(({ id }: { id: string }) => id);
    expect(await ids("?channel=email")).toEqual([lease.item]);
    expect(await ids("?reason=timeout")).toEqual([old.item]);
    expect(await ids("?assignee=eve")).toEqual([lease.item]);
    expect(await ids("?assignee=none")).toEqual([old.item]);
    expect(await ids("?older_than=60")).toEqual([old.item]);
    expect(await ids("?producer=admin")).toHaveLength(2);
    expect(await ids("?producer=nobody")).toEqual([]);
    expect((await list("?older_than=-1")).type).toBe("/problems/invalid-parameter");
  });

  test("is summed up by channel and reason, with the oldest age", async () => {
    await doubtful(chat(), { agoMs: 90_000 });
    await doubtful();
    const { item } = await doubtful(email());
    await app.ask(`/v1/attention/${item}/snooze`, { json: { until: new Date(Date.now() + HOUR).toISOString() } });
    const { body } = await app.ask("/v1/attention/summary");
    expect(body).toMatchObject({
      total: 3,
      data: [
        { channel: "telegram", reason: "timeout", count: 2, snoozed: 0 },
        { channel: "email", reason: "timeout", count: 1, snoozed: 1 },
      ],
    });
    expect(body.data[0].oldest_age_s).toBeGreaterThanOrEqual(90);
  });
});

describe("working together", () => {
  const handle = (item: string, what: string, json: Request) => app.ask(`/v1/attention/${item}/${what}`, { json });

  test("assigning, putting off and noting are kept with who and when", async () => {
    const { item } = await doubtful();
    const until = new Date(Date.now() + HOUR).toISOString();
    expect((await handle(item, "assign", { assignee: "eve" })).body.assignee).toBe("eve");
    expect((await handle(item, "snooze", { until })).body.snoozed_until).toBe(until);
    const { history } = (await handle(item, "notes", { note: "asked her" })).body;
    expect(history).toMatchObject([
      { type: "attention.assigned", assignee: "eve", by: "admin" },
      { type: "attention.snoozed", until, by: "admin" },
      { type: "attention.noted", note: "asked her", by: "admin" },
    ]);
    expect((await handle(item, "assign", { assignee: null })).body.assignee).toBeNull();
  });

  test("what was put off is out of the list until its time, unless it is asked for", async () => {
    const { item } = await doubtful();
    await handle(item, "snooze", { until: new Date(Date.now() + HOUR).toISOString() });
    expect((await list()).data).toEqual([]);
    expect((await list("?snoozed=true")).data).toHaveLength(1);
    await sql`update attention_items set snoozed_until = now()`.execute(database.db);
    expect((await list()).data).toHaveLength(1);
  });

  test("a resolved item takes no more of it: 409 with the resolution", async () => {
    const { item } = await doubtful();
    await resolve(item, { action: "abandon" });
    for (const [what, json] of [
      ["assign", { assignee: "eve" }],
      ["snooze", { until: new Date(Date.now() + HOUR).toISOString() }],
      ["notes", { note: "n" }],
    ] as const) {
      const { status, body } = await handle(item, what, json);
      expect([status, body.resolution.action]).toEqual([409, "abandon"]);
    }
  });

  test("a time that has passed is refused", async () => {
    const { item } = await doubtful();
    const answer = await handle(item, "snooze", { until: "2020-01-01T00:00:00Z" });
    expect([answer.status, pointers(answer)]).toEqual([422, ["/until"]]);
  });
});

describe("a page of the queue", () => {
  test("says how many items the filter names, however few it shows", async () => {
    await doubtful();
    await doubtful();
    await doubtful(email());
    expect(await list("?channel=telegram&limit=1")).toMatchObject({ data: [{}], total: 2 });
  });

  test("has the items asked for by their ids and no others", async () => {
    const one = await doubtful();
    await doubtful();
    const other = await doubtful();
    const shown = await list(`?ids=${other.item},${one.item}`);
    expect(shown.data.map(({ id }: { id: string }) => id)).toEqual([one.item, other.item]);
    expect(shown.total).toBe(2);
  });

  test("is refused for ids that are none, and for more than 100", async () => {
    const { item } = await doubtful();
    for (const ids of ["", "7", `${item},`, Array(101).fill(item).join(",")]) {
      const answered = await app.ask(`/v1/attention?ids=${ids}`);
      expect(answered, ids).toMatchObject({ status: 400, body: { type: "/problems/invalid-parameter" } });
    }
  });
});
