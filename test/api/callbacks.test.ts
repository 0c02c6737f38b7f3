import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { sql } from "kysely";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type TestDatabase, testDatabase } from "../support/database.ts";
import { type App, openApp, pointers } from "./open-app.ts";

let database: TestDatabase;
let app: App;
let open: App;
beforeAll(async () => {
  database = await testDatabase();
  app = await openApp(database.db);
  open = await openApp(database.db, { allowPrivateCallbacks: true });
  await app.keyFor("shop", "callbacks:read");
});
afterAll(() => database.close());
beforeEach(async () => {
  await sql`truncate callbacks cascade`.execute(database.db);
});

const URL_ = "https://hooks.example.com/ledger?a=1";
const at = (more = "", producer = "shop") => `/v1/producers/${producer}/callback${more}`;
const put = (json: unknown, on: App = app) => on.ask(at(), { method: "PUT", json });

describe("a callback", () => {
  test("is registered with a secret that is shown this once", async () => {
    const { status, body } = await put({ url: URL_ });
    expect([status, body.secret, body.enabled]).toEqual([201, expect.stringMatching(/^whsec_/), true]);
    const { body: read } = await app.ask(at());
    expect(read).toMatchObject({ url: URL_, types: null, backlog: 0, disabled: null });
    expect(JSON.stringify(read)).not.toContain("whsec_");
  });

  test("that is changed keeps its secret, unless another one is given", async () => {
    await put({ url: URL_ });
    const kept = await put({ url: `${URL_}&b=2`, types: ["receipt.*"] });
    expect([kept.status, kept.body.secret, kept.body.types]).toEqual([200, undefined, ["receipt.*"]]);
    const secret = `whsec_${Buffer.alloc(32).toString("base64")}`;
    expect((await put({ url: URL_, secret })).body.secret).toBe(secret);
  });

  test("is rotated, enabled, replayed, tested and deleted", async () => {
    await put({ url: URL_ });
    const rotated = await app.ask(at("/rotate"), { method: "POST" });
    expect(rotated.body).toMatchObject({
      secret: expect.stringMatching(/^whsec_/),
      old_secret_until: expect.any(String),
    });
    expect((await app.ask(at("/enable"), { method: "POST" })).body.enabled).toBe(true);
    expect((await app.ask(at("/replay"), { json: { since: "2026-01-01T00:00:00Z" } })).status).toBe(200);
    const { body } = await app.ask("/v1/events");
    expect((await app.ask(at("/replay"), { json: { after: body.next_cursor } })).status).toBe(200);
    expect((await app.ask(at("/replay"), { json: { after: "x" } })).body.type).toBe("/problems/invalid-cursor");
    expect((await app.ask(at(), { method: "DELETE" })).status).toBe(204);
    for (const method of ["GET", "DELETE"]) expect((await app.ask(at(), { method })).status).toBe(404);
    for (const what of ["/rotate", "/enable", "/test"])
      expect((await app.ask(at(what), { method: "POST" })).status).toBe(404);
    expect((await app.ask(at("/replay"), { json: { since: "2026-01-01T00:00:00Z" } })).status).toBe(404);
  });

  test("is tested with a signed message, and what came back is told", async () => {
    const server = createServer((_request, response) => response.writeHead(418).end());
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    await put({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/` }, open);
    const { body } = await open.ask(at("/test"), { method: "POST" });
    expect(body).toEqual({ ok: false, status: 418, error: "answered 418" });
    // The same registration in a process that is not configured so is not posted to.
    expect((await app.ask(at("/test"), { method: "POST" })).body).toMatchObject({ ok: false, status: null });
    server.close();
  });

  test.each([
    ["no URL", {}, "/url"],
    ["text", { url: "hooks" }, "/url"],
    ["http", { url: "http://hooks.example.com/" }, "/url"],
    ["another scheme", { url: "file:///etc/passwd" }, "/url"],
    ["a password", { url: "https://me:secret@hooks.example.com/" }, "/url"],
    ["a fragment", { url: "https://hooks.example.com/#x" }, "/url"],
    ["a local address", { url: "https://127.0.0.1/" }, "/url"],
    ["another spelling of it", { url: "https://0x7f.1/" }, "/url"],
    ["a cloud's metadata", { url: "https://169.254.169.254/latest" }, "/url"],
    ["a local IPv6 address", { url: "https://[::1]/" }, "/url"],
    ["a URL without end", { url: `https://hooks.example.com/${"x".repeat(2_100)}` }, "/url"],
    ["a weak secret", { url: URL_, secret: "whsec_c2hvcnQ=" }, "/secret"],
    ["an unknown kind of event", { url: URL_, types: ["channel.paused"] }, "/types/0"],
    ["an expression", { url: URL_, types: ["delivery.(a+)+"] }, "/types/0"],
    ["an unknown field", { url: URL_, retries: 3 }, "/retries"],
  ])("with %s is refused with a pointer", async (_, json, pointer) => {
    const answer = await put(json);
    expect([answer.status, pointers(answer)]).toEqual([422, [pointer]]);
  });

  test("is its producer's alone", async () => {
    await put({ url: URL_ });
    const own = await app.keyFor("shop", "callbacks:read");
    const other = await app.keyFor("other", "callbacks:read");
    expect((await app.ask(at(), { key: own })).status).toBe(200);
    expect((await app.ask(at(), { key: other })).status).toBe(404);
    expect((await app.ask(at("", "nobody"))).status).toBe(404);
    expect((await app.ask(at("", "%00"))).status).toBe(404);
  });
});
