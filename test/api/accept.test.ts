import { sql } from "kysely";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type TestDatabase, testDatabase } from "../support/database.ts";
import { type Answered, type App, email, fresh, openApp, pointers } from "./open-app.ts";

let database: TestDatabase;
let app: App;
beforeAll(async () => {
  database = await testDatabase();
  app = await openApp(database.db);
});
afterAll(() => database.close());

const rows = (name: string) => database.db.selectFrom("deliveries").selectAll().where("name", "=", name).execute();
const tally = (answers: readonly Answered[]) =>
  Object.fromEntries([...Map.groupBy(answers, ({ status }) => status)].map(([status, all]) => [status, all.length]));

describe("a new name", () => {
  test("is answered 202 with the delivery and its place, and is committed by then", async () => {
    const request = email({ metadata: { user: "42" }, expires_at: "2027-01-30T12:00:00+02:00" });
    const answered = await app.post(request);
    expect(answered.status).toBe(202);
    expect(answered.headers.get("location")).toBe(`/v1/deliveries/${answered.body.id}`);
    expect(answered.headers.has("idempotent-replayed")).toBe(false);
    expect(answered.body).toMatchObject({
      name: request.name,
      state: "pending",
      channel: "email",
      provider: "resend",
      producer: "admin",
      to: "ada@example.com",
      hold: null,
      attempt_count: 0,
      on_unknown: "attention",
      metadata: { user: "42" },
      expires_at: "2027-01-30T10:00:00.000Z",
      failure: null,
      receipt: null,
      occurrence: null,
      attention: null,
    });
    expect(await rows(request.name)).toHaveLength(1);
    expect(app.woken).toContain("email");
  });

  test("freezes the message exactly as posted, with everything that schemas pass over", async () => {
    const metadata = JSON.parse('{"__proto__":{"x":1},"constructor":"y","toString":1.50,"é":"\\u0065"}');
    const request = { ...email(), metadata };
    const { body } = await app.ask("/v1/deliveries", { body: JSON.stringify(request) });
    const stored = await database.db
      .selectFrom("messages")
      .select("request")
      .where("delivery_id", "=", body.id)
      .executeTakeFirstOrThrow();
    expect(JSON.stringify(stored.request)).toBe(JSON.stringify(request));
    const read = await app.ask(`/v1/deliveries/${body.id}`);
    expect(read.text).toContain('"metadata":{"__proto__":{"x":1},"constructor":"y","toString":1.5,"é":"e"}');
  });

  test("logs the acceptance in the same commit", async () => {
    const { body } = await app.post(email());
    const events = await database.db.selectFrom("events").selectAll().where("delivery_id", "=", body.id).execute();
    expect(events.map(({ type }) => type)).toEqual(["delivery.accepted"]);
  });

  test("with a deliver_at ahead waits as scheduled until then", async () => {
    const at = new Date(Date.now() + 3_600_000).toISOString();
    const { body } = await app.post(email({ deliver_at: at }));
    expect(body).toMatchObject({ deliver_at: at, next_attempt_at: at, hold: { reason: "scheduled", until: at } });
  });

  test("with a deliver_at that has passed is due now", async () => {
    const { body } = await app.post(email({ deliver_at: "2020-01-01T00:00:00Z" }));
    expect(Math.abs(Date.parse(body.next_attempt_at) - Date.now())).toBeLessThan(60_000);
    expect(body.hold).toBeNull();
  });
});

describe("a known name", () => {
  test("with the same request is answered 200 with the delivery as it stands, and drives it on", async () => {
    const request = email();
    const first = await app.post(request);
    await database.db
      .updateTable("deliveries")
      .set({ hold_reason: "ladder", attempt_count: 1 })
      .where("id", "=", first.body.id)
      .execute();
    app.woken.length = 0;
    const again = await app.post(request);
    expect(again.status).toBe(200);
    expect(again.headers.get("idempotent-replayed")).toBe("true");
    expect(again.body).toMatchObject({ id: first.body.id, attempt_count: 1 });
    expect(app.woken).toEqual(["email"]);
  });

  test("of a delivery that has ended wakes nobody", async () => {
    const request = email();
    const { body } = await app.post(request);
    await app.ask(`/v1/deliveries/${body.id}/cancel`, { method: "POST" });
    app.woken.length = 0;
    expect((await app.post(request)).body).toMatchObject({ id: body.id, state: "cancelled" });
    expect(app.woken).toEqual([]);
  });

  test("is the same request however keys are ordered, numbers and texts are spelt, and blanks are set", async () => {
    const name = fresh();
    const a = `{"name":"${name}","channel":"sandbox","to":"x","message":{"text":"é"},"metadata":{"a":100,"b":[1.50]}}`;
    const b = `{ "metadata": {"b":[15e-1], "a":1e2}, "message":{"text":"\\u00e9"},\n"to":"x","channel":"sandbox","name":"${name}"}`;
    expect((await app.ask("/v1/deliveries", { body: a })).status).toBe(202);
    expect((await app.ask("/v1/deliveries", { body: b })).status).toBe(200);
  });

  test("with another request is refused, naming the fields that differ and not their contents", async () => {
    const request = email({ metadata: { a: 1, "b/c": { d: "a secret" } } });
    await app.post(request);
    const other = { ...request, to: "bob@example.com", metadata: { a: 1, "b/c": { d: "a secret too" }, e: 2 } };
    const answered = await app.post(other);
    expect(answered.status).toBe(422);
    expect(answered.body.type).toBe("/problems/name-reused");
    expect(pointers(answered).toSorted()).toEqual(["/metadata/b~1c/d", "/metadata/e", "/to"]);
    expect(answered.text).not.toMatch(/secret|ada@|bob@/);
  });

  test("differs when only a key named __proto__ differs", async () => {
    const name = fresh();
    const body = (metadata: string) =>
      `{"name":"${name}","channel":"sandbox","to":"x","message":{"text":"t"},"metadata":${metadata}}`;
    expect((await app.ask("/v1/deliveries", { body: body('{"__proto__":{"x":1}}') })).status).toBe(202);
    const other = await app.ask("/v1/deliveries", { body: body("{}") });
    expect(other.body.type).toBe("/problems/name-reused");
    expect(pointers(other)).toEqual(["/metadata/__proto__"]);
  });

  test("is compared byte by byte: case and Unicode spelling make other names", async () => {
    const stem = fresh();
    const answers = [];
    for (const name of [`${stem} café`, `${stem} cafe\u0301`, `${stem} Café`, `${stem} __proto__`]) {
      answers.push(await app.post(email({ name })));
    }
    expect(answers.map(({ status }) => status)).toEqual([202, 202, 202, 202]);
  });

  test("is the producer's own: two producers may use one name", async () => {
    const request = email();
    const [a, b] = await Promise.all(["first", "second"].map((producer) => app.keyFor(producer, "deliveries:write")));
    const one = await app.post(request, { key: a as string });
    const two = await app.post(request, { key: b as string });
    expect([one.status, two.status]).toEqual([202, 202]);
    expect(one.body.id).not.toBe(two.body.id);
  });

  test("is answered although its expires_at has passed meanwhile; a new name is refused then", async () => {
    const expires = new Date(Date.now() + 700);
    const request = email({ expires_at: expires.toISOString() });
    const first = await app.post(request);
    expect(first.status).toBe(202);
    await new Promise((resolve) => setTimeout(resolve, expires.getTime() - Date.now() + 5));
    expect(await app.post(request)).toMatchObject({ status: 200, body: { id: first.body.id } });
    const fresh = await app.post({ ...request, name: `${request.name} again` });
    expect(fresh.body).toMatchObject({ status: 422, type: "/problems/invalid-request" });
    expect(pointers(fresh)).toEqual(["/expires_at"]);
    expect(await rows(`${request.name} again`)).toEqual([]);
  });

  test("of a delivery that retention removed is answered from its tombstone", async () => {
    const request = email();
    const { body } = await app.post(request);
    await sql`
      with removed as (delete from deliveries where id = ${body.id} returning *)
      insert into tombstones (producer_id, name, request_hash, delivery_id, outcome, forget_at)
      select producer_id, name, request_hash, id, '{"state":"sent"}', now() + interval '1 day' from removed`.execute(
      database.db,
    );
    const again = await app.post(request);
    expect(again).toMatchObject({
      status: 200,
      body: { id: body.id, name: request.name, removed: true, outcome: { state: "sent" } },
    });
    const other = await app.post({ ...request, to: "bob@example.com" });
    expect(other.body.type).toBe("/problems/name-reused");
    expect(await rows(request.name)).toEqual([]);
  });
});

describe("where the name comes from", () => {
  test("the header Idempotency-Key is the name when the body has none", async () => {
    const { name: _, ...request } = email();
    const name = fresh("header");
    const first = await app.post(request, { headers: { "idempotency-key": name } });
    expect(first).toMatchObject({ status: 202, body: { name } });
    expect((await app.post(request, { headers: { "idempotency-key": name } })).status).toBe(200);
    expect((await app.post({ ...request, name })).status).toBe(200);
  });

  test("header and body must agree", async () => {
    const request = email();
    expect((await app.post(request, { headers: { "idempotency-key": request.name } })).status).toBe(202);
    const answered = await app.post(request, { headers: { "idempotency-key": "another" } });
    expect(answered.status).toBe(422);
    expect(pointers(answered)).toEqual(["/name"]);
  });

  test("an occurrence makes the name, from its schedule, instant, channel and recipient", async () => {
    const { name: _, ...request } = email({
      occurrence: { schedule: "nightly-digest", due_at: "2026-08-30T08:00:00+02:00" },
    });
    const first = await app.post(request);
    expect(first.body).toMatchObject({
      name: "nightly-digest@2026-08-30T06:00:00.000Z/email/ada@example.com",
      occurrence: { schedule: "nightly-digest", due_at: "2026-08-30T06:00:00.000Z" },
    });
    expect((await app.post(request)).status).toBe(200);
  });

  test("a name of one's own stands beside an occurrence", async () => {
    const request = email({ occurrence: { schedule: "weekly", due_at: "2026-08-30T06:00:00Z" } });
    expect((await app.post(request)).body).toMatchObject({ name: request.name, occurrence: { schedule: "weekly" } });
  });

  test("none of them is refused: the ledger never invents a name", async () => {
    const { name: _, ...request } = email();
    const answered = await app.post(request);
    expect(answered.body).toMatchObject({ status: 400, type: "/problems/name-required" });
    expect(pointers(answered)).toEqual(["/name"]);
  });
});

describe("races", () => {
  test("of fifty equal posts one is accepted and the others are answered with it; then fifty that differ are refused", async () => {
    const request = email();
    const equal = await Promise.all(Array.from({ length: 50 }, () => app.post(request)));
    expect(tally(equal)).toEqual({ 200: 49, 202: 1 });
    expect(new Set(equal.map(({ body }) => body.id)).size).toBe(1);
    const other = { ...request, message: { ...request.message, text: "Another text." } };
    const different = await Promise.all(Array.from({ length: 50 }, () => app.post(other)));
    expect(tally(different)).toEqual({ 422: 50 });
    for (const answered of different) expect(pointers(answered)).toEqual(["/message/text"]);
    expect(await rows(request.name)).toHaveLength(1);
  });

  test("between replicas, too, one wins", async () => {
    const request = email();
    const replicas = await Promise.all(Array.from({ length: 4 }, () => openApp(database.db)));
    const answers = await Promise.all(Array.from({ length: 40 }, (_, i) => (replicas[i % 4] as App).post(request)));
    expect(tally(answers)).toEqual({ 200: 39, 202: 1 });
  });

  test("batches with the same names in opposite orders never fail each other", async () => {
    const stem = fresh("deadlock");
    const requests = Array.from({ length: 200 }, (_, i) => email({ name: `${stem}/${i}` }));
    const answers = await Promise.all(
      Array.from({ length: 8 }, (_, i) =>
        app.ask("/v1/deliveries/batch", { json: i % 2 === 0 ? requests : requests.toReversed() }),
      ),
    );
    const statuses = answers.flatMap(({ body }) => body.data.map(({ status }: { status: number }) => status));
    expect(statuses.filter((status) => status === 202)).toHaveLength(200);
    expect(statuses.filter((status) => status === 200)).toHaveLength(1_400);
  });
});

describe("a batch", () => {
  const batch = (json: unknown) => app.ask("/v1/deliveries/batch", { json });

  test("answers each in order, and a bad one spoils no other", async () => {
    const known = email();
    await app.post(known);
    const [a, b] = [email(), email()];
    const { status, body } = await batch([
      a,
      { ...b, channel: "nowhere" },
      known,
      { ...known, to: "bob@example.com" },
      null,
      b,
      { ...b, name: undefined },
      email({ to: "not an address" }),
    ]);
    expect(status).toBe(200);
    expect(body.data.map((one: { status: number }) => one.status)).toEqual([202, 422, 200, 422, 422, 202, 400, 422]);
    expect(body.data.map((one: { problem?: { type: string } }) => one.problem?.type.slice(10))).toEqual([
      undefined,
      "unknown-channel",
      undefined,
      "name-reused",
      "invalid-request",
      undefined,
      "name-required",
      "invalid-request",
    ]);
    expect(body.data[0].delivery.name).toBe(a.name);
  });

  test("decides the same name twice in order: the first wins", async () => {
    const request = email();
    const { body } = await batch([request, request, { ...request, to: "bob@example.com" }]);
    expect(body.data.map((one: { status: number }) => one.status)).toEqual([202, 200, 422]);
    expect(body.data[1].delivery.id).toBe(body.data[0].delivery.id);
    expect(await rows(request.name)).toMatchObject([{ recipient: "ada@example.com" }]);
  });

  test("one whose time has run out does not take its name from the next", async () => {
    const request = email();
    const { body } = await batch([{ ...request, expires_at: "2020-01-01T00:00:00Z" }, request]);
    expect(body.data[1]).toMatchObject({ status: 202, delivery: { expires_at: null } });
    expect(body.data[0].status).toBe(422);
  });

  test("takes a thousand in one commit, and no more", async () => {
    const stem = fresh("thousand");
    const many = Array.from({ length: 1_000 }, (_, i) => email({ name: `${stem}/${i}` }));
    const { body } = await batch(many);
    expect(body.data).toHaveLength(1_000);
    expect(body.data.every((one: { status: number }) => one.status === 202)).toBe(true);
    const { commits } = await database.db
      .selectFrom("events")
      .select(({ fn }) => fn.count<string>("tx").distinct().as("commits"))
      .where(
        "delivery_id",
        "in",
        body.data.map((one: { delivery: { id: never } }) => one.delivery.id),
      )
      .executeTakeFirstOrThrow();
    expect(Number(commits)).toBe(1);
    expect((await batch([...many, email()])).status).toBe(422);
  });

  test("that is empty or no list is refused", async () => {
    expect((await batch([])).body.type).toBe("/problems/invalid-request");
    expect((await batch(email())).body.type).toBe("/problems/invalid-request");
  });

  test("takes no Idempotency-Key: it names one delivery", async () => {
    const answered = await app.ask("/v1/deliveries/batch", { json: [email()], headers: { "idempotency-key": "k" } });
    expect(answered.body.type).toBe("/problems/invalid-parameter");
  });
});
