import { sql } from "kysely";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { safeTarget } from "../../src/console/sign-in.tsx";
import { ADMIN_KEY } from "../api/open-app.ts";
import { type TestDatabase, testDatabase } from "../support/database.ts";
import { openConsole, signIn } from "./open-console.ts";

let database: TestDatabase;
let app: Awaited<ReturnType<typeof openConsole>>;
beforeAll(async () => {
  database = await testDatabase();
});
afterAll(() => database.close());
beforeEach(async () => {
  // Each with a limiter of its own.
  app = await openConsole(database.db);
});

const sessions = async () => (await database.db.selectFrom("console_sessions").selectAll().execute()).length;

describe("signing in", () => {
  test("gives a cookie that no script reads, no other site sends, and only the console gets", async () => {
    const answered = await app.visit("/console/sign-in", { form: { key: ADMIN_KEY, operator: "Ada" } });
    expect(answered.status).toBe(303);
    expect(answered.headers.get("location")).toBe("/console/attention");
    const cookie = answered.headers.get("set-cookie") ?? "";
    for (const part of ["HttpOnly", "SameSite=Strict", "Path=/console", "Max-Age=43200"])
      expect(cookie).toContain(part);
    expect(cookie).not.toContain("Secure");
  });

  test("behind TLS the cookie is Secure", async () => {
    const answered = await app.visit("/console/sign-in", {
      form: { key: ADMIN_KEY, operator: "Ada" },
      headers: { origin: "https://ledger.test", "x-forwarded-proto": "https" },
    });
    expect(answered.headers.get("set-cookie")).toContain("Secure");
  });

  test.each([
    ["a key that is not known", { key: "dl_nobody-has-this-one", operator: "Ada" }, 401, "not known"],
    ["no key", { key: "", operator: "Ada" }, 422, "Give an API key"],
    ["no name", { key: ADMIN_KEY, operator: " " }, 422, "Give your name"],
    ["a name that is too long", { key: ADMIN_KEY, operator: "a".repeat(61) }, 422, "at most 60"],
    ["a name that stands for others", { key: ADMIN_KEY, operator: "None" }, 422, "your own name"],
    ["a name that hides something", { key: ADMIN_KEY, operator: "Ada\u202e" }, 422, "printable"],
    ["a key of two lines", { key: "a\r\nb", operator: "Ada" }, 422, "printable"],
  ])("with %s is refused, and says why", async (_, form, status, says) => {
    const answered = await app.visit("/console/sign-in", { form });
    expect([answered.status, answered.headers.get("set-cookie")]).toEqual([status, null]);
    const page = await answered.text();
    expect(page).toContain(says);
    expect(page).not.toContain(ADMIN_KEY);
  });

  test("with a key that lacks the scopes is refused, and names them", async () => {
    const key = await app.keyFor("shop", "deliveries:read");
    const answered = await app.visit("/console/sign-in", { form: { key, operator: "Ada" } });
    expect(answered.status).toBe(401);
    expect(await answered.text()).toContain("lacks attention:read");
  });

  test("fails ten times a minute at most; those that go well do not count", async () => {
    const headers = { "x-forwarded-for": "203.0.113.9" };
    const attempt = (key: string, from = headers) =>
      app.visit("/console/sign-in", { form: { key, operator: "Ada" }, headers: from });
    for (let n = 0; n < 20; n += 1) expect((await attempt(ADMIN_KEY)).status).toBe(303);
    for (let n = 0; n < 10; n += 1) expect((await attempt(`dl_guess_${n}`)).status).toBe(401);
    const barred = await attempt(ADMIN_KEY);
    expect(barred.status).toBe(429);
    expect(Number(barred.headers.get("retry-after"))).toBeGreaterThan(0);
    expect((await attempt(ADMIN_KEY, { "x-forwarded-for": "::ffff:203.0.113.9" })).status).toBe(429);
    expect((await attempt(ADMIN_KEY, { "x-forwarded-for": "203.0.113.10" })).status).toBe(303);
  });

  test("fails sixty times a minute at most by way of one proxy, whatever callers it names", async () => {
    const statuses: number[] = [];
    for (let n = 0; n < 70; n += 1) {
      const headers = { "x-forwarded-for": `203.0.113.${n}` };
      statuses.push(
        (await app.visit("/console/sign-in", { form: { key: `dl_${n}`, operator: "Ada" }, headers })).status,
      );
    }
    expect([statuses.indexOf(429), statuses.lastIndexOf(401)]).toEqual([60, 59]);
  });

  test("anew ends the session that the browser had", async () => {
    const before = await signIn(app.visit);
    await app.visit("/console/sign-in", { form: { key: ADMIN_KEY, operator: "Bob" }, cookie: before.cookie });
    expect((await before.get("/console/attention")).status).toBe(303);
  });

  test("leads back to the page that was wanted", async () => {
    const asked = await app.visit("/console/deliveries?state=sent");
    expect(asked.headers.get("location")).toBe("/console/sign-in?to=%2Fconsole%2Fdeliveries%3Fstate%3Dsent");
    const form = { key: ADMIN_KEY, operator: "Ada", to: "/console/deliveries?state=sent" };
    const answered = await app.visit("/console/sign-in", { form });
    expect(answered.headers.get("location")).toBe("/console/deliveries?state=sent");
  });

  test("a page that refreshes itself is led to sign in as a whole", async () => {
    const asked = await app.visit("/console/attention", { headers: { "hx-request": "true" } });
    expect([asked.status, asked.headers.get("hx-redirect")]).toEqual([
      200,
      expect.stringContaining("/console/sign-in"),
    ]);
  });
});

test.each([
  "https://evil.example/console/",
  "//evil.example/console/x",
  "/\\evil.example",
  "/console/../v1/keys",
  "/console/..//evil.example",
  "/console\\evil",
  "/console/%0d%0aset-cookie:a=b\r\n",
  "/consolex",
  "/console/sign-in?to=/console/keys",
  "javascript:alert(1)",
  "",
])("after signing in nobody is led to %j", (to) => {
  expect(safeTarget(to)).toBe("/console/attention");
});

describe("a session", () => {
  test("is known by a hash alone", async () => {
    await sql`truncate console_sessions`.execute(database.db);
    const { cookie } = await signIn(app.visit);
    const [row] = await database.db.selectFrom("console_sessions").selectAll().execute();
    expect(JSON.stringify(row)).not.toContain(cookie.split("=")[1]);
  });

  test.each([
    ["an hour after its last use", sql`used_at = used_at - interval '61 minutes'`],
    ["twelve hours after its beginning", sql`created_at = created_at - interval '721 minutes'`],
  ])("is over %s", async (_, change) => {
    const ada = await signIn(app.visit);
    expect((await ada.get("/console/attention")).status).toBe(200);
    await sql`update console_sessions set ${change}`.execute(database.db);
    expect((await ada.get("/console/attention")).status).toBe(303);
  });

  test("that only refreshes itself is not kept alive by that", async () => {
    const ada = await signIn(app.visit);
    await sql`update console_sessions set used_at = used_at - interval '50 minutes'`.execute(database.db);
    const usedAt = async () =>
      (
        await database.db
          .selectFrom("console_sessions")
          .select("used_at")
          .orderBy("created_at", "desc")
          .executeTakeFirstOrThrow()
      ).used_at;
    const before = await usedAt();
    await app.visit("/console/attention", { cookie: ada.cookie, headers: { "hx-request": "true" } });
    expect(await usedAt()).toEqual(before);
    await ada.get("/console/attention");
    expect((await usedAt()).getTime()).toBeGreaterThan(before.getTime());
  });

  test("ends with its key, at once", async () => {
    const key = await app.keyFor(null, "attention:read", "deliveries:read");
    const ada = await signIn(app.visit, key);
    expect((await ada.get("/console/attention")).status).toBe(200);
    await sql`update api_keys set revoked_at = now() where producer_id is null`.execute(database.db);
    expect((await ada.get("/console/attention")).status).toBe(303);
  });

  test("ends by signing out: what it was cannot be used again", async () => {
    const ada = await signIn(app.visit);
    expect((await ada.post("/console/sign-out", {})).headers.get("location")).toBe("/console/sign-in");
    const ended = (await ada.get("/console/attention")).headers.get("location") ?? "";
    expect(ended).toContain("ended=1");
    expect(await (await app.visit(ended)).text()).toContain("Your session has ended");
  });

  test("can end those of everybody who uses the key, and no others", async () => {
    await sql`truncate console_sessions`.execute(database.db);
    const key = await app.keyFor(null, "attention:read", "deliveries:read");
    const [ada, bob, other] = [await signIn(app.visit), await signIn(app.visit), await signIn(app.visit, key)];
    await ada.post("/console/sign-out", { everywhere: "1" });
    expect([(await bob.get("/console/attention")).status, (await other.get("/console/attention")).status]).toEqual([
      303, 200,
    ]);
    expect(await sessions()).toBe(1);
  });
});

describe("a form", () => {
  const toAbandon = [
    "/console/attention/resolutions",
    "/console/overview/pause",
    "/console/keys/make",
    "/console/sign-out",
  ];
  test.each(toAbandon)("%s without the session's token, or with another's, does nothing", async (path) => {
    const [ada, bob] = [await signIn(app.visit), await signIn(app.visit, ADMIN_KEY, "Bob")];
    for (const csrf of ["", "x", bob.csrf]) {
      expect((await app.visit(path, { cookie: ada.cookie, form: { csrf } })).status, csrf).toBe(403);
    }
    expect((await ada.get("/console/attention")).status).toBe(200);
  });

  test.each(["https://evil.example", "null", "http://ledger.test.evil.example", "http://ledger.test:81"])(
    "that comes from %s is refused, whatever it holds",
    async (origin) => {
      const ada = await signIn(app.visit);
      const answered = await app.visit("/console/sign-out", {
        cookie: ada.cookie,
        form: { csrf: ada.csrf },
        headers: { origin },
      });
      expect(answered.status).toBe(403);
      expect((await ada.get("/console/attention")).status).toBe(200);
    },
  );

  test("larger than 256 kB is refused", async () => {
    const ada = await signIn(app.visit);
    expect((await ada.post("/console/attention/notes", { note: "n".repeat(300_000) })).status).toBe(413);
  });
});

describe("every page", () => {
  test("may run our own scripts alone, is in nobody's frame, and is kept by no cache", async () => {
    const ada = await signIn(app.visit);
    for (const path of ["/console/sign-in", "/console/attention", "/console/nowhere"]) {
      const { headers } = await ada.get(path);
      const policy = headers.get("content-security-policy") ?? "";
      for (const part of [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'self'",
      ]) {
        expect(policy, path).toContain(part);
      }
      expect(policy).not.toContain("unsafe");
      expect(headers.get("cache-control")).toBe("no-store");
      expect(headers.get("referrer-policy")).toBe("no-referrer");
      expect(headers.get("x-content-type-options")).toBe("nosniff");
    }
  });

  test("has no script and no style of its own in it", async () => {
    const ada = await signIn(app.visit);
    for (const path of ["/console/attention", "/console/overview", "/console/deliveries", "/console/keys"]) {
      const page = await (await ada.get(path)).text();
      expect(page).not.toMatch(/<script(?![^>]* src=)|<style|\sstyle=|\son[a-z]+=/);
    }
  });

  test("that an operator opens is logged at debug alone: an open page asks every few seconds", async () => {
    const ada = await signIn(app.visit);
    const before = app.logged.length;
    await ada.get("/console/attention");
    expect(app.logged.slice(before)).toEqual([]);
  });

  test("may be asked for its head alone", async () => {
    const { cookie } = await signIn(app.visit);
    const head = await app.app.request("http://ledger.test/console/attention", { method: "HEAD", headers: { cookie } });
    expect([head.status, await head.text()]).toEqual([200, ""]);
    const bare = await app.app.request("http://ledger.test/console/attention", { method: "HEAD" });
    expect(bare.headers.get("location")).toContain("sign-in?to=");
  });

  test("without a session leads to sign in, posts as well, and says that nothing was done", async () => {
    for (const path of ["/console/", "/console/attention", "/console/keys", "/console/deliveries/x/raw"]) {
      expect((await app.visit(path)).status, path).toBe(303);
    }
    const posted = await app.visit("/console/attention/resolutions", { form: { action: "abandon" } });
    expect(posted.headers.get("location")).toBe("/console/sign-in?lost=1");
    expect(await (await app.visit("/console/sign-in?lost=1")).text()).toContain("nothing was done");
  });
});
