import { crc32 } from "node:zlib";
import { sql } from "kysely";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { ApiContext, ApiDeps } from "../../src/api/env.ts";
import { eventHandlers } from "../../src/api/events.ts";
import { ensureProducer } from "../../src/store/keys.ts";
import { type TestDatabase, testDatabase } from "../support/database.ts";
import { until } from "../support/pipeline.ts";
import { type Answered, type App, email, openApp, pointers } from "./open-app.ts";

let database: TestDatabase;
let app: App;
const keys = { shop: "", bank: "", shopReads: "", bankReads: "", operator: "" };
beforeAll(async () => {
  database = await testDatabase();
  app = await openApp(database.db);
  keys.shop = await app.keyFor("shop", "deliveries:write");
  keys.bank = await app.keyFor("bank", "deliveries:write");
  keys.shopReads = await app.keyFor("shop", "events:read");
  keys.bankReads = await app.keyFor("bank", "events:read");
  keys.operator = await app.keyFor(null, "events:read");
});
afterAll(() => database.close());

const read = (query = "", key = keys.operator) => app.ask(`/v1/events${query}`, { key });
const from = ({ body }: Answered, more = "") => `?after=${body.next_cursor}${more}`;
const types = ({ body }: Answered): string[] => body.data.map(({ type }: { type: string }) => type);
const accept = async (key: string) => (await app.post(email(), { key })).body.id as string;

/** Reads on until the feed has caught up with what was written; the answer is the last page. */
async function caughtUp(key = keys.operator, query = ""): Promise<Answered> {
  // Whatever is readable later comes after this mark, in the order of the feed.
  const mark = `mark/${Math.random()}`;
  const producerId = await ensureProducer(database.db, key === keys.bankReads ? "bank" : "shop");
  await sql`insert into events (type, producer_id, data) values ('test.mark', ${producerId}, json_build_object('mark', ${mark}::text))`.execute(
    database.db,
  );
  let after = query;
  return await until(
    async () => {
      const page = await read(after === "" ? "?limit=1000" : after, key);
      after = from(page, "&limit=1000");
      return page;
    },
    ({ body }) => body.data.some(({ data }: { data: { mark?: string } }) => data.mark === mark),
  );
}

describe("events", () => {
  test("tell what happened, whose delivery it was, and when; a producer is shown its own only", async () => {
    const here = await caughtUp();
    const own = await accept(keys.shop);
    const other = await accept(keys.bank);
    await caughtUp();
    const seen = await read(from(here));
    expect(seen.body.data.slice(0, 2)).toEqual([
      {
        id: expect.stringMatching(/^\d+-\d+$/),
        type: "delivery.accepted",
        at: expect.any(String),
        delivery_id: own,
        producer: "shop",
        data: expect.objectContaining({ channel: "email" }),
      },
      expect.objectContaining({ delivery_id: other, producer: "bank" }),
    ]);
    const ofBank = await read(from(here), keys.bankReads);
    expect(ofBank.body.data).toEqual([expect.not.objectContaining({ producer: expect.anything() })]);
    expect(ofBank.body.data[0].delivery_id).toBe(other);
    // The same event has the same id whenever and by whomever it is read.
    expect(ofBank.body.data[0].id).toBe(seen.body.data[1].id);
  });

  test("that belong to no producer are shown to operators only", async () => {
    const here = await caughtUp();
    await app.ask("/v1/suppressions/email/nobody%40example.com", { method: "PUT", json: { reason: "r" } });
    await caughtUp();
    expect(types(await read(from(here)))).toEqual(["suppression.added", "test.mark"]);
    expect(types(await read(from(here), keys.shopReads))).toEqual(["test.mark"]);
    expect(types(await read(from(here)))[0]).toBe("suppression.added");
  });

  test("are read from the beginning without a cursor, a hundred at a time", async () => {
    const first = await read();
    const again = await read();
    expect(first.body.data[0]).toEqual(again.body.data[0]);
    const producerId = await ensureProducer(database.db, "shop");
    await sql`
      insert into events (type, producer_id, data)
      select 'test.filler', ${producerId}, '{}' from generate_series(1, 120)`.execute(database.db);
    await caughtUp();
    const page = await read();
    expect(page.body).toMatchObject({ has_more: true });
    expect(page.body.data).toHaveLength(100);
  });

  test("of an empty feed are followed by a cursor for its start", async () => {
    const nothing = await app.keyFor("idle", "events:read");
    const empty = await read("", nothing);
    expect(empty.body).toEqual({ data: [], next_cursor: expect.any(String), has_more: false });
    const stays = await read(from(empty), nothing);
    expect(stays.body).toEqual(empty.body);
  });

  test("are chosen by type: exactly, by a prefix, several at once", async () => {
    const here = await caughtUp();
    const producerId = await ensureProducer(database.db, "shop");
    for (const type of ["delivery.sent", "receipt.opened", "receipt.bounced", "receipts.odd"]) {
      await sql`insert into events (type, producer_id, data) values (${type}, ${producerId}, '{}')`.execute(
        database.db,
      );
    }
    await caughtUp();
    for (const [wanted, found] of [
      ["delivery.sent", ["delivery.sent"]],
      ["receipt.*", ["receipt.opened", "receipt.bounced"]],
      ["receipt.bounced,delivery.*", ["delivery.sent", "receipt.bounced"]],
      ["delivery.sen", []],
      ["nothing.*", []],
    ] as const) {
      expect(types(await read(from(here, `&types=${wanted}`)))).toEqual(found);
    }
  });

  test("are not read by a key without the scope", async () => {
    expect((await read("", keys.shop)).status).toBe(403);
    expect((await app.ask("/v1/events", { key: null })).status).toBe(401);
  });

  test("parameters that are wrong are refused by name", async () => {
    for (const [query, name] of [
      ["types=", "types"],
      ["types=delivery", "types"],
      ["types=*", "types"],
      ["types=*.sent", "types"],
      ["types=delivery.sent,", "types"],
      ["types=delivery.s*", "types"],
      ["types=delivery.sent%20", "types"],
      ["types=a.b%7Cc", "types"],
      [`types=${"a.b,".repeat(600)}a.b`, "types"],
      ["limit=0", "limit"],
      ["limit=1001", "limit"],
      ["limit=ten", "limit"],
      ["wait=31", "wait"],
      ["wait=-1", "wait"],
      ["wait=0.5", "wait"],
      ["cursor=x", "cursor"],
    ] as const) {
      const refused = await read(`?${query}`);
      expect(refused.body.type, query).toBe("/problems/invalid-parameter");
      expect(pointers(refused)).toEqual([`/${name}`]);
    }
    expect((await read("?limit=1000&wait=0")).status).toBe(200);
  });

  test("cursors that are foreign, altered or of a future that this ledger has not had are refused", async () => {
    const cursor = (text: string) => Buffer.from(text).toString("base64url");
    const whole = (place: string) => cursor(`${place}:${crc32(place).toString(16)}`);
    const good = (await read()).body.next_cursor as string;
    for (const bad of [
      "",
      "x",
      `${good}A`,
      `${good}=`,
      ...Array.from({ length: good.length - 1 }, (_, n) => good.slice(0, n + 1)),
      cursor("events:1:2"),
      cursor("receipts:01990000-0000-7000-8000-000000000000"),
      cursor("events:1"),
      cursor("events:1:2:3"),
      whole("events:01:2"),
      whole("events:-1:2"),
      whole("events:99999999999999999999:0"),
      whole("events:9999999999999999999:0"),
      whole("events:1:9999999999999999999"),
      whole("events:9223372036854775807:1"),
    ]) {
      const refused = await read(`?after=${bad}`);
      expect([refused.status, refused.body.type], bad).toEqual([400, "/problems/invalid-cursor"]);
    }
  });
});

describe("waiting for events", () => {
  test("is answered as soon as one can be read", async () => {
    const here = await caughtUp();
    const waiting = read(from(here, "&wait=30"));
    const id = await accept(keys.shop);
    const { body } = await waiting;
    expect(body.data).toEqual([expect.objectContaining({ delivery_id: id })]);
    expect(body.next_cursor).not.toBe(here.body.next_cursor);
  });

  test("is not ended by what the key or the types leave out, and misses nothing for it", async () => {
    const here = await caughtUp(keys.bankReads);
    const ofBank = read(from(here, "&wait=30&types=receipt.*"), keys.bankReads);
    const bank = await ensureProducer(database.db, "bank");
    await accept(keys.shop);
    await accept(keys.bank);
    await until(
      () => read(from(here), keys.bankReads),
      ({ body }) => body.data.length > 0,
    );
    await sql`insert into events (type, producer_id, data) values ('receipt.opened', ${bank}, '{}')`.execute(
      database.db,
    );
    expect(types(await ofBank)).toEqual(["receipt.opened"]);
  });

  test("is answered at once when there is something already", async () => {
    const here = await caughtUp();
    await accept(keys.shop);
    await caughtUp();
    expect(types(await read(from(here, "&wait=30&limit=1")))).toEqual(["delivery.accepted"]);
  });

  test("ends with an empty page when nothing comes, and the cursor stays good", async () => {
    const here = await caughtUp(keys.bankReads);
    const empty = await read(from(here, "&wait=1"), keys.bankReads);
    expect(empty.body).toEqual({ data: [], next_cursor: here.body.next_cursor, has_more: false });
    const id = await accept(keys.bank);
    const found = await read(from(empty, "&wait=30"), keys.bankReads);
    expect(found.body.data).toEqual([expect.objectContaining({ delivery_id: id })]);
  });

  test("is the caller's time: the request's patience for the database stands meanwhile", async () => {
    const clocked: string[] = [];
    const clock = { stand: () => clocked.push("stands"), run: () => clocked.push("runs") };
    const principal = { producerId: null, seesAll: true };
    const url = `http://ledger/v1/events${from(await caughtUp(), "&wait=30")}`;
    const { getEvents } = eventHandlers({ db: database.db, stopping: AbortSignal.abort() } as ApiDeps);
    await getEvents({
      req: { url, raw: new Request(url) },
      get: (name: string) => (name === "clock" ? clock : principal),
      json: (body: unknown) => Response.json(body),
    } as unknown as ApiContext);
    expect(clocked).toEqual(["stands", "runs"]);
  });

  test("ends at once when the process stops", async () => {
    const stopping = new AbortController();
    const other = await openApp(database.db, { stopping: stopping.signal });
    const here = await caughtUp(keys.bankReads);
    const ask = () => other.ask(`/v1/events${from(here, "&wait=30")}`, { key: keys.bankReads });
    const waiting = Promise.all(Array.from({ length: 20 }, ask));
    // Until they wait.
    await read(from(here, "&wait=1"), keys.bankReads);
    stopping.abort();
    for (const { status, body } of await waiting) expect([status, body.data]).toEqual([200, []]);
    expect((await ask()).body.data).toEqual([]);
  }, 15_000);

  test("ends when the client goes away", async () => {
    const gone = new AbortController();
    const here = await caughtUp(keys.bankReads);
    const headers = { authorization: `Bearer ${keys.bankReads}` };
    const request = new Request(`http://ledger/v1/events${from(here, "&wait=30")}`, { headers, signal: gone.signal });
    const waiting = app.app.request(request);
    await read(from(here, "&wait=1"), keys.bankReads);
    gone.abort();
    expect((await waiting).status).toBe(200);
  }, 15_000);

  test("delivers every event once to each of many who wait, while many write", async () => {
    const here = await caughtUp();
    const WRITES = 60;
    const reader = async (key: string, done: number) => {
      const seen: string[] = [];
      for (let after = from(here, "&wait=5&types=delivery.accepted"); seen.length < done; ) {
        const page = await read(after, key);
        seen.push(...page.body.data.map((event: { delivery_id: string }) => event.delivery_id));
        after = from(page, "&wait=5&types=delivery.accepted");
      }
      return seen;
    };
    const readers = [
      ...Array.from({ length: 6 }, () => reader(keys.operator, WRITES)),
      ...Array.from({ length: 6 }, () => reader(keys.shopReads, WRITES / 2)),
    ];
    const written = await Promise.all(
      Array.from({ length: WRITES }, (_, n) => accept(n % 2 === 0 ? keys.shop : keys.bank)),
    );
    const shops = written.filter((_, n) => n % 2 === 0);
    for (const [n, seen] of (await Promise.all(readers)).entries()) {
      expect(seen.toSorted()).toEqual((n < 6 ? written : shops).toSorted());
    }
  });
});
