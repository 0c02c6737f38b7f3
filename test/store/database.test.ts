import { sql } from "kysely";
import postgres from "postgres";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { isConnectionError, openDatabase } from "../../src/store/database.ts";
import { databaseFaults } from "../../src/store/readiness.ts";
import type { Db } from "../../src/store/schema.ts";
import { createWake } from "../../src/store/wake.ts";
import { take } from "../support/builders.ts";
import { type TestDatabase, testDatabase } from "../support/database.ts";
import { settles, tally, until, work } from "../support/pipeline.ts";
import { openProxy } from "../support/proxy.ts";

let database: TestDatabase;
let admin: postgres.Sql;
beforeAll(async () => {
  database = await testDatabase();
  admin = postgres(inject("serverUrl"), { max: 1, fetch_types: false, onnotice: () => {} });
});
afterAll(async () => {
  await database.close();
  await admin.end();
});

const name = () => new URL(database.url).pathname.slice(1);
const sandbox = { id: "sandbox", settings: { provider: "sandbox" as const } };

describe("connections that are cut", () => {
  test("all backends terminated twenty times under load: the process lives, nothing is lost or doubled", async () => {
    const own = openDatabase({ url: database.url, poolSize: 8, applicationName: "to be cut" });
    const calls = new Map<string, number>();
    const worker = await work(own.db, [
      {
        ...sandbox,
        wrap: (adapter) => ({
          ...adapter,
          async call(call) {
            calls.set(call.deliveryId, (calls.get(call.deliveryId) ?? 0) + 1);
            return await adapter.call(call);
          },
        }),
      },
    ]);
    const woken: string[] = [];
    const unlisten = createWake(own, 50).listen((channel) => woken.push(channel));
    for (let cut = 0; cut < 20; cut += 1) {
      await take(database.db, ...Array.from({ length: 20 }, (_, i) => ({ name: `cut/${cut}/${i}` })));
      await admin`select pg_terminate_backend(pid) from pg_stat_activity
        where datname = ${name()} and application_name = 'to be cut'`;
    }
    await until(
      async () => {
        // What was given back waits for its rung.
        await sql`
          update deliveries set next_attempt_at = ledger_now()
          where id in (select id from deliveries where state = 'pending' for update skip locked)`.execute(database.db);
        return await tally(database.db);
      },
      (states) => states["sent"] === 400,
      20_000,
    );
    expect([...calls.values()].every((times) => times === 1)).toBe(true);
    // LISTEN has come back by itself.
    await until(
      () => {
        createWake(database).notify(["sandbox"]);
        return woken.length;
      },
      (heard) => heard > 0,
    );
    await unlisten();
    await worker.stop(3_000);
    await own.close();
  });

  test("statements that were under way fail as connection errors; the pool recovers whole", async () => {
    const proxy = await openProxy(database.url);
    const own = openDatabase({ url: proxy.url, poolSize: 3, applicationName: "to be cut" });
    for (let round = 0; round < 5; round += 1) {
      const under = Array.from({ length: 6 }, () =>
        own.db.transaction().execute(async (tx) => {
          await sql`select pg_sleep(0.02)`.execute(tx);
          await sql`select pg_sleep(0.02)`.execute(tx);
        }),
      );
      setTimeout(() => proxy.away(true), 15);
      setTimeout(() => proxy.away(false), 60);
      for (const result of await Promise.allSettled(under)) {
        if (result.status === "rejected") expect(isConnectionError(result.reason)).toBe(true);
      }
      const all = await Promise.all(Array.from({ length: 6 }, () => sql`select 1`.execute(own.db)));
      expect(all).toHaveLength(6);
    }
    await proxy.close();
    await own.close();
  });
});

test("a connection lost in the middle of a result leaves nothing behind for the next one", async () => {
  const own = openDatabase({ url: database.url, poolSize: 1, applicationName: "cut in the middle" });
  const cut = sql`
    select case when n = 200 then pg_terminate_backend(pg_backend_pid()) end, repeat('x', 5000), n
    from generate_series(1, 300) as n`.execute(own.db);
  await expect(cut).rejects.toThrow();
  for (let i = 0; i < 3; i += 1) {
    const rows = await sql<{ n: number }>`select n from generate_series(1, 3) as n`.execute(own.db).then(
      (result) => result.rows,
      (error: unknown) => {
        expect(isConnectionError(error)).toBe(true);
        return null;
      },
    );
    if (rows) expect(rows.map(({ n }) => n)).toEqual([1, 2, 3]);
  }
  await own.close();
});

describe("a server that cannot be written to", () => {
  test("is not ready, and its connections are not used again; recovery needs no restart", async () => {
    const own = openDatabase({ url: database.url, poolSize: 2, applicationName: "demoted" });
    expect(await databaseFaults(own.db)).toEqual([]);
    // Sessions that were open when their server was demoted: both connections of the pool, held at once.
    const demote = (db: Db) => sql`set default_transaction_read_only = on`.execute(db);
    await own.db.connection().execute(async (one) => {
      await own.db.connection().execute(async (other) => {
        await demote(one);
        await demote(other);
      });
    });
    expect(await databaseFaults(own.db)).toEqual(["the database cannot be written to"]);
    const failure = await take(own.db, {}).then(
      () => null,
      (error: unknown) => error,
    );
    expect(isConnectionError(failure)).toBe(true);
    await until(
      () =>
        take(own.db, {}).then(
          () => true,
          () => false,
        ),
      (written) => written,
    );
    await until(
      () => databaseFaults(own.db),
      (faults) => faults.length === 0,
    );
    await own.close();
  });

  test("that cannot be reached is not ready, within two seconds", async () => {
    const own = openDatabase({ url: "postgres://nobody@127.0.0.1:9/none", poolSize: 1, applicationName: "test" });
    expect(await databaseFaults(own.db)).toHaveLength(1);
    void own.close();
  });
});

test("a worker that LISTENs is woken by another process's NOTIFY, long before its next poll", async () => {
  const worker = await work(database.db, [sandbox], {
    wake: createWake(database),
    pollIntervalMs: 60_000,
    sweepIntervalMs: 60_000,
  });
  await until(
    async () =>
      (await admin`select 1 from pg_stat_activity where datname = ${name()} and query ilike 'listen%'`).length,
    (listening) => listening > 0,
  );
  const [id] = await take(database.db, {});
  createWake(database).notify(["sandbox"]);
  if (id) await settles(database.db, id, "sent");
  await worker.stop(3_000);
});

test("polling alone is enough", async () => {
  const worker = await work(database.db, [sandbox], { wake: null, pollIntervalMs: 20 });
  const [id] = await take(database.db, {});
  if (id) await settles(database.db, id, "sent");
  await worker.stop(3_000);
});
