import { sql } from "kysely";
import { describe, expect, test } from "vitest";
import type { AttemptNumber } from "../../src/ledger/delivery.ts";
import { capabilityOf } from "../../src/providers/index.ts";
import { claimDue } from "../../src/store/claims.ts";
import type { Settlement } from "../../src/store/held.ts";
import { settleAttempts } from "../../src/store/settlements.ts";
import { decideDue } from "../../src/worker/claim.ts";
import { moveInTime, take } from "../support/builders.ts";
import { settles, stateOf, tally, until, work } from "../support/pipeline.ts";

import { accepted, claimAndDie, counting, database, post, sweepOnce, table, useDatabase } from "./rig.ts";

useDatabase();

describe("claims", () => {
  test("of twenty claimers that want the same delivery, one gets it", async () => {
    await post();
    const request = { channel: "sandbox", limit: 5, leaseMs: 60_000 };
    const won = await Promise.all(
      Array.from({ length: 20 }, (_, i) =>
        claimDue(database.db, { ...request, claimedBy: `w${i}` }, (due, now) => decideDue(due, table(), now)),
      ),
    );
    expect(won.flatMap(({ claims }) => claims)).toHaveLength(1);
  });

  test("three workers on one database share the work: every delivery is called once", async () => {
    await take(database.db, ...Array.from({ length: 600 }, (_, i) => ({ name: `n${i}` })));
    const counters = [counting(2), counting(2), counting(2)];
    const workers = await Promise.all(counters.map(({ account }) => work(database.db, [account])));
    await until(
      () => tally(database.db),
      (states) => states["sent"] === 600,
    );
    await Promise.all(workers.map((worker) => worker.stop(3_000)));
    const all = counters.flatMap(({ calls }) => [...calls.values()]);
    expect(all).toHaveLength(600);
    expect(all.every((times) => times === 1)).toBe(true);
    expect(counters.every(({ calls }) => calls.size > 0)).toBe(true);
  });

  test("a worker never holds more claims than it can call at once", async () => {
    await take(database.db, ...Array.from({ length: 60 }, (_, i) => ({ name: `n${i}` })));
    const { account, seen } = counting(5);
    const worker = await work(database.db, [account], { concurrency: 7 });
    let most = 0;
    await until(
      async () => {
        const { rows } = await sql<{ n: number }>`
          select count(*)::integer as n from attempts where settled_at is null`.execute(database.db);
        most = Math.max(most, rows[0]?.n ?? 0);
        return tally(database.db);
      },
      (states) => states["sent"] === 60,
    );
    await worker.stop(3_000);
    expect(most).toBeLessThanOrEqual(7);
    expect(seen.most).toBeLessThanOrEqual(7);
  });

  test("rows that wait do not stand in the way of one that is due", async () => {
    const far = new Date(Date.now() + 3_600_000);
    await take(database.db, ...Array.from({ length: 3_000 }, (_, i) => ({ name: `n${i}`, deliverAt: far })));
    const id = await post();
    const worker = await work(database.db, [counting().account]);
    await settles(database.db, id, "sent");
    await worker.stop(3_000);
  });
});

describe("contradictions", () => {
  test("two message ids for one delivery open an item, and the delivery stays sent", async () => {
    const id = await post();
    const first = await claimAndDie();
    await moveInTime(database.db, id, 60_000);
    await sweepOnce();
    await settleAttempts(database.db, [accepted(first, "m-1")], capabilityOf);
    // A second attempt that was made all the same, found later in doubt.
    const { producer_id } = await database.db
      .selectFrom("deliveries")
      .select("producer_id")
      .where("id", "=", id)
      .executeTakeFirstOrThrow();
    await sql`
      insert into attempts (delivery_id, producer_id, number, ladder, generation, idempotency_key, recipient, claimed_by,
        lease_expires_at, settled_at, verdict, reason)
      values (${id}, ${producer_id}, 2, 1, 2, ${`${id}.2`}, 'x', 'w', ledger_now() + interval '1 minute', ledger_now(),
        'unknown', 'timeout')`.execute(database.db);
    const second: Settlement = { ...accepted(first, "m-2"), number: 2 as AttemptNumber };
    await settleAttempts(database.db, [second], capabilityOf);
    expect(await stateOf(database.db, id)).toMatchObject({ state: "sent", provider_message_id: "m-1" });
    const items = await database.db
      .selectFrom("attention_items")
      .select("reason")
      .where("delivery_id", "=", id)
      .where("closed_at", "is", null)
      .execute();
    expect(items).toEqual([{ reason: "contradiction" }]);
  });
});
