import { sql } from "kysely";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { PROVIDERS } from "../../src/providers/index.ts";
import { forgetCounts } from "../../src/store/call-counts.ts";
import { registerChannels } from "../../src/store/channels.ts";
import { type TestDatabase, testDatabase } from "../support/database.ts";
import { apply, receipt } from "../support/receipts.ts";
import { type App, email, openApp, pointers } from "./open-app.ts";

let database: TestDatabase;
let app: App;
beforeAll(async () => {
  database = await testDatabase();
  app = await openApp(database.db);
});
afterAll(() => database.close());

const channels = async () => (await app.ask("/v1/channels")).body.data as { id: string }[];
const channel = async (id: string) => (await channels()).find((one) => one.id === id);

describe("channels", () => {
  test("are listed with their backlog, what is under way, and the oldest due time", async () => {
    expect(await channel("email")).toEqual({
      id: "email",
      provider: "resend",
      configured: true,
      paused: null,
      backlog: 0,
      in_flight: 0,
      oldest_due_at: null,
      breaker: { state: "closed", opened_at: null, until: null },
      rate: { per_second: null, source: "learned" },
      verdicts: {
        ...{ accepted: 0, refused: 0, deferred: 0, unknown: 0, calls_per_minute: 0 },
        latency_ms: { mean: null, max: null },
      },
      last_webhook_at: null,
    });
    const first = (await app.post(email())).body;
    await app.post(email());
    expect(await channel("email")).toMatchObject({ backlog: 2, oldest_due_at: first.next_attempt_at });
  });

  test("are paused with a reason, by somebody, until they are resumed", async () => {
    const paused = await app.ask("/v1/channels/email/pause", { json: { reason: "wrong price in the text" } });
    expect(paused.body.paused).toMatchObject({
      reason: "operator",
      note: "wrong price in the text",
      by: "admin",
      until: null,
    });
    app.woken.length = 0;
    const resumed = await app.ask("/v1/channels/email/resume", { method: "POST" });
    expect(resumed.body.paused).toBeNull();
    expect(app.woken).toEqual(["email"]);
    expect(app.logged.join("")).toMatch(/channel\.paused.*channel\.resumed/s);
  });

  test("tell the feed when they are paused and resumed, by whom and why; a second resume is no news", async () => {
    await app.ask("/v1/channels/email/pause", { json: { reason: "wrong price" } });
    await app.ask("/v1/channels/email/resume", { json: { reason: "price put right" } });
    await app.ask("/v1/channels/email/resume", { method: "POST" });
    const { rows } = await sql<{ type: string; data: unknown; producer: string }>`
      select e.type, e.data, p.name as producer from events e join producers p on p.id = e.producer_id
      where e.type like 'channel.%' order by e.id desc limit 2`.execute(database.db);
    const data = { channel: "email", reason: "operator", by: "admin" };
    expect(rows.toReversed()).toEqual([
      { type: "channel.paused", producer: "admin", data: { ...data, note: "wrong price" } },
      { type: "channel.resumed", producer: "admin", data: { ...data, note: "price put right" } },
    ]);
    for (const [json, pointer] of [
      [{ reason: "" }, "/reason"],
      [{ note: "x" }, "/note"],
    ] as const) {
      expect(pointers(await app.ask("/v1/channels/email/resume", { json }))).toEqual([pointer]);
    }
  });

  test("show the breaker, the rate, and when the last webhook came", async () => {
    const at = new Date("2026-08-30T06:00:00Z");
    await database.db
      .updateTable("channels")
      .set({ breaker_opened_at: at, breaker_open_until: at, learned_rate: 5, last_webhook_at: at })
      .where("id", "=", "email")
      .execute();
    expect(await channel("email")).toMatchObject({
      breaker: { state: "open", opened_at: at.toISOString(), until: at.toISOString() },
      rate: { per_second: 5, source: "learned" },
      last_webhook_at: at.toISOString(),
    });
    expect(await channel("telegram")).toMatchObject({ rate: { per_second: 30, source: "provider" } });
    expect(await channel("sandbox")).toMatchObject({ rate: { per_second: null, source: "provider" } });
  });

  test("show what the calls of the last five minutes proved, from all shards; older ones are forgotten in the end", async () => {
    const count = (minutesAgo: number, verdict: string, shard: number, calls: number, sum: number, max: number) =>
      sql`insert into call_counts values
        (date_trunc('minute', now()) - ${minutesAgo} * interval '1 minute', 'telegram', ${verdict}, ${shard}, ${calls}, ${sum}, ${max})`.execute(
        database.db,
      );
    await count(0, "accepted", 1, 10, 1_000, 200);
    await count(0, "accepted", 2, 20, 2_000, 150);
    await count(4, "deferred", 1, 10, 1_000, 900);
    await count(6, "unknown", 1, 99, 99_000, 30_000);
    await count(25 * 60 + 2, "unknown", 1, 99, 99_000, 30_000);
    const { verdicts } = (await channel("telegram")) as unknown as { verdicts: Record<string, number> };
    expect(verdicts).toMatchObject({
      ...{ accepted: 30, refused: 0, deferred: 10, unknown: 0 },
      latency_ms: { mean: 100, max: 900 },
    });
    expect(verdicts["calls_per_minute"]).toBeGreaterThanOrEqual(8);
    expect(verdicts["calls_per_minute"]).toBeLessThanOrEqual(10);
    await forgetCounts(database.db);
    const { rows } = await sql<{ n: number }>`select count(*)::integer as n from call_counts`.execute(database.db);
    expect(rows[0]?.n).toBe(4);
  });

  test("are not paused without a reason", async () => {
    for (const [json, pointer] of [
      [{}, "/reason"],
      [{ reason: "" }, "/reason"],
      [{ reason: "a\u0000" }, "/reason"],
      [{ reason: "x", until: "y" }, "/until"],
    ] as const) {
      expect(pointers(await app.ask("/v1/channels/email/pause", { json }))).toEqual([pointer]);
    }
    expect(await channel("email")).toMatchObject({ paused: null });
  });

  test("that do not exist are not found, whatever their name", async () => {
    for (const id of ["nowhere", "%00", "%ff", "Email", "__proto__", "a%2Fb", "x".repeat(300)]) {
      expect((await app.ask(`/v1/channels/${id}/pause`, { json: { reason: "r" } })).status).toBe(404);
      expect((await app.ask(`/v1/channels/${id}/resume`, { method: "POST" })).status).toBe(404);
    }
  });

  test("keep their provider: an id that belongs to another one is refused at start", async () => {
    const moved = registerChannels(database.db, [{ id: "email", provider: "telegram", fingerprint: "f" }]);
    await expect(moved).rejects.toThrow(/email belongs to resend/);
  });

  test("that the ledger held for refused credentials are resumed when these change; a person's pause stays", async () => {
    const register = (fingerprint: string) =>
      registerChannels(database.db, [{ id: "telegram", provider: "telegram", fingerprint }]);
    const hold = (reason: string, by: string) =>
      database.db
        .updateTable("channels")
        .set({ paused_at: new Date(), pause_reason: reason, paused_by: by })
        .where("id", "=", "telegram")
        .execute();
    await hold("credentials_refused", "ledger");
    await register("f");
    expect(await channel("telegram")).toMatchObject({ paused: { reason: "credentials_refused", by: "ledger" } });
    await register("g");
    expect(await channel("telegram")).toMatchObject({ paused: null });
    await hold("operator", "ada");
    await register("h");
    expect(await channel("telegram")).toMatchObject({ paused: { by: "ada" } });
  });
});

test("the capability tables are served as they are in force, every answer with what it means and its source", async () => {
  const { body } = await app.ask("/v1/providers");
  expect(body.names_remembered_days).toBe(400);
  expect(body.data.map(({ provider }: { provider: string }) => provider)).toEqual(Object.keys(PROVIDERS));
  for (const table of body.data) {
    expect(table.answers).toHaveLength(PROVIDERS[table.provider]?.capability.answers.length ?? 0);
    for (const answer of table.answers) expect(answer.means && answer.source && answer.reason).toBeTruthy();
  }
});

describe("the service's own pages", () => {
  const open = (path: string, method = "GET") => app.ask(path, { key: null, method });

  test("health needs no key", async () => {
    expect(await open("/healthz")).toMatchObject({ status: 200, body: { status: "ok" } });
    expect(await open("/readyz")).toMatchObject({ status: 200, body: { status: "ok" } });
  });

  test("readiness says what is wrong", async () => {
    const faults = ["the database cannot be written to"];
    const sick = await openApp(database.db, { ready: async () => ({ ok: false, faults }) });
    const answered = await sick.ask("/readyz", { key: null });
    expect(answered).toMatchObject({ status: 503, body: { status: "unavailable", faults } });
  });

  test("the reference comes whole from our own origin, under a policy that allows no other", async () => {
    const page = await open("/docs");
    expect(page.headers.get("content-security-policy")).toMatch(/default-src 'none'; script-src 'self'/);
    const links = [...page.text.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, link = ""]) => link);
    expect(links.length).toBeGreaterThan(2);
    for (const link of [...links, "/openapi.json", "/openapi.yaml"]) {
      expect(link).toMatch(/^\//);
      expect((await open(link)).status).toBe(200);
    }
    for (const asset of ["package.json", "..%2Fpackage.json", "__proto__", "index.html"]) {
      expect((await open(`/docs/${asset}`)).status).toBe(404);
    }
  });

  test("what a problem means can be read at its type", async () => {
    const { type } = (await open("/nowhere")).body;
    expect((await open(type)).body).toMatchObject({ type, status: 404, meaning: expect.any(String) });
    expect((await open("/problems/constructor")).status).toBe(404);
  });

  test("an unknown path is a 404 problem, a wrong method a 405 problem that says which are allowed", async () => {
    for (const path of ["/", "/v1", "/v2/deliveries", "/v1/deliveries/", "/v1/deliveries/a/b/c", "/%00", "//"]) {
      expect((await open(path)).body).toMatchObject({ status: 404, type: "/problems/not-found" });
    }
    for (const [path, method, allow] of [
      ["/v1/deliveries", "DELETE", "POST, GET"],
      ["/v1/deliveries/batch", "PUT", "POST"],
      ["/v1/keys/7", "PATCH", "DELETE"],
      ["/healthz", "POST", "GET"],
      ["/openapi.json", "POST", "GET"],
    ] as const) {
      const answered = await open(path, method);
      expect(answered.body).toMatchObject({ status: 405, type: "/problems/method-not-allowed" });
      expect(answered.headers.get("allow")).toBe(allow);
    }
  });
});

describe("the log", () => {
  beforeEach(() => {
    app.logged.length = 0;
  });

  test("has one line a request: method, path, status, time, request and delivery; never contents", async () => {
    const secret = "a-secret-that-nobody-may-read";
    const { body, headers } = await app.post(
      email({ to: `${secret}@example.com`, message: { subject: secret, text: secret }, metadata: { secret } }),
      { headers: { cookie: secret } },
    );
    await app.ask(`/v1/deliveries?to=${secret}%40example.com&name=${secret}`);
    await app.post(email({ message: { subject: secret, html: 7 } }));
    expect(app.logged).toHaveLength(3);
    expect(app.logged.join("")).not.toContain(secret);
    expect(JSON.parse(app.logged[0] ?? "")).toMatchObject({
      level: "info",
      event: "http.request",
      method: "POST",
      path: "/v1/deliveries",
      status: 202,
      duration_ms: expect.any(Number),
      request_id: headers.get("x-request-id"),
      delivery_id: body.id,
    });
  });

  test.each([
    ["GET", "/v1/suppressions/email/", 404],
    ["PUT", "/v1/suppressions/email/", 422],
    ["PATCH", "/v1/suppressions/email/", 405],
    ["GET", "/v1/supressions/email/", 404],
  ])("shows no recipient of a path: %s %s…", async (method, path, status) => {
    const secret = "somebody-private";
    const answered = await app.ask(`${path}${secret}%40example.com`, { method, ...(method === "PUT" && { json: {} }) });
    expect(answered.status).toBe(status);
    await app.ask(`${path}${secret}%40example.com`, { method, key: null });
    expect(app.logged).toHaveLength(2);
    expect(app.logged.join("")).not.toContain(secret);
    expect(JSON.parse(app.logged[0] ?? "").path).toMatch(/^\/v1\/supp?ressions\/(email\/:recipient|…)$/);
  });

  test("of an unexpected error has the error, under the request id; the answer has no internals", async () => {
    const broken = await openApp(database.db, {
      wake: () => {
        throw new Error("select * from inside");
      },
    });
    const answered = await broken.post(email());
    expect(answered).toMatchObject({ status: 500, body: { type: "/problems/internal" } });
    expect(answered.text).not.toContain("inside");
    const failed = broken.logged.map((line) => JSON.parse(line)).find(({ event }) => event === "http.failed");
    expect(failed).toMatchObject({ level: "error", request_id: answered.headers.get("x-request-id") });
    expect(failed.err.message).toContain("inside");
  });
});

describe("a channel's activity", () => {
  const activity = async (id: string) =>
    (await app.ask("/v1/channels/activity")).body.data.find(({ channel }: { channel: string }) => channel === id);
  beforeEach(async () => {
    await sql`truncate deliveries, call_counts, receipts cascade`.execute(database.db);
  });

  test("is empty, and not missing, where nothing happened", async () => {
    expect(await activity("email")).toEqual({ channel: "email", minutes: [], rungs: [], receipts: [] });
  });

  test("has the last hour's calls by the minute, oldest first, from all shards", async () => {
    await sql`
      insert into call_counts
      select date_trunc('minute', now()) - ago * interval '1 minute', 'telegram', verdict, shard, calls, sum, max
      from (values (5, 'accepted', 1, 10, 1000, 200), (5, 'accepted', 2, 10, 2000, 150), (30, 'deferred', 1, 4, 40, 10),
        (61, 'unknown', 1, 9, 9, 9)) as counted (ago, verdict, shard, calls, sum, max)`.execute(database.db);
    const [first, second, ...others] = (await activity("telegram")).minutes;
    expect(first).toMatchObject({ accepted: 0, deferred: 4, latency_ms: { mean: 10, max: 10 } });
    expect(second).toMatchObject({ accepted: 20, deferred: 0, latency_ms: { mean: 150, max: 200 } });
    expect(first.at < second.at).toBe(true);
    expect(others).toEqual([]);
  });

  test("has the further attempts due in the next ten minutes, and neither first attempts nor later ones", async () => {
    const takeDue = async (attempts: number, inS: number) => {
      const { id } = (await app.post(email())).body;
      await sql`
        update deliveries set attempt_count = ${attempts}, next_attempt_at = now() + ${inS} * interval '1 second'
        where id = ${id}`.execute(database.db);
    };
    await takeDue(0, 30);
    await takeDue(1, 301);
    await takeDue(2, 301);
    await takeDue(1, 660);
    const { rungs } = await activity("email");
    expect(rungs).toEqual([{ at: expect.any(String), count: 2 }]);
  });

  test("has the last hour's receipts by what they say", async () => {
    const { id } = (await app.post(email())).body;
    for (const eventId of ["evt_1", "evt_2"]) await apply(database.db, receipt({ deliveryId: id, eventId }));
    await apply(database.db, receipt({ deliveryId: id, eventId: "evt_3" }));
    await sql`update receipts set received_at = now() - interval '61 minutes' where event_id = 'evt_3'`.execute(
      database.db,
    );
    expect((await activity("email")).receipts).toEqual([{ status: "delivered", count: 2 }]);
  });
});
