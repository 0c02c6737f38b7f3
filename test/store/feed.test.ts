import { sql } from "kysely";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type EventRow, mendFeed, type Position, readFeed, readNews, START } from "../../src/store/feed.ts";
import { ADMIN_PRODUCER, ensureProducer } from "../../src/store/keys.ts";
import type { Db } from "../../src/store/schema.ts";
import { type TestDatabase, testDatabase } from "../support/database.ts";
import { until } from "../support/pipeline.ts";

let database: TestDatabase;
let db: Db;
beforeAll(async () => {
  database = await testDatabase(14);
  db = database.db;
});
afterAll(() => database.close());

const everything = { producerId: null, types: null, limit: 1_000 } as const;
const placeOf = ({ tx, id }: EventRow): Position => ({ tx: BigInt(tx), id: BigInt(id) });
const labels = (events: readonly EventRow[]) => events.map(({ data }) => data["label"]);

/** Writes one event; `tx` null: of the transaction that writes it. */
async function write(on: Db, label: string, more: { type?: string; producer?: string; tx?: bigint } = {}) {
  const { type = "delivery.accepted", producer = ADMIN_PRODUCER, tx = null } = more;
  const producerId = await ensureProducer(on, producer);
  const given = tx === null ? sql`default` : sql`${String(tx)}::xid8`;
  await sql`
    insert into events (tx, type, producer_id, data)
    values (${given}, ${type}, ${producerId}, json_build_object('label', ${label}::text))`.execute(on);
}

/** Reads on from a place until the events are there; returns them and the place behind them. */
async function follow(on: Db, after: Position, done: (events: readonly EventRow[]) => boolean, limit = 1_000) {
  const events: EventRow[] = [];
  let next = after;
  await until(
    async () => {
      const page = await readFeed(on, { ...everything, after: next, limit });
      events.push(...page.events);
      next = page.next;
      return labels(events);
    },
    () => done(events),
  );
  return { events, next };
}

/** Where the feed ends now. */
const end = async (on: Db): Promise<Position> => (await follow(on, START, () => true)).next;

describe("the feed", () => {
  test("gives every event once and in order to a reader that remembers its place, however commits overtake each other", async () => {
    const start = await end(db);
    const WRITERS = 8;
    const EACH = 40;
    const slow = Promise.withResolvers<void>();
    const slowHasWritten = Promise.withResolvers<void>();
    const slowest = db.transaction().execute(async (tx) => {
      await write(tx, "slow-first");
      slowHasWritten.resolve();
      await slow.promise;
      await write(tx, "slow-last");
    });
    await slowHasWritten.promise;

    const written: string[] = [];
    const writer = async (name: number) => {
      for (let n = 0; n < EACH; n += 1) {
        const label = `${name}/${n}`;
        await db
          .transaction()
          .execute(async (tx) => {
            await write(tx, label);
            if (n % 3 === 0) await sql`select pg_sleep(${(name + n) % 5} * 0.001)`.execute(tx);
            await write(tx, `${label}+`);
            if (n % 7 === 6) throw new Error("rolled back");
            written.push(label, `${label}+`);
          })
          .catch((error: Error) => expect(error.message).toBe("rolled back"));
      }
    };
    const total = () => WRITERS * (EACH - Math.floor(EACH / 7)) * 2 + 2;
    const reading = follow(db, start, (events) => events.length >= total(), 7);
    await Promise.all(Array.from({ length: WRITERS }, (_, name) => writer(name)));
    // Nothing that came after the slow transaction has been readable: whoever had read it would miss what that one commits.
    const before = await readFeed(db, { ...everything, after: start });
    expect(labels(before.events).length).toBe(0);
    slow.resolve();
    await slowest;

    const { events } = await reading;
    expect(labels(events).toSorted()).toEqual([...written, "slow-first", "slow-last"].toSorted());
    const places = events.map(placeOf);
    const inOrder = places.toSorted((a, b) => Number(a.tx - b.tx) || Number(a.id - b.id));
    expect(places).toEqual(inOrder);
  });

  test("has a place to go on from when nothing was read: the one that was given", async () => {
    const here = await end(db);
    const page = await readFeed(db, { ...everything, after: here });
    expect(page).toMatchObject({ events: [], next: here, hasMore: false });
  });

  test("says whether there is more", async () => {
    const here = await end(db);
    for (const label of ["a", "b", "c"]) await write(db, label);
    await follow(db, here, (events) => events.length === 3);
    const two = await readFeed(db, { ...everything, after: here, limit: 2 });
    expect([labels(two.events), two.hasMore]).toEqual([["a", "b"], true]);
    const rest = await readFeed(db, { ...everything, after: two.next, limit: 2 });
    expect([labels(rest.events), rest.hasMore]).toEqual([["c"], false]);
    const exact = await readFeed(db, { ...everything, after: here, limit: 3 });
    expect([labels(exact.events), exact.hasMore]).toEqual([["a", "b", "c"], false]);
  });

  test("passes over other types and other producers, and goes on behind what it has passed over", async () => {
    const here = await end(db);
    await write(db, "mine", { producer: "mine", type: "receipt.bounced" });
    await write(db, "other", { producer: "other", type: "receipt.bounced" });
    await write(db, "mine too", { producer: "mine", type: "delivery.sent" });
    await follow(db, here, (events) => events.length === 3);
    const producerId = await ensureProducer(db, "mine");
    const own = await readFeed(db, { after: here, producerId, types: null, limit: 10 });
    expect(labels(own.events)).toEqual(["mine", "mine too"]);
    const receipts = await readFeed(db, { after: here, producerId, types: "^(?:receipt\\.[a-z_]+)$", limit: 10 });
    expect(labels(receipts.events)).toEqual(["mine"]);
    expect(receipts.next).toEqual(own.next);
  });

  test("looks at a bounded number of events a page, and the next page goes on behind them", async () => {
    const here = await end(db);
    const producerId = await ensureProducer(db, ADMIN_PRODUCER);
    await sql`
      insert into events (type, producer_id, data)
      select case n when 12345 then 'channel.paused' else 'delivery.sent' end, ${producerId}, '{}'
      from generate_series(1, 12400) as n`.execute(db);
    await until(
      () => readFeed(db, { ...everything, after: here, limit: 1 }),
      ({ events }) => events.length > 0,
    );
    const rare = { ...everything, types: "^(?:channel\\.[a-z_]+)$", limit: 5 };
    const first = await readFeed(db, { ...rare, after: here });
    expect([first.events.length, first.hasMore]).toEqual([0, true]);
    const second = await readFeed(db, { ...rare, after: first.next });
    expect([second.events.map(({ type }) => type), second.hasMore]).toEqual([["channel.paused"], false]);
    expect(await readFeed(db, { ...rare, after: second.next })).toMatchObject({ events: [], next: second.next });
  });

  test("tells what is new since a horizon, whose and of which type; and that it is too much to tell", async () => {
    const { horizon } = await readNews(db, 0n);
    await write(db, "x", { producer: "mine", type: "receipt.opened" });
    await write(db, "y", { producer: "mine", type: "receipt.opened" });
    const mine = await ensureProducer(db, "mine");
    const news = await until(
      () => readNews(db, horizon),
      ({ events }) => events?.length !== 0,
    );
    expect(news.events).toEqual([{ producerId: mine, type: "receipt.opened" }]);
    expect(news.horizon).toBeGreaterThan(horizon);
    expect((await readNews(db, 0n)).events).toBeNull();
  });
});

describe("a ledger that was restored into another cluster", () => {
  const opened: TestDatabase[] = [];
  afterAll(() => Promise.all(opened.map((one) => one.close())));
  async function restored(): Promise<Db> {
    const other = await testDatabase(6);
    opened.push(other);
    return other.db;
  }
  const FAR = 10n ** 12n;

  test("shows new events to a reader that remembers its place, after the next start of however many replicas", async () => {
    const other = await restored();
    await write(other, "old", { tx: FAR });
    await write(other, "unseen before the start");
    const reader = { tx: FAR, id: 1n };
    const mended = await Promise.all(Array.from({ length: 4 }, () => mendFeed(other)));
    expect(mended.filter(Boolean)).toHaveLength(1);
    await write(other, "new");
    const { events, next } = await follow(other, reader, (seen) => seen.length > 0);
    expect(labels(events)).toEqual(["new"]);
    await write(other, "newer");
    expect(labels((await follow(other, next, (seen) => seen.length > 0)).events)).toEqual(["newer"]);
    const all = await follow(other, START, (seen) => seen.length === 4);
    expect(labels(all.events)).toEqual(["unseen before the start", "old", "new", "newer"]);
  });

  test("also to a reader that had read on after the dump was made", async () => {
    const other = await restored();
    await write(other, "old", { tx: FAR });
    await mendFeed(other);
    await write(other, "new");
    const ahead = { tx: FAR + 10_000_000_000n, id: 1n };
    expect(labels((await follow(other, ahead, (seen) => seen.length > 0)).events)).toEqual(["new"]);
  });

  test("is known by the cluster's identity, when it has counted on past the events itself", async () => {
    const other = await restored();
    await write(other, "old");
    expect(await mendFeed(other)).toBe(false);
    await sql`update feed_offset set cluster = 'another'`.execute(other);
    expect(await mendFeed(other)).toBe(true);
    expect(await mendFeed(other)).toBe(false);
    await write(other, "new");
    expect(labels((await follow(other, START, (seen) => seen.length === 2)).events)).toEqual(["old", "new"]);
  });

  test("can be restored again and again", async () => {
    const other = await restored();
    const seen: unknown[] = [];
    let place = START;
    for (const label of ["one", "two", "three"]) {
      await write(other, label);
      const page = await follow(other, place, (events) => events.length > 0);
      seen.push(...labels(page.events));
      place = page.next;
      await sql`update feed_offset set cluster = ${`before ${label}`}`.execute(other);
      expect(await mendFeed(other)).toBe(true);
    }
    expect(seen).toEqual(["one", "two", "three"]);
  });

  test("keeps its order while others write: an event under the old offset is below all under the new one", async () => {
    const other = await restored();
    await mendFeed(other);
    await sql`update feed_offset set cluster = 'another'`.execute(other);
    const begun = Promise.withResolvers<void>();
    const go = Promise.withResolvers<void>();
    const writing = other.transaction().execute(async (tx) => {
      await write(tx, "first");
      begun.resolve();
      await go.promise;
      await write(tx, "second");
    });
    await begun.promise;
    const mending = mendFeed(other);
    const waits = sql<{ n: number }>`
      select count(*)::integer as n from pg_locks where relation = 'events'::regclass and not granted
        and database = (select oid from pg_database where datname = current_database())`;
    await until(
      async () => (await waits.execute(other)).rows[0]?.n,
      (n) => n === 1,
    );
    const third = write(other, "third");
    go.resolve();
    await Promise.all([writing, mending, third]);
    expect(labels((await follow(other, START, (seen) => seen.length === 3)).events)).toEqual([
      "first",
      "second",
      "third",
    ]);
  });
});

test("a feed in its own cluster is left as it is, start after start", async () => {
  expect(await mendFeed(db)).toBe(false);
  expect(await mendFeed(db)).toBe(false);
  const { rows } = await sql<{ cluster: string | null }>`select cluster from feed_offset where tx_offset = 0`.execute(
    db,
  );
  expect(rows[0]?.cluster).toMatch(/^\d+$/);
});
