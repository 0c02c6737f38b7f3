import { sql } from "kysely";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openDatabase } from "../../src/store/database.ts";
import { databaseFaults } from "../../src/store/readiness.ts";
import { type TestDatabase, testDatabase } from "../support/database.ts";
import { openProxy } from "../support/proxy.ts";
import { ADMIN_KEY, appOn, email, openApp } from "./open-app.ts";

let database: TestDatabase;
beforeAll(async () => {
  database = await testDatabase();
});
afterAll(() => database.close());

/** The API on a database of which the way there can break. */
async function behindProxy() {
  const proxy = await openProxy(database.url);
  const through = openDatabase({ url: proxy.url, poolSize: 4, applicationName: "behind a proxy" });
  const app = await openApp(through.db);
  return {
    proxy,
    app,
    db: through.db,
    async close() {
      await through.close();
      await proxy.close();
    },
  };
}

const rows = (name: string) => database.db.selectFrom("deliveries").selectAll().where("name", "=", name).execute();
const seconds = async <T>(work: Promise<T>): Promise<[T, number]> => {
  const startedAt = performance.now();
  return [await work, (performance.now() - startedAt) / 1_000];
};

test("with no database at all, every endpoint answers 503 within ten seconds, and says when to come again", async () => {
  const closed = openDatabase({ url: "postgres://nobody@127.0.0.1:1/none", poolSize: 2, applicationName: "closed" });
  const app = appOn({
    db: closed.db,
    admin: { key: ADMIN_KEY, producerId: "01990000-0000-7000-8000-000000000000" as never },
  });
  const answers = await Promise.all([
    seconds(app.post(email())),
    seconds(app.ask("/v1/deliveries/batch", { json: [email()] })),
    seconds(app.ask("/v1/deliveries")),
    seconds(app.post(email(), { key: "dl_some_key_that_must_be_looked_up" })),
    seconds(app.post(email({ channel: "elsewhere" }))),
    seconds(app.ask("/v1/keys")),
  ]);
  for (const [answered, took] of answers) {
    expect(answered).toMatchObject({ status: 503, body: { type: "/problems/unavailable" } });
    expect(Number(answered.headers.get("retry-after"))).toBeGreaterThan(0);
    expect(took).toBeLessThan(10);
  }
  expect((await app.ask("/healthz", { key: null })).status).toBe(200);
  await closed.close();
}, 30_000);

test("a database that hangs is answered 503 within ten seconds; when it is back, so is the ledger, and nothing is there twice", async () => {
  const { proxy, app, close } = await behindProxy();
  const key = await app.keyFor("shop", "deliveries:write");
  proxy.stall(true);
  const requests = [email(), email(), email()];
  const answers = await Promise.all([
    seconds(app.post(requests[0])),
    seconds(app.post(requests[1], { key })),
    seconds(app.ask("/v1/deliveries/batch", { json: [requests[2]] })),
    seconds(app.ask("/v1/deliveries")),
  ]);
  for (const [{ status }, took] of answers) {
    expect(status).toBe(503);
    expect(took).toBeLessThan(10);
  }
  proxy.stall(false);
  proxy.away(true);
  proxy.away(false);
  await expect.poll(async () => (await app.post(requests[0])).status, { timeout: 15_000 }).toBeLessThan(300);
  expect(await rows(requests[0]?.name ?? "")).toHaveLength(1);
  await close();
}, 60_000);

describe("a commit whose answer is lost", () => {
  test("is answered 503, and the repeat gets the one delivery", async () => {
    const { proxy, app, close } = await behindProxy();
    for (const how of ["cut after", "cut before"] as const) {
      const request = email();
      let cut = false;
      proxy.treat((chunk) => {
        if (cut || !chunk.includes("insert into deliveries")) return "pass";
        cut = true;
        return how;
      });
      const first = await app.post(request);
      expect(first).toMatchObject({ status: 503, body: { type: "/problems/unavailable" } });
      // Whether it was committed: the server may still be about it when the connection is gone.
      const again = await app.post(request);
      expect([200, 202]).toContain(again.status);
      expect(await rows(request.name)).toMatchObject([{ id: again.body.id }]);
    }
    await close();
  });

  test("takes nothing from those who share the commit: each repeats under its own name", async () => {
    const { proxy, app, close } = await behindProxy();
    const requests = Array.from({ length: 30 }, () => email());
    let cut = 0;
    proxy.treat((chunk) => (chunk.includes("insert into deliveries") && ++cut % 2 === 1 ? "cut after" : "pass"));
    for (let pending = requests; pending.length > 0; ) {
      const answers = await Promise.all(pending.map((request) => app.post(request)));
      for (const { status } of answers) expect([200, 202, 503]).toContain(status);
      pending = pending.filter((_, i) => answers[i]?.status === 503);
    }
    for (const { name } of requests) expect(await rows(name)).toHaveLength(1);
    await close();
  });
});

test("connections that break cost the pool nothing", async () => {
  const { proxy, app, close } = await behindProxy();
  for (let i = 0; i < 12; i += 1) {
    let cut = false;
    proxy.treat((chunk) => {
      if (cut || !chunk.includes("insert into deliveries")) return "pass";
      cut = true;
      return i % 2 === 0 ? "cut after" : "cut before";
    });
    expect((await app.post(email())).status).toBe(503);
  }
  const answers = await Promise.all(Array.from({ length: 20 }, () => app.ask("/v1/deliveries")));
  expect(answers.every(({ status }) => status === 200)).toBe(true);
  expect((await app.post(email())).status).toBe(202);
  await close();
}, 60_000);

test.each(["53100", "57014", "42501", "40001", "P0001"])(
  "an insert that fails, here with SQLSTATE %s, is never answered 2xx",
  async (code) => {
    const { db } = database;
    await sql`
      create function refuse_insert() returns trigger language plpgsql as $$
      begin raise exception 'no' using errcode = ${sql.lit(code)}; end $$`.execute(db);
    await sql`create trigger refused before insert on messages for each row execute function refuse_insert()`.execute(
      db,
    );
    const app = await openApp(db);
    const request = email();
    const answered = await app.post(request);
    const batch = await app.ask("/v1/deliveries/batch", { json: [request] });
    await sql`drop function refuse_insert cascade`.execute(db);
    for (const { status } of [answered, batch]) expect(status).toBeGreaterThanOrEqual(500);
    expect(await rows(request.name)).toEqual([]);
    expect((await app.post(request)).status).toBe(202);
  },
);

test("a database that can be read and not written to is not ready, and answers 503 until there is one that can be", async () => {
  const { db, sql: driver, close } = openDatabase({ url: database.url, poolSize: 1, applicationName: "read-only" });
  const app = await openApp(db);
  await driver`set session characteristics as transaction read only`;
  expect(await databaseFaults(db)).toEqual(["the database cannot be written to"]);
  expect((await app.post(email())).body).toMatchObject({ status: 503, type: "/problems/unavailable" });
  // That connection was not used again.
  expect((await app.post(email())).status).toBe(202);
  await close();
});

test("a database that does not answer makes the service not ready, in time", async () => {
  const { db } = database;
  const app = await openApp(db, { ready: () => new Promise(() => {}) });
  const [answered, took] = await seconds(app.ask("/readyz", { key: null }));
  expect(answered).toMatchObject({ status: 503, body: { status: "unavailable" } });
  expect(took).toBeLessThan(5);
});
