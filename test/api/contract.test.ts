import { readFile } from "node:fs/promises";
import { sql } from "kysely";
import { afterAll, beforeAll, expect, test } from "vitest";
import { stringify } from "yaml";
import { openapiDocument } from "../../src/api/openapi.ts";
import { ROUTES, type Route } from "../../src/api/routes.ts";
import type { ProducerId } from "../../src/ledger/delivery.ts";
import { openDatabase } from "../../src/store/database.ts";
import { type TestDatabase, testDatabase } from "../support/database.ts";
import { ADMIN_KEY, type App, appOn, email, openApp } from "./open-app.ts";

let database: TestDatabase;
let app: App;
beforeAll(async () => {
  database = await testDatabase();
  app = await openApp(database.db);
});
afterAll(() => database.close());

test("openapi.yaml is what the code says (npm run openapi)", async () => {
  const written = await readFile(new URL("../../openapi.yaml", import.meta.url), "utf8");
  expect(written).toBe(stringify(openapiDocument(), { lineWidth: 120 }));
});

test("the contract is served as yaml and as JSON, the same", async () => {
  const [json, yaml] = await Promise.all([app.ask("/openapi.json"), app.ask("/openapi.yaml")]);
  expect(json.body.openapi).toBe("3.1.0");
  expect(yaml.text).toBe(stringify(json.body, { lineWidth: 120 }));
});

test("every answer that the contract has for an endpoint can be had, and has the shape that it says", async () => {
  const kept = email({ occurrence: { schedule: "s", due_at: "2026-08-30T06:00:00Z" }, metadata: { a: 1 } });
  const { id } = (await app.post(kept)).body;
  await app.post(kept);
  await app.post({ ...kept, to: "bob@example.com" });
  const { name: _, ...nameless } = email();
  await app.post(nameless);
  await app.post(nameless, { headers: { "idempotency-key": "é" } });
  await app.post(email({ channel: "nowhere" }));
  await app.ask("/v1/deliveries/batch", { json: [kept, email(), {}, null] });
  await app.ask("/v1/deliveries/batch", { json: [kept], headers: { "idempotency-key": "k" } });
  await app.ask(`/v1/deliveries?name=${kept.name}`);
  await app.ask("/v1/deliveries?x=1");
  await app.ask("/v1/deliveries?cursor=x");
  await states(id);
  await app.ask(`/v1/deliveries/${id}`);
  await app.ask(`/v1/deliveries/${id}/timeline`);
  await app.ask("/v1/channels");
  await app.ask("/v1/channels/email/pause", { json: { reason: "r" } });
  await app.ask("/v1/channels/email/resume", { method: "POST" });
  await app.ask("/v1/providers");
  const key = await app.ask("/v1/keys", { json: { name: "k", scopes: ["events:read"] } });
  await app.ask("/v1/keys");
  await app.ask(`/v1/keys/${key.body.id}`, { method: "DELETE" });
  await app.ask("/healthz");
  await app.ask("/readyz");
  await sick();
  for (const route of Object.values<Route>(ROUTES)) await everyWrongWay(route);

  const promised = Object.entries<Route>(ROUTES).flatMap(([operation, { answers, problems, scope }]) =>
    [...Object.keys(answers), ...problems, ...(scope === "public" ? [] : ["unauthorized", "forbidden", "unavailable"])]
      .filter((answer) => !(scope === null && answer === "forbidden"))
      .map((answer) => `${operation} ${answer}`),
  );
  expect(promised.filter((answer) => !app.seen.has(answer))).toEqual([]);
});

/** Cancelling in every state. */
async function states(kept: string): Promise<void> {
  for (const change of [
    sql`state = state`,
    sql`state = 'claimed', next_attempt_at = null`,
    sql`state = 'sent', next_attempt_at = null, settled_at = now()`,
    sql`in_doubt = true`,
  ]) {
    const { id } = (await app.post(email())).body;
    await sql`update deliveries set ${change} where id = ${id}`.execute(database.db);
    await app.ask(`/v1/deliveries/${id}/cancel`, { method: "POST" });
  }
  await app.ask(`/v1/deliveries/${kept}/cancel`, { method: "POST" });
}

/** What every endpoint refuses alike: keys, bodies, ids, methods. */
async function everyWrongWay({ method, path, body }: Route): Promise<void> {
  const nowhere = path.replace("{id}", "01990000-0000-7000-8000-000000000000");
  const asked = { method: method.toUpperCase(), ...(method === "post" && { body: '{"reason":"r"}' }) };
  await app.ask(nowhere, asked);
  const place = path.replace("{id}", "email");
  await app.ask(place, { ...asked, key: null });
  await app.ask(place, { ...asked, key: await app.keyFor(null, "receipts:write") });
  // 405 has no operation of its own; it is asked for in place of one.
  await app.ask(place, { ...asked, method: "PATCH" });
  if (!body) return;
  await app.ask(place, { ...asked, body: "{" });
  await app.ask(place, { ...asked, body: "[7]" });
  await app.ask(place, { ...asked, body: " ".repeat(1_100_000) });
  await app.ask(place, { ...asked, headers: { "content-type": "text/plain" } });
}

/** Every endpoint with its database away; the answers count for the contract, too. */
async function sick(): Promise<void> {
  const closed = openDatabase({ url: "postgres://nobody@127.0.0.1:1/none", poolSize: 4, applicationName: "closed" });
  const admin = { key: ADMIN_KEY, producerId: "01990000-0000-7000-8000-000000000000" as ProducerId };
  const broken = appOn({ db: closed.db, admin, ready: async () => ({ ok: false, faults: ["away"] }) });
  const bodies: Readonly<Record<string, unknown>> = {
    postDelivery: email(),
    postBatch: [email()],
    postPause: { reason: "r" },
    postKey: { name: "k", scopes: ["events:read"] },
  };
  await Promise.all(
    Object.entries<Route>(ROUTES).map(([operation, { method, path }]) =>
      broken.ask(path.replace("{id}", path.includes("channels") ? "email" : "01990000-0000-7000-8000-000000000000"), {
        method: method.toUpperCase(),
        // The capability tables need the database only to know the key.
        ...(operation === "getProviders" && { key: "dl_some_key" }),
        ...(operation in bodies && { json: bodies[operation] }),
      }),
    ),
  );
  await closed.close();
  for (const answer of broken.seen) app.seen.add(answer);
}
