import fc from "fast-check";
import { sql } from "kysely";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { ProducerId } from "../../src/ledger/delivery.ts";
import { intake, type Posted } from "../../src/store/intake.ts";
import { ensureProducer } from "../../src/store/keys.ts";
import { posted } from "../support/builders.ts";
import { empty, type TestDatabase, testDatabase } from "../support/database.ts";

let database: TestDatabase;
let producerId: ProducerId;
beforeAll(async () => {
  database = await testDatabase();
  producerId = await ensureProducer(database.db, "shop");
});
beforeEach(async () => {
  await empty(database.db, "deliveries", "messages", "events", "tombstones");
});
afterAll(() => database.close());

const one = (name: string, text = "hello", more: Partial<Posted> = {}): Posted =>
  posted(producerId, { name, request: { name, channel: "sandbox", to: "x", message: { text } }, ...more });
const kinds = async (...all: Posted[]) => (await intake(database.db, all)).map(({ kind }) => kind);
const rows = () => database.db.selectFrom("deliveries").selectAll().orderBy("name").execute();

describe("what is accepted", () => {
  test("stands with its frozen request and its event, all of one commit", async () => {
    const [taken] = await intake(database.db, [one("a")]);
    const { rows: found } = await sql`
      select d.id, d.state, m.request, e.type, e.tx = (select max(tx) from events) as last
      from deliveries d join messages m on m.delivery_id = d.id join events e on e.delivery_id = d.id`.execute(
      database.db,
    );
    expect(found).toEqual([
      {
        id: taken?.id,
        state: "pending",
        request: { name: "a", channel: "sandbox", to: "x", message: { text: "hello" } },
        type: "delivery.accepted",
        last: true,
      },
    ]);
  });

  test("is due at deliver_at when that lies ahead, else now by the database's clock", async () => {
    const ahead = new Date(Date.now() + 3_600_000);
    await kinds(one("ahead", "t", { deliverAt: ahead }), one("past", "t", { deliverAt: new Date(0) }), one("now"));
    const found = new Map((await rows()).map((row) => [row.name, row]));
    expect(found.get("ahead")).toMatchObject({ next_attempt_at: ahead, hold_reason: "scheduled" });
    for (const name of ["past", "now"]) {
      expect(found.get(name)).toMatchObject({ hold_reason: null, next_attempt_at: found.get(name)?.accepted_at });
    }
  });

  test("is all of a list or, when the statement fails, none of it", async () => {
    const impossible = one("b", "t", { recipient: "x".repeat(3_000) });
    await expect(intake(database.db, [one("a"), impossible])).rejects.toThrow();
    expect(await rows()).toEqual([]);
  });
});

describe("a name that somebody else is inserting", () => {
  test.each([
    ["commits", "known"],
    ["rolls back", "accepted"],
  ])("is waited for; when the other %s it is %s", async (end, expected) => {
    const taken = await whileInserting(one("contested"), end === "commits", () => kinds(one("contested")));
    expect(taken).toEqual([expected]);
    expect(await rows()).toHaveLength(1);
  });

  test("with another request: the later is refused and told where they differ", async () => {
    const late = () => intake(database.db, [one("contested", "other")]);
    const [taken] = await whileInserting(one("contested"), true, late);
    expect(taken).toMatchObject({ kind: "reused", pointers: ["/message/text"] });
  });
});

test("lists with the same names in any order never wait for each other in a circle", async () => {
  const names = Array.from({ length: 100 }, (_, i) => `n${i}`);
  for (let round = 0; round < 5; round += 1) {
    const lists = Array.from({ length: 8 }, () => names.toSorted(() => Math.random() - 0.5));
    const all = await Promise.all(lists.map((list) => kinds(...list.map((name) => one(`${round} ${name}`)))));
    expect(all.flat().filter((kind) => kind === "accepted")).toHaveLength(100);
  }
});

test("a tombstone answers for its name until its time is over", async () => {
  const bury = (forgetAt: string) =>
    sql`
    with removed as (delete from deliveries returning *)
    insert into tombstones (producer_id, name, request_hash, delivery_id, outcome, forget_at)
    select producer_id, name, request_hash, id, '{"state":"sent"}', now() + ${forgetAt}::interval from removed
    on conflict (producer_id, name) do update set forget_at = excluded.forget_at`.execute(database.db);
  await kinds(one("a"));
  await bury("1 minute");
  expect(await kinds(one("a"), one("a", "other"))).toEqual(["remembered", "reused"]);
  await sql`update tombstones set forget_at = now() - interval '1 second'`.execute(database.db);
  expect(await kinds(one("a", "other"))).toEqual(["accepted"]);
});

test("a request whose contents retention has dropped is still recognised, and another refused without pointers", async () => {
  await kinds(one("a"));
  await sql`delete from messages`.execute(database.db);
  expect(await kinds(one("a"))).toEqual(["known"]);
  expect(await intake(database.db, [one("a", "other")])).toMatchObject([{ kind: "reused", pointers: [] }]);
});

interface Post {
  readonly name: string;
  readonly text: string;
  readonly late: boolean;
}

/** What must become of a group, decided in order, by the rules alone. `held`: the text that stands under each name. */
function expected(group: readonly Post[], held: Map<string, string>): string[] {
  return group.map((post) => {
    const text = held.get(post.name);
    if (text !== undefined) return text === post.text ? "known" : "reused";
    if (post.late) return "too_late";
    held.set(post.name, post.text);
    return "accepted";
  });
}

test("however posts come and are grouped, each name has one delivery: the first good one", async () => {
  const name = fc.constantFrom("a", "b", "c", "__proto__");
  const post = fc.record({ name, text: fc.constantFrom("1", "2"), late: fc.boolean() });
  const groups = fc.array(fc.array(post, { minLength: 1, maxLength: 8 }), { minLength: 1, maxLength: 5 });
  let run = 0;
  await fc.assert(
    fc.asyncProperty(groups, async (all) => {
      run += 1;
      const held = new Map<string, string>();
      for (const group of all) {
        const list = group.map(({ name, text, late }) =>
          one(`${run} ${name}`, text, { expiresAt: late ? new Date(1_000) : null }),
        );
        expect(await kinds(...list)).toEqual(expected(group, held));
      }
      const stored = await sql<{ name: string; text: string }>`
        select d.name, m.request->'message'->>'text' as text from deliveries d join messages m on m.delivery_id = d.id
        where d.name like ${`${run} %`}`.execute(database.db);
      expect(new Map(stored.rows.map(({ name, text }) => [name.slice(`${run} `.length), text]))).toEqual(held);
    }),
    { numRuns: 40 },
  );
});

/** Runs the work while another transaction has inserted this delivery and not ended yet. */
async function whileInserting<T>(rival: Posted, commits: boolean, work: () => Promise<T>): Promise<T> {
  const { db } = database;
  let working: Promise<T> | undefined;
  const rolledBack = new Error("rolled back");
  await db
    .transaction()
    .execute(async (tx) => {
      await intake(tx, [rival]);
      working = work();
      await expect
        .poll(async () => {
          const { rows: waiting } = await sql`
            select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`.execute(db);
          return waiting.length;
        })
        .toBe(1);
      if (!commits) throw rolledBack;
    })
    .catch((error: unknown) => {
      if (error !== rolledBack) throw error;
    });
  if (!working) throw new Error("no work was begun");
  return await working;
}
