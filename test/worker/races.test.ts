import { mkdtemp, readdir } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { sql } from "kysely";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { AttemptNumber, DeliveryId } from "../../src/ledger/delivery.ts";
import { ownOutcome } from "../../src/ledger/verdict.ts";
import { PROVIDERS } from "../../src/providers/index.ts";
import type { Adapter } from "../../src/providers/provider.ts";
import { type Claim, claimDue } from "../../src/store/claims.ts";
import { openDatabase } from "../../src/store/database.ts";
import type { Settlement } from "../../src/store/held.ts";
import { settleAttempts } from "../../src/store/settlements.ts";
import { decideDue } from "../../src/worker/claim.ts";
import { createSettler, decideSettlement } from "../../src/worker/settle.ts";
import { openSpool } from "../../src/worker/spool.ts";
import { sweep } from "../../src/worker/sweep.ts";
import { channel, moveInTime, take } from "../support/builders.ts";
import { type TestDatabase, testDatabase } from "../support/database.ts";
import {
  type Account,
  attemptsOf,
  onRung,
  openItem,
  settles,
  silent,
  stateOf,
  tally,
  until,
  work,
} from "../support/pipeline.ts";
import { openProxy } from "../support/proxy.ts";

let database: TestDatabase;
beforeAll(async () => {
  database = await testDatabase(20);
});
afterAll(() => database.close());
beforeEach(async () => {
  await sql`truncate deliveries, channels, suppressions, events cascade`.execute(database.db);
  await channel(database.db, "sandbox", "sandbox");
});

const table = () => {
  const sandbox = PROVIDERS["sandbox"];
  if (!sandbox) throw new Error("no sandbox");
  return sandbox.capability;
};
const NEVER = new AbortController().signal;
const sweepOnce = () => sweep(database.db, silent, NEVER);

async function post(to = "accept@sandbox"): Promise<DeliveryId> {
  const [id] = await take(database.db, { recipient: to });
  return id as DeliveryId;
}

/** A claim as a worker makes it, and then nothing more: the worker dies. */
async function claimAndDie(leaseMs = 60_000, workerId = "dead"): Promise<Claim> {
  const { claims } = await claimDue(database.db, { channel: "sandbox", limit: 1, workerId, leaseMs }, (due, now) =>
    decideDue(due, table(), now),
  );
  const [claim] = claims;
  if (!claim) throw new Error("nothing was claimed");
  return claim;
}

const accepted = (claim: Claim, messageId = "m-1"): Settlement => ({
  deliveryId: claim.deliveryId,
  producerId: claim.producerId,
  number: claim.number,
  outcome: { ...ownOutcome("unknown", "accepted"), verdict: "accepted", providerMessageId: messageId },
  witness: { source: "answer", by: "dead" },
  credentials: null,
  answer: { phase: "sent", status: 200, code: null, message: null },
});

/** Counts how often each delivery was called, and how many calls ran at once. */
function counting(delayMs = 0) {
  const calls = new Map<string, number>();
  let running = 0;
  const seen = { most: 0 };
  const wrap = (adapter: Adapter): Adapter => ({
    ...adapter,
    async call(call) {
      calls.set(call.deliveryId, (calls.get(call.deliveryId) ?? 0) + 1);
      running += 1;
      seen.most = Math.max(seen.most, running);
      if (delayMs > 0) await new Promise((resolve) => setTimeout(resolve, delayMs));
      running -= 1;
      return await adapter.call(call);
    },
  });
  const account: Account = { id: "sandbox", settings: { provider: "sandbox" }, wrap };
  return { calls, seen, account };
}

describe("claims", () => {
  test("of twenty claimers that want the same delivery, one gets it", async () => {
    await post();
    const request = { channel: "sandbox", limit: 5, leaseMs: 60_000 };
    const won = await Promise.all(
      Array.from({ length: 20 }, (_, i) =>
        claimDue(database.db, { ...request, workerId: `w${i}` }, (due, now) => decideDue(due, table(), now)),
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

describe("leases", () => {
  test("a claim whose worker died is settled as unknown when its lease has run out, once, and never called again", async () => {
    const id = await post();
    await claimAndDie();
    expect(await sweepOnce()).toMatchObject({ leases: 0 });
    expect(await stateOf(database.db, id)).toMatchObject({ state: "claimed" });
    await moveInTime(database.db, id, 60_000);
    const swept = await Promise.all([sweepOnce(), sweepOnce(), sweepOnce()]);
    expect(swept.reduce((sum, { leases }) => sum + leases, 0)).toBe(1);
    expect(await stateOf(database.db, id)).toMatchObject({ state: "needs_attention", in_doubt: true });
    expect(await openItem(database.db, id)).toMatchObject({ reason: "lease_expired" });
    expect(await sweepOnce()).toMatchObject({ leases: 0 });
  });

  test("a sweep that comes after the settlement changes nothing", async () => {
    const id = await post();
    const claim = await claimAndDie();
    await settleAttempts(database.db, [accepted(claim)], decideSettlement);
    await moveInTime(database.db, id, 60_000);
    expect(await sweepOnce()).toMatchObject({ leases: 0 });
    expect(await stateOf(database.db, id)).toMatchObject({ state: "sent" });
  });

  test("an answer that comes after the sweep is evidence: sent, and the item closes itself", async () => {
    const id = await post();
    const claim = await claimAndDie();
    await moveInTime(database.db, id, 60_000);
    await sweepOnce();
    const [settled] = await settleAttempts(database.db, [accepted(claim)], decideSettlement);
    expect(settled?.state).toBe("sent");
    expect(await stateOf(database.db, id)).toMatchObject({ state: "sent", in_doubt: false });
    expect(await openItem(database.db, id)).toMatchObject({ resolution: "evidence" });
    const [attempt] = await attemptsOf(database.db, id);
    expect(attempt).toMatchObject({ verdict: "accepted", evidence: "answer" });
  });

  test("sweep and settlement at the same moment: one wins, the delivery ends as sent either way", async () => {
    for (let round = 0; round < 15; round += 1) {
      const id = await post();
      const claim = await claimAndDie();
      await moveInTime(database.db, id, 60_000);
      await Promise.all([sweepOnce(), settleAttempts(database.db, [accepted(claim)], decideSettlement)]);
      expect(await stateOf(database.db, id)).toMatchObject({ state: "sent" });
    }
  });

  test("a worker that finds its lease used up does not call: it gives the claim back, and no attempt counts", async () => {
    const { account, calls } = counting();
    const slow: Account = {
      ...account,
      wrap: (adapter) => ({
        ...(account.wrap?.(adapter) ?? adapter),
        render: async (input) => {
          await new Promise((resolve) => setTimeout(resolve, 60));
          return await adapter.render(input);
        },
      }),
    };
    const worker = await work(database.db, [slow], { leaseMs: 350, providerTimeoutMs: 300 });
    const id = await post();
    await onRung(database.db, id, 1);
    await worker.stop(1_000);
    expect(calls.size).toBe(0);
    expect((await attemptsOf(database.db, id))[0]).toMatchObject({
      reason: "never_called",
      verdict: "deferred",
      counted: false,
    });
  });

  test("a delivery whose processing kills its worker each time ends after four attempts; its neighbours are sent", async () => {
    // on_unknown: resend is what would go on for ever, were crashes not counted.
    const [poison] = (await take(database.db, { onUnknown: "resend" })) as [DeliveryId];
    for (let crash = 0; crash < 4; crash += 1) {
      const state = await stateOf(database.db, poison);
      if (state.state !== "pending") break;
      await claimAndDie();
      await moveInTime(database.db, poison, 60_000);
      await sweepOnce();
      await moveInTime(database.db, poison, 60_000);
    }
    const worker = await work(database.db, [counting().account]);
    await settles(database.db, await post(), "sent");
    expect(await stateOf(database.db, poison)).toMatchObject({ state: "needs_attention" });
    await worker.stop(3_000);
  });
});

describe("the database goes away", () => {
  test("a verdict that cannot be written is kept, and written when the database is back", async () => {
    const proxy = await openProxy(database.url);
    const through = openDatabase({ url: proxy.url, poolSize: 4, applicationName: "test" });
    const account = counting().account;
    const worker = await work(through.db, [
      {
        ...account,
        wrap: (adapter) => ({
          ...adapter,
          async call(call) {
            proxy.away(true);
            return await adapter.call(call);
          },
        }),
      },
    ]);
    const id = await post();
    await until(
      () => stateOf(database.db, id),
      ({ state }) => state === "claimed",
    );
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(await stateOf(database.db, id)).toMatchObject({ state: "claimed" });
    proxy.away(false);
    await settles(database.db, id, "sent");
    await worker.stop(3_000);
    await through.close();
    await proxy.close();
  });

  test("what cannot be written before the process must go lies in the spool, and the next start writes it", async () => {
    const folder = await mkdtemp(join(tmpdir(), "ledger-spool-"));
    const proxy = await openProxy(database.url);
    const through = openDatabase({ url: proxy.url, poolSize: 2, applicationName: "test" });
    const settler = createSettler(through.db, openSpool(folder), silent);
    const id = await post();
    const claim = await claimAndDie();
    proxy.away(true);
    const pending = settler.settle(accepted(claim));
    await settler.close(AbortSignal.timeout(200));
    expect(await pending).toBeNull();
    expect(await readdir(join(folder, "spool"))).toHaveLength(1);
    await moveInTime(database.db, id, 60_000);
    await sweepOnce();
    const worker = await work(database.db, [], { spool: openSpool(folder) });
    expect(await stateOf(database.db, id)).toMatchObject({ state: "sent", provider_message_id: "m-1" });
    expect(await readdir(join(folder, "spool"))).toHaveLength(0);
    await worker.stop(1_000);
    await through.close();
    await proxy.close();
  });

  test.each(["cut before", "cut after"] as const)(
    "the commit of a claim in doubt (%s the server had it): no call under it, and the delivery goes on",
    async (treatment) => {
      const proxy = await openProxy(database.url);
      const through = openDatabase({ url: proxy.url, poolSize: 4, applicationName: "test" });
      const { account, calls } = counting();
      const broken = proxy.breakCommitOf(/insert into attempts/, treatment);
      const id = await post();
      const worker = await work(through.db, [account]);
      await broken;
      if (treatment === "cut after") {
        await onRung(database.db, id, 1);
        expect(calls.size).toBe(0);
        expect((await attemptsOf(database.db, id))[0]).toMatchObject({ reason: "never_called", counted: false });
        await moveInTime(database.db, id, 60_000);
      }
      await settles(database.db, id, "sent");
      expect(calls.get(id)).toBe(1);
      await worker.stop(3_000);
      await through.close();
      await proxy.close();
    },
  );

  test("the commit of a settlement whose answer was lost is not written twice", async () => {
    const proxy = await openProxy(database.url);
    const through = openDatabase({ url: proxy.url, poolSize: 2, applicationName: "test" });
    const settler = createSettler(through.db, openSpool(await mkdtemp(join(tmpdir(), "ledger-spool-"))), silent);
    const id = await post();
    const claim = await claimAndDie();
    void proxy.breakCommitOf(/update attempts/, "cut after");
    await settler.settle(accepted(claim));
    expect(await stateOf(database.db, id)).toMatchObject({ state: "sent" });
    const events = await database.db.selectFrom("events").select("type").where("delivery_id", "=", id).execute();
    expect(events.filter(({ type }) => type === "delivery.sent")).toHaveLength(1);
    await through.close();
    await proxy.close();
  });

  test("while the database cannot be written to, nothing is called", async () => {
    const { account, calls } = counting();
    await post();
    const name = new URL(database.url).pathname.slice(1);
    await sql.raw(`alter database ${name} set default_transaction_read_only = on`).execute(database.db);
    const readOnly = openDatabase({ url: database.url, poolSize: 2, applicationName: "test" });
    const worker = await work(readOnly.db, [account]).catch(() => null);
    await new Promise((resolve) => setTimeout(resolve, 150));
    expect(calls.size).toBe(0);
    await sql`set default_transaction_read_only = off`.execute(database.db);
    await sql.raw(`alter database ${name} reset default_transaction_read_only`).execute(database.db);
    await worker?.stop(200);
    await readOnly.close();
  });
});

describe("shutdown", () => {
  test("calls under way are waited for and settled; one that takes too long is cut off and in needs-attention", async () => {
    const worker = await work(database.db, [{ id: "sandbox", settings: { provider: "sandbox" } }], {
      providerTimeoutMs: 20_000,
    });
    const quick = await post("slow-200@sandbox");
    const slow = await post("slow-15000@sandbox");
    await until(
      () => tally(database.db),
      (states) => states["claimed"] === 2,
    );
    await worker.stop(3_800);
    expect(await stateOf(database.db, quick)).toMatchObject({ state: "sent" });
    expect(await stateOf(database.db, slow)).toMatchObject({ state: "needs_attention" });
    expect(await openItem(database.db, slow)).toMatchObject({ reason: "cut_off" });
  });

  test("with a database that hangs, the worker still ends in time, and the answers it holds are in the spool", async () => {
    const folder = await mkdtemp(join(tmpdir(), "ledger-spool-"));
    const proxy = await openProxy(database.url);
    const through = openDatabase({ url: proxy.url, poolSize: 4, applicationName: "test" });
    const { account } = counting();
    const hanging: Account = {
      ...account,
      wrap: (adapter) => ({
        ...adapter,
        async call(call) {
          proxy.stall(true);
          return await adapter.call(call);
        },
      }),
    };
    const worker = await work(through.db, [hanging], { spool: openSpool(folder) });
    const id = await post();
    await until(
      () => stateOf(database.db, id),
      ({ state }) => state === "claimed",
    );
    await new Promise((resolve) => setTimeout(resolve, 100));
    await worker.stop(2_500);
    expect(await readdir(join(folder, "spool"))).toHaveLength(1);
    const next = await work(database.db, [], { spool: openSpool(folder) });
    expect(await stateOf(database.db, id)).toMatchObject({ state: "sent" });
    await next.stop(1_000);
    await proxy.close();
    await through.close();
  });

  test("with the database down, calls under way on one channel are waited for while another holds its verdicts", async () => {
    const folder = await mkdtemp(join(tmpdir(), "ledger-spool-"));
    const proxy = await openProxy(database.url);
    const through = openDatabase({ url: proxy.url, poolSize: 4, applicationName: "test" });
    const quick: Account = { id: "sandbox", settings: { provider: "sandbox" } };
    const slow: Account = { id: "slow", settings: { provider: "sandbox" } };
    const worker = await work(through.db, [quick, slow], { spool: openSpool(folder), providerTimeoutMs: 10_000 });
    await take(database.db, ...Array.from({ length: 4 }, (_, i) => ({ name: `q${i}`, recipient: "slow-150@sandbox" })));
    const [late] = (await take(database.db, { channel: "slow", recipient: "slow-900@sandbox" })) as [DeliveryId];
    await until(
      () => tally(database.db),
      (states) => states["claimed"] === 5,
    );
    proxy.away(true);
    await new Promise((resolve) => setTimeout(resolve, 300));
    await worker.stop(6_000);
    const next = await work(database.db, [], { spool: openSpool(folder) });
    expect(await tally(database.db)).toEqual({ sent: 5 });
    expect(await stateOf(database.db, late)).toMatchObject({ state: "sent" });
    await next.stop(1_000);
    await proxy.close();
    await through.close();
  });

  test("a stopped worker claims nothing more", async () => {
    const { account, calls } = counting();
    const worker = await work(database.db, [account]);
    await worker.stop(1_000);
    await post();
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(calls.size).toBe(0);
  });
});

describe("contradictions", () => {
  test("two message ids for one delivery open an item, and the delivery stays sent", async () => {
    const id = await post();
    const first = await claimAndDie();
    await moveInTime(database.db, id, 60_000);
    await sweepOnce();
    await settleAttempts(database.db, [accepted(first, "m-1")], decideSettlement);
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
    await settleAttempts(database.db, [second], decideSettlement);
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
