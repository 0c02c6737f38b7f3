import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ROUTES } from "../../src/api/routes/index.ts";
import type { Route } from "../../src/api/routes/route.ts";
import { createKey, ensureAdminKey, listKeys, SCOPES } from "../../src/store/keys.ts";
import { type TestDatabase, testDatabase } from "../support/database.ts";
import { type App, email, openApp, pointers } from "./open-app.ts";

let database: TestDatabase;
let app: App;
beforeAll(async () => {
  database = await testDatabase();
  app = await openApp(database.db);
});
afterAll(() => database.close());

const guarded = Object.entries<Route>(ROUTES).filter(([, { scope }]) => scope !== "public" && scope !== "signature");
const ask = ({ method, path }: Route, key: string | null) =>
  app.ask(path.replace("{id}", "01990000-0000-7000-8000-000000000000"), {
    method: method.toUpperCase(),
    key,
    ...(method === "post" && { body: "{}" }),
  });

describe("without a good key", () => {
  test.each(guarded)("%s is answered 401", async (_id, route) => {
    const bad = [null, "dl_nobody", `dl_${"x".repeat(43)}`, "x".repeat(2_000)];
    for (const key of bad) {
      const answered = await ask(route, key);
      expect(answered).toMatchObject({ status: 401, body: { type: "/problems/unauthorized" } });
      expect(answered.headers.get("www-authenticate")).toMatch(/^Bearer/);
    }
  });

  test("other schemes, blanks and the empty key are refused", async () => {
    for (const authorization of ["Basic YTpi", "Bearer", "Bearer ", "Bearer a b", "an-admin-key-of-the-tests"]) {
      expect((await app.ask("/v1/keys", { key: null, headers: { authorization } })).status).toBe(401);
    }
  });
});

describe("scopes", () => {
  test.each(guarded.filter(([, { scope }]) => scope !== null))(
    "%s needs its own scope, and no other will do",
    async (_id, route) => {
      const others = SCOPES.filter((scope) => scope !== route.scope);
      const answered = await ask(route, await app.keyFor("scopes", ...others));
      expect(answered).toMatchObject({ status: 403, body: { type: "/problems/forbidden" } });
      expect(answered.body.detail).toContain(route.scope);
      const allowed = await ask(route, await app.keyFor("scopes", route.scope as (typeof SCOPES)[number]));
      expect([401, 403]).not.toContain(allowed.status);
    },
  );

  test("the capability tables are for any key", async () => {
    expect((await app.ask("/v1/providers", { key: await app.keyFor("scopes", "receipts:write") })).status).toBe(200);
  });
});

describe("a key", () => {
  const make = (json: unknown) => app.ask("/v1/keys", { json });

  test("is shown once, works at once, and is refused from its revocation on", async () => {
    const made = await make({ name: "shop, production", producer: "shop", scopes: ["deliveries:write"] });
    expect(made).toMatchObject({ status: 201, body: { name: "shop, production", producer: "shop" } });
    const { id, key } = made.body;
    expect(key).toMatch(/^dl_[A-Za-z0-9_-]{43}$/);
    expect((await app.post(email(), { key })).status).toBe(202);
    const listed = await app.ask("/v1/keys");
    expect(listed.text).not.toContain(key);
    expect(listed.body.data).toContainEqual(expect.objectContaining({ id, producer: "shop", revoked_at: null }));
    expect((await app.ask(`/v1/keys/${id}`, { method: "DELETE" })).status).toBe(204);
    expect((await app.post(email(), { key })).status).toBe(401);
    expect((await app.ask(`/v1/keys/${id}`, { method: "DELETE" })).status).toBe(404);
  });

  test("is not in the database, in no form that could be used", async () => {
    const { key } = (await make({ name: "k", producer: "shop", scopes: ["deliveries:read"] })).body;
    const rows = await database.db.selectFrom("api_keys").selectAll().execute();
    expect(JSON.stringify(rows)).not.toContain(key);
  });

  test("of an operator has no producer, sees all, and posts nothing", async () => {
    const { body } = await make({ name: "operator", scopes: ["deliveries:read"] });
    expect(body.producer).toBeNull();
    const shop = (await app.post(email(), { key: await app.keyFor("shop", "deliveries:write") })).body;
    expect((await app.ask(`/v1/deliveries/${shop.id}`, { key: body.key })).status).toBe(200);
    const refused = await make({ name: "operator", producer: null, scopes: ["deliveries:write"] });
    expect(pointers(refused)).toEqual(["/producer"]);
  });

  test("that makes keys is the admin's alone", async () => {
    const refused = await make({ name: "k", producer: "shop", scopes: ["keys:write"] });
    expect(pointers(refused)).toEqual(["/scopes"]);
    expect((await make({ name: "k", producer: "admin", scopes: ["keys:write"] })).status).toBe(201);
  });

  test.each([
    [{ producer: "shop", scopes: ["deliveries:read"] }, "/name"],
    [{ name: "k", producer: "shop", scopes: [] }, "/scopes"],
    [{ name: "k", producer: "shop", scopes: ["everything"] }, "/scopes/0"],
    [{ name: "k", producer: "Shop!", scopes: ["deliveries:read"] }, "/producer"],
    [{ name: "k\u0000", producer: "shop", scopes: ["deliveries:read"] }, "/name"],
    [{ name: "k", producer: "shop", scopes: ["deliveries:read"], admin: true }, "/admin"],
  ])("with a fault is not made: %j", async (json, pointer) => {
    expect(pointers(await make(json))).toEqual([pointer]);
  });
});

test("producers see and touch nothing of each other's: 404, as if it were not there", async () => {
  const [mine, theirs] = await Promise.all(
    ["mine", "theirs"].map((producer) => app.keyFor(producer, "deliveries:write", "deliveries:read")),
  );
  const { body } = await app.post(email(), { key: theirs as string });
  const key = mine as string;
  for (const path of ["", "/timeline"]) {
    expect((await app.ask(`/v1/deliveries/${body.id}${path}`, { key })).status).toBe(404);
  }
  expect((await app.ask(`/v1/deliveries/${body.id}/cancel`, { method: "POST", key })).status).toBe(404);
  const name = encodeURIComponent(body.name);
  expect((await app.ask(`/v1/deliveries?name=${name}`, { key })).body.data).toEqual([]);
  expect((await app.ask(`/v1/deliveries?name=${name}`, { key: theirs as string })).body.data).toHaveLength(1);
  expect((await app.ask(`/v1/deliveries?name=${name}`)).body.data).toHaveLength(1);
});

test("many requests at once with many keys are each answered as their own principal", async () => {
  const producers = Array.from({ length: 20 }, (_, i) => `crowd-${i}`);
  const keys = await Promise.all(producers.map((producer) => app.keyFor(producer, "deliveries:write")));
  const answers = await Promise.all(keys.map((key) => app.post(email(), { key })));
  expect(answers.map(({ body }) => body.producer)).toEqual(producers);
});

test("the admin key of the embedded mode is made once, whoever starts at the same time", async () => {
  const keys = await Promise.all(Array.from({ length: 4 }, () => ensureAdminKey(database.db)));
  const made = keys.filter((key) => key !== null);
  // The key that an earlier test made for the producer admin is there already.
  expect(made.length).toBeLessThanOrEqual(1);
  expect(await ensureAdminKey(database.db)).toBeNull();
});

test("the command line's functions make, list and revoke", async () => {
  const { key, apiKey } = await createKey(database.db, { name: "cli", producer: "shop", scopes: SCOPES });
  expect(key.endsWith(apiKey.hint)).toBe(true);
  expect(await listKeys(database.db)).toContainEqual(apiKey);
});
