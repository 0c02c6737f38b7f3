import { sql } from "kysely";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type TestDatabase, testDatabase } from "../support/database.ts";
import { type App, openApp, pointers } from "./open-app.ts";

let database: TestDatabase;
let app: App;
let reads: string;
let writes: string;
beforeAll(async () => {
  database = await testDatabase();
  app = await openApp(database.db);
  reads = await app.keyFor("shop", "suppressions:read");
  writes = await app.keyFor("shop", "suppressions:read", "suppressions:write");
});
afterAll(() => database.close());

const path = (channel: string, recipient: string) => `/v1/suppressions/${channel}/${encodeURIComponent(recipient)}`;
const put = (channel: string, recipient: string, reason = "asked us to stop", key = writes) =>
  app.ask(path(channel, recipient), { method: "PUT", json: { reason }, key });
const get = (channel: string, recipient: string) => app.ask(path(channel, recipient), { key: reads });
const remove = (channel: string, recipient: string, query = "") =>
  app.ask(`${path(channel, recipient)}${query}`, { method: "DELETE", key: writes });

interface Listed {
  readonly channel: string;
  readonly recipient: string;
  readonly created_at: string;
}

async function list(query = ""): Promise<Listed[]> {
  return (await app.ask(`/v1/suppressions?${query}`, { key: reads })).body.data;
}

/** What was recorded of a recipient, oldest first. */
async function history(recipient: string) {
  const { rows } = await sql<{ type: string; producer: string; data: Record<string, unknown> }>`
    select e.type, p.name as producer, e.data from events e join producers p on p.id = e.producer_id
    where e.data ->> 'recipient' = ${recipient} order by e.tx, e.id`.execute(database.db);
  return rows;
}

describe("a suppression", () => {
  test("is new once, and then read, with who made it, when and why", async () => {
    const made = await put("email", "ada@example.com");
    expect(made.status).toBe(201);
    expect(made.body).toEqual({
      channel: "email",
      recipient: "ada@example.com",
      reason: "asked us to stop",
      created_by: "key of shop",
      created_at: expect.any(String),
    });
    expect(made.headers.get("location")).toBe("/v1/suppressions/email/ada%40example.com");
    expect(await get("email", "ada@example.com")).toMatchObject({ status: 200, body: made.body });
  });

  test("that is put again has the new reason and author, and stands since when it stood", async () => {
    const first = await put("email", "again@example.com", "one");
    const admins = await app.ask(path("email", "again@example.com"), { method: "PUT", json: { reason: "two" } });
    expect(admins.status).toBe(200);
    expect(admins.body).toEqual({ ...first.body, reason: "two", created_by: "admin" });
    expect(await list("recipient=again@example.com")).toEqual([admins.body]);
  });

  test("is removed once", async () => {
    await put("email", "removed@example.com");
    expect((await remove("email", "removed@example.com")).status).toBe(204);
    expect((await get("email", "removed@example.com")).status).toBe(404);
    expect((await remove("email", "removed@example.com")).status).toBe(404);
  });

  test("leaves behind who added and removed it and why, also when the reason was replaced", async () => {
    const who = "recorded@example.com";
    await put("email", who, "one");
    await put("email", who, "two");
    await remove("email", who, "?reason=back%20again");
    await remove("email", who);
    const common = { channel: "email", recipient: who, by: "key of shop" };
    expect(await history(who)).toEqual([
      { type: "suppression.added", producer: "admin", data: { ...common, reason: "one" } },
      { type: "suppression.added", producer: "admin", data: { ...common, reason: "two" } },
      { type: "suppression.removed", producer: "admin", data: { ...common, reason: "two", note: "back again" } },
    ]);
  });

  test("is the same whatever the recipient's case", async () => {
    expect((await put("email", "Case@Example.COM")).body.recipient).toBe("case@example.com");
    expect((await put("email", "CASE@example.com")).status).toBe(200);
    expect((await get("email", "cAsE@example.com")).status).toBe(200);
    expect(await list("recipient=CASE@EXAMPLE.COM")).toHaveLength(1);
    expect((await remove("email", "casE@example.com")).status).toBe(204);
  });

  test("folds A to Z and nothing else: no address is taken for another one", async () => {
    expect((await put("email", "ÄNNE@example.com")).body.recipient).toBe("Änne@example.com");
    expect((await get("email", "änne@example.com")).status).toBe(404);
    expect((await get("email", "ÄNNE@example.com")).status).toBe(200);
  });

  test("is one of its channel alone", async () => {
    await put("email", "one@example.com");
    expect((await get("sandbox", "one@example.com")).status).toBe(404);
  });

  test("made by ten at once is made by one", async () => {
    const all = await Promise.all(Array.from({ length: 10 }, (_, n) => put("email", "race@example.com", `r${n}`)));
    expect(all.map(({ status }) => status).toSorted()).toEqual([...Array(9).fill(200), 201]);
    const removed = await Promise.all(Array.from({ length: 10 }, () => remove("email", "race@example.com")));
    expect(removed.map(({ status }) => status).toSorted()).toEqual([204, ...Array(9).fill(404)]);
  });
});

describe("recipients in paths", () => {
  test("are percent-encoded, and come out as they went in", async () => {
    for (const [channel, recipient] of [
      ["email", "a/b@example.com"],
      ["email", "first+tag@example.com"],
      ["email", "per%cent@example.com"],
      ["email", "per%2fcent@example.com"],
      ["email", "q?m#h&e=s@example.com"],
      ["email", "jürgen@bücher.example"],
      ["email", "o'brien@example.com"],
      ["telegram", "@channelname"],
      ["telegram", "-1001234567890"],
      ["sandbox", "with spaces, and %zz"],
      ["sandbox", "😀"],
    ] as const) {
      const made = await put(channel, recipient);
      expect([made.status, made.body.recipient]).toEqual([201, recipient]);
      expect((await app.ask(made.headers.get("location") ?? "", { key: reads })).body).toEqual(made.body);
      expect(await list(new URLSearchParams({ channel, recipient }).toString())).toEqual([made.body]);
      expect((await remove(channel, recipient)).status).toBe(204);
    }
  });

  test("may have what paths allow unencoded: @, + and :", async () => {
    const asked = { method: "PUT", json: { reason: "r" }, key: writes };
    const made = await app.ask("/v1/suppressions/email/raw+tag@example.com", asked);
    expect(made.body.recipient).toBe("raw+tag@example.com");
    expect((await app.ask("/v1/suppressions/telegram/@rawchannel", asked)).body.recipient).toBe("@rawchannel");
  });

  test("that no delivery of the channel can have are refused", async () => {
    for (const [channel, recipient] of [
      ["email", "no address"],
      ["email", "Ada <ada@example.com>"],
      ["email", "a\u0000@example.com"],
      ["email", `${"x".repeat(400)}@example.com`],
      ["telegram", "somebody"],
      ["telegram", "+49123"],
      ["telegram", "007"],
    ] as const) {
      const refused = await put(channel, recipient);
      expect([refused.status, refused.body.type]).toEqual([400, "/problems/invalid-parameter"]);
      expect(pointers(refused)).toEqual(["/recipient"]);
    }
  });

  test("that are wrongly encoded are refused by every method", async () => {
    for (const wrong of ["%ff", "%zz", "100%"]) {
      for (const asked of [{}, { method: "DELETE" }, { method: "PUT", json: { reason: "r" } }]) {
        const refused = await app.ask(`/v1/suppressions/sandbox/${wrong}`, { ...asked, key: writes });
        expect([refused.status, refused.body.type]).toEqual([400, "/problems/invalid-parameter"]);
      }
    }
  });

  test("that nobody can be suppressed under are not found", async () => {
    for (const recipient of ["a\u0000", "no address", "nobody@example.com"]) {
      expect((await get("email", recipient)).status).toBe(404);
      expect((await remove("email", recipient)).status).toBe(404);
    }
  });

  test("of channels that do not exist are not found", async () => {
    for (const channel of ["nowhere", "Email", "%00", "__proto__", "constructor"]) {
      for (const asked of [{}, { method: "DELETE" }, { method: "PUT", json: { reason: "r" } }]) {
        expect((await app.ask(`/v1/suppressions/${channel}/a@example.com`, { ...asked, key: writes })).status).toBe(
          404,
        );
      }
    }
  });

  test("of a channel whose credentials this process has not got are taken all the same", async () => {
    const elsewhere = await openApp(database.db, { channels: new Map() });
    const key = await elsewhere.keyFor(null, "suppressions:write");
    const asked = { method: "PUT", json: { reason: "r" }, key };
    expect((await elsewhere.ask(path("telegram", "777"), asked)).status).toBe(201);
    expect((await elsewhere.ask(path("telegram", "not a chat"), asked)).status).toBe(400);
  });
});

test("a reason is needed, and nothing else is taken", async () => {
  for (const [json, pointer] of [
    [{}, "/reason"],
    [{ reason: "" }, "/reason"],
    [{ reason: 7 }, "/reason"],
    [{ reason: "a\u0000" }, "/reason"],
    [{ reason: "x".repeat(501) }, "/reason"],
    [{ reason: "r", until: "tomorrow" }, "/until"],
  ] as const) {
    const refused = await app.ask(path("email", "why@example.com"), { method: "PUT", json, key: writes });
    expect([refused.status, pointers(refused)]).toEqual([422, [pointer]]);
  }
  expect((await get("email", "why@example.com")).status).toBe(404);
});

test("reading and writing are scopes of their own", async () => {
  const none = await app.keyFor("shop", "events:read");
  for (const key of [none, reads]) {
    expect((await put("email", "scope@example.com", "r", key)).status).toBe(403);
    expect((await app.ask(path("email", "scope@example.com"), { method: "DELETE", key })).status).toBe(403);
  }
  expect((await app.ask("/v1/suppressions", { key: none })).status).toBe(403);
  expect((await app.ask(path("email", "scope@example.com"), { key: none })).status).toBe(403);
});

describe("the list", () => {
  /** Rows of the same few instants: what would be lost or repeated by an order that is not total. */
  async function fill(channel: string, count: number): Promise<void> {
    await sql`
      insert into suppressions (channel, recipient, reason, created_by, created_at)
      select ${channel}, 'r' || n || '@example.com', case when n % 2 = 0 then 'even' else 'odd' end, 'test',
        timestamptz '2026-08-30 06:00:00.123' + (n % 3) * interval '1 millisecond'
      from generate_series(1, ${count}::integer) as n`.execute(database.db);
  }

  async function walk(
    query: string,
    size: number,
    between: () => Promise<unknown> = async () => {},
  ): Promise<Listed[]> {
    const seen: Listed[] = [];
    for (let cursor = ""; ; ) {
      const { body } = await app.ask(`/v1/suppressions?${query}&limit=${size}${cursor}`, { key: reads });
      seen.push(...body.data);
      if (body.next_cursor === null) return seen;
      cursor = `&cursor=${body.next_cursor}`;
      await between();
    }
  }

  test("goes newest first, and equal times never lose or repeat a row, whatever the pages", async () => {
    await fill("paged", 50);
    for (const size of [1, 7, 25, 50, 100]) {
      const seen = await walk("channel=paged", size);
      expect(new Set(seen.map(({ recipient }) => recipient)).size).toBe(50);
      expect(seen).toHaveLength(50);
      expect(seen.map(({ created_at }) => created_at)).toEqual(
        seen
          .map(({ created_at }) => created_at)
          .toSorted()
          .toReversed(),
      );
    }
  });

  test("loses and repeats nothing while reasons are replaced and others come and go", async () => {
    await fill("busy", 20);
    let n = 0;
    const seen = await walk("channel=busy", 3, async () => {
      n += 1;
      await sql`
        insert into suppressions (channel, recipient, reason, created_by) values ('busy', ${`new${n}@example.com`}, 'r', 'test')`.execute(
        database.db,
      );
      await sql`update suppressions set reason = 'replaced' where channel = 'busy'`.execute(database.db);
    });
    expect(seen).toHaveLength(20);
    expect(new Set(seen.map(({ recipient }) => recipient)).size).toBe(20);
  });

  test("of everything holds every channel's; filters narrow it", async () => {
    await fill("one", 6);
    await fill("two", 6);
    const all = await walk("reason=even", 5);
    expect(all.filter(({ channel }) => ["one", "two"].includes(channel))).toHaveLength(6);
    expect(await list("channel=one&reason=odd")).toHaveLength(3);
    expect(await list("channel=one&recipient=R2@example.com")).toHaveLength(1);
    expect(await list("channel=nowhere")).toEqual([]);
  });

  test("pages past the longest recipient", async () => {
    for (const letter of ["ü", "😀"]) await put("sandbox", letter.repeat(letter.length === 1 ? 320 : 160));
    expect(await walk("channel=sandbox", 1)).toHaveLength((await list("channel=sandbox&limit=100")).length);
  });

  test("refuses cursors that are foreign or altered, and parameters that are wrong", async () => {
    const cursor = (value: unknown) =>
      Buffer.from(typeof value === "string" ? value : JSON.stringify(value)).toString("base64url");
    await fill("cursors", 3);
    const good = (await app.ask("/v1/suppressions?channel=cursors&limit=1", { key: reads })).body.next_cursor as string;
    for (const bad of [
      "x",
      `${good}A`,
      good.slice(0, -2),
      cursor("{"),
      cursor(["suppressions", 1.5, "a", "b"]),
      cursor(["suppressions", 1e300, "a", "b"]),
      cursor(["suppressions", 1, "a"]),
      cursor(["suppressions", 1, "a", "b\u0000"]),
      cursor(["suppressions", 1, "a", "\ud800"]),
      cursor(["receipts", 1, "a", "b"]),
      cursor("receipts:01990000-0000-7000-8000-000000000000"),
    ]) {
      const refused = await app.ask(`/v1/suppressions?cursor=${bad}`, { key: reads });
      expect([refused.status, refused.body.type], bad).toEqual([400, "/problems/invalid-cursor"]);
    }
    for (const wrong of ["limit=0", "limit=101", "channel=", "recipient=%00", "x=1"]) {
      const refused = await app.ask(`/v1/suppressions?${wrong}`, { key: reads });
      expect(refused.body.type, wrong).toBe("/problems/invalid-parameter");
    }
    expect((await app.ask(`${path("email", "a@example.com")}?x=1`, { method: "DELETE" })).status).toBe(400);
  });
});
