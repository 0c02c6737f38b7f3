import { readFile } from "node:fs/promises";
import { sql } from "kysely";
import { afterAll, beforeAll, expect, test } from "vitest";
import { stringify } from "yaml";
import { openapiDocument } from "../../src/api/openapi.ts";
import { ROUTES } from "../../src/api/routes/index.ts";
import type { Route } from "../../src/api/routes/route.ts";
import type { ProducerId } from "../../src/ledger/delivery.ts";
import { openDatabase } from "../../src/store/database.ts";
import { membership, resendWebhook, telegramUpdate } from "../fakes/webhooks.ts";
import { type TestDatabase, testDatabase } from "../support/database.ts";
import { putInDoubt } from "../support/doubt.ts";
import { ADMIN_KEY, type App, appOn, email, openApp, RESEND_SECRET, TELEGRAM_SECRET } from "./open-app.ts";

const NOBODY = "01990000-0000-7000-8000-000000000000";
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
  await app.ask(`/v1/deliveries/${id}/message`);
  await attention();
  await receipts();
  await webhooks();
  await suppressions();
  await events();
  await producers();
  await app.ask("/v1/channels");
  await app.ask("/v1/channels/activity");
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
    [
      ...Object.keys(answers),
      ...problems,
      ...(scope === "public" || scope === "signature" ? [] : ["unauthorized", "forbidden", "unavailable"]),
    ]
      .filter((answer) => !(scope === null && answer === "forbidden"))
      .map((answer) => `${operation} ${answer}`),
  );
  expect(promised.filter((answer) => !app.seen.has(answer))).toEqual([]);
});

/** The queue: one item resolved, one refused, the rest of what people do. */
async function attention(): Promise<void> {
  const { id } = (await app.post(email())).body;
  const item = `/v1/attention/${await putInDoubt(database.db, id)}`;
  await app.ask("/v1/attention");
  await app.ask("/v1/attention?x=1");
  await app.ask("/v1/attention?cursor=x");
  await app.ask("/v1/attention/summary");
  await app.ask(item);
  const until = new Date(Date.now() + 3_600_000).toISOString();
  const handling = { assign: { assignee: "eve" }, snooze: { until }, notes: { note: "n" } };
  for (const [what, json] of Object.entries(handling)) await app.ask(`${item}/${what}`, { json });
  const resolve = (json: Record<string, unknown>) => app.ask(`${item}/resolve`, { json: { note: "n", ...json } });
  await resolve({ action: "resend" });
  await sql`update deliveries set expires_at = now() - interval '1 second' where id = ${id}`.execute(database.db);
  await resolve({ action: "resend" });
  await resolve({ action: "abandon" });
  await resolve({ action: "abandon" });
  for (const [what, json] of Object.entries(handling)) await app.ask(`${item}/${what}`, { json });
  const bulk = { action: "abandon", note: "n" };
  await app.ask("/v1/attention/resolve", { json: { ...bulk, ids: [NOBODY] } });
  await app.ask("/v1/attention/resolve", { json: { ...bulk, filter: {}, expected_count: 7 } });
  const nowhere = { assign: { assignee: null }, snooze: { until: null }, notes: { note: "n" }, resolve: bulk };
  for (const [what, json] of Object.entries(nowhere)) await app.ask(`/v1/attention/${NOBODY}/${what}`, { json });
}

async function receipts(): Promise<void> {
  const receipt = {
    channel: "email",
    event_id: "e",
    status: "delivered",
    occurred_at: "2026-08-30T06:00:00Z",
    name: "n",
  };
  await app.ask("/v1/receipts", { json: receipt });
  await app.ask("/v1/receipts", { json: [receipt, {}] });
  await app.ask("/v1/receipts", { json: { ...receipt, channel: "nowhere" } });
  await app.ask("/v1/receipts");
  await app.ask("/v1/receipts?x=1");
  await app.ask("/v1/receipts?cursor=x");
}

async function suppressions(): Promise<void> {
  const list = "/v1/suppressions";
  for (const query of ["", "?x=1", "?cursor=x"]) await app.ask(`${list}${query}`);
  const put = (place: string) => app.ask(`${list}/${place}`, { method: "PUT", json: { reason: "r" } });
  for (const place of ["email/ada%40example.com", "email/ada%40example.com", "email/%ff", "nowhere/a"])
    await put(place);
  for (const place of ["email/ada%40example.com", "email/%ff", "email/nobody%40example.com"])
    await app.ask(`${list}/${place}`);
  const places = ["email/ada%40example.com", "email/ada%40example.com", "email/%ff"];
  for (const place of places) await app.ask(`${list}/${place}`, { method: "DELETE" });
}

async function events(): Promise<void> {
  for (const query of ["", "?x=1", "?after=x"]) await app.ask(`/v1/events${query}`);
}

async function producers(): Promise<void> {
  for (const query of ["", "?x=1", "?cursor=x"]) await app.ask(`/v1/producers${query}`);
  const hours = { from: "22:00", to: "07:00", time_zone: "Europe/Berlin" };
  for (const producer of ["admin", "nobody"]) {
    const place = `/v1/producers/${producer}`;
    await app.ask(`${place}/quiet_hours`, { method: "PUT", json: hours });
    await app.ask(`${place}/quiet_hours`, { method: "DELETE" });
    const callback = `${place}/callback`;
    // .invalid never resolves (RFC 2606).
    for (let n = 0; n < 2; n += 1) await app.ask(callback, { method: "PUT", json: { url: "https://hooks.invalid/" } });
    await app.ask(callback);
    for (const what of ["enable", "rotate", "test"]) await app.ask(`${callback}/${what}`, { method: "POST" });
    await app.ask(`${callback}/replay`, { json: { since: "2026-08-30T06:00:00Z" } });
    await app.ask(`${callback}/replay`, { json: { after: "x" } });
    await app.ask(callback, { method: "DELETE" });
  }
}

async function webhooks(): Promise<void> {
  const places = [
    ["resend/email", resendWebhook({ secrets: [RESEND_SECRET] })],
    ["telegram/telegram", telegramUpdate({}, TELEGRAM_SECRET)],
  ] as const;
  for (const [place, { headers, body }] of places) {
    const ask = (asked: Record<string, unknown>, at = place as string) =>
      app.ask(`/v1/webhooks/${at}`, { method: "POST", key: null, headers, body, ...asked });
    await ask({});
    await ask({ headers: {} });
    await ask({ body: "x".repeat(1_100_000) });
    await ask({}, `${place}-nowhere`);
  }
}

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
async function everyWrongWay({ method, path, body, scope }: Route): Promise<void> {
  const nowhere = path.replace("{id}", NOBODY);
  const asked = { method: method.toUpperCase(), ...(["post", "put"].includes(method) && { body: '{"reason":"r"}' }) };
  await app.ask(nowhere, asked);
  const place = path
    .replace("{id}", path.includes("attention") ? NOBODY : "email")
    .replace("{channel}", "email")
    .replace("{recipient}", "a%40example.com")
    .replace("{producer}", "admin");
  await app.ask(place, { ...asked, key: null });
  await app.ask(place, {
    ...asked,
    key: await app.keyFor(null, scope === "receipts:write" ? "events:read" : "receipts:write"),
  });
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
  const admin = { key: ADMIN_KEY, producerId: NOBODY as ProducerId };
  const broken = appOn({ db: closed.db, admin, ready: async () => ({ ok: false, faults: ["away"] }) });
  const bodies: Readonly<Record<string, unknown>> = {
    postDelivery: email(),
    postBatch: [email()],
    postPause: { reason: "r" },
    postResolve: { action: "abandon", note: "n" },
    postBulkResolve: { action: "abandon", note: "n", ids: [NOBODY] },
    postAssign: { assignee: null },
    postSnooze: { until: null },
    postNote: { note: "n" },
    putSuppression: { reason: "r" },
    putQuietHours: { from: "22:00", to: "07:00", time_zone: "UTC" },
    putCallback: { url: "https://hooks.invalid/" },
    postCallbackReplay: { since: "2026-08-30T06:00:00Z" },
    postReceipts: { channel: "email", event_id: "e", status: "sent", occurred_at: "2026-08-30T06:00:00Z", name: "n" },
    postKey: { name: "k", scopes: ["events:read"] },
  };
  const signed: Readonly<Record<string, object>> = {
    postResendWebhook: resendWebhook({ secrets: [RESEND_SECRET] }),
    postTelegramWebhook: telegramUpdate(membership(1, "kicked"), TELEGRAM_SECRET),
  };
  const placeOf = (path: string) =>
    path
      .replace("{id}", path.includes("channels") ? "email" : NOBODY)
      .replace("{channel}", path.includes("telegram") ? "telegram" : "email")
      .replace("{recipient}", "a%40example.com")
      .replace("{producer}", "admin");
  await Promise.all(
    Object.entries<Route>(ROUTES).map(([operation, { method, path }]) =>
      broken.ask(placeOf(path), {
        method: method.toUpperCase(),
        ...(operation in signed && signed[operation]),
        // The capability tables need the database only to know the key.
        ...(operation === "getProviders" && { key: "dl_some_key" }),
        ...(operation in bodies && { json: bodies[operation] }),
      }),
    ),
  );
  await closed.close();
  for (const answer of broken.seen) app.seen.add(answer);
}
