import { sql } from "kysely";
import { describe, expect, test } from "vitest";
import type { DeliveryId } from "../../src/ledger/delivery.ts";
import { type Outcome, ownOutcome } from "../../src/ledger/verdict.ts";
import { capabilityOf } from "../../src/providers/index.ts";
import { type Claim, claimDue } from "../../src/store/claims.ts";
import type { Settlement } from "../../src/store/held.ts";
import { settleAttempts } from "../../src/store/settlements.ts";
import { decideDue } from "../../src/worker/claim.ts";
import { openFakeResend, resendError } from "../fakes/resend.ts";
import { openFakeTelegram } from "../fakes/telegram.ts";
import { channel, moveInTime, take } from "../support/builders.ts";
import { emailTo, settles, stateOf, tally, telegramTo, until, work } from "../support/pipeline.ts";
import { accepted, counting, database, post, sweepOnce, table, useDatabase } from "./rig.ts";

useDatabase();

const db = () => database.db;
const rowOf = (id = "sandbox") =>
  db().selectFrom("channels").selectAll().where("id", "=", id).executeTakeFirstOrThrow();
const isOpen = async (id?: string) => (await rowOf(id)).breaker_opened_at !== null;
const channelEvents = async () =>
  await sql<{ type: string; data: { channel: string }; producer: string }>`
    select e.type, e.data, p.name as producer from events e join producers p on p.id = e.producer_id
    where e.type like 'channel.%' order by e.id`
    .execute(db())
    .then(({ rows }) => rows);

/** Half a minute passes for the breaker: the next probe may be made. */
const probeTime = (id = "sandbox") =>
  sql`update channels set breaker_open_until = ledger_now(), breaker_opened_at = breaker_opened_at - interval '30 seconds'
    where id = ${id}`.execute(db());
/** Rungs are reached; quiet hours and such end. */
const allDue = () => sql`update deliveries set next_attempt_at = ledger_now() where state = 'pending'`.execute(db());

const request = { channel: "sandbox", limit: 50, leaseMs: 60_000 };
const claims = async (claimedBy: string): Promise<readonly Claim[]> =>
  (await claimDue(db(), { ...request, claimedBy }, (due, now) => decideDue(due, table(), now))).claims;

const settled = (claim: Claim, outcome: Partial<Outcome>, by = "dead"): Settlement => ({
  ...accepted(claim),
  outcome: { ...ownOutcome("deferred", "not_sent"), ...outcome },
  witness: { source: "answer", by },
});
const failing = (claim: Claim) => settled(claim, { failing: true });
const settle = (...settlements: readonly Settlement[]) => settleAttempts(db(), settlements, capabilityOf);

/** So many deliveries are claimed and answered, all in one commit. */
async function answer(calls: string, to = "accept@sandbox"): Promise<void> {
  await take(db(), ...Array.from(calls, () => ({ recipient: to })));
  const made = await claims("dead");
  await settle(
    ...made.map((claim, i) => (calls[i] === "1" ? failing(claim) : accepted(claim, `m-${claim.deliveryId}`))),
  );
}

describe("a provider that fails for everyone", () => {
  test("opens the breaker: nothing more is claimed, and what waits says so, and until when", async () => {
    const { account, calls } = counting();
    await take(db(), ...Array.from({ length: 30 }, () => ({ recipient: "down@sandbox" })));
    const worker = await work(db(), [account], { concurrency: 4 });
    await until(
      () => isOpen(),
      (open) => open,
    );
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect([...calls.values()].reduce((sum, n) => sum + n, 0)).toBeLessThanOrEqual(10 + 3);
    await worker.stop(4_000);
    const { breaker_opened_at: at, breaker_open_until: end } = await rowOf();
    expect((end?.getTime() ?? 0) - (at?.getTime() ?? 0)).toBe(2_000);
    expect(await claims("another")).toEqual([]);
    expect(await channelEvents()).toMatchObject([
      { type: "channel.breaker_opened", producer: "admin", data: { channel: "sandbox", failing: 10 } },
    ]);
  });

  test("ten in a row open it, in however many commits", async () => {
    for (const calls of ["01", "1111111", "10", "1", "1111", "1111"]) await answer(calls);
    expect(await isOpen()).toBe(false);
    await answer("1");
    expect(await isOpen()).toBe(true);
  });

  test("answers that come at once, in many commits, are all counted", async () => {
    await take(db(), ...Array.from({ length: 10 }, () => ({})));
    const made = await claims("dead");
    await Promise.all(made.map((claim) => settle(failing(claim))));
    expect(await isOpen()).toBe(true);
  });

  test("who never called, died, or comes late does not count", async () => {
    await take(db(), ...Array.from({ length: 30 }, () => ({})));
    const made = await claims("dead");
    const neverCalled = (claim: Claim): Settlement => ({
      ...failing(claim),
      witness: { source: "never_called", by: "dead" },
    });
    await settle(...made.slice(0, 15).map(neverCalled));
    const late = made.slice(15);
    for (const { deliveryId } of late) await moveInTime(db(), deliveryId, 60_000);
    await sweepOnce();
    const settledLate = await settle(...late.map(failing));
    expect(settledLate.every((result) => result?.change.isEvidence)).toBe(true);
    expect(await rowOf()).toMatchObject({ recent_calls: "", breaker_opened_at: null });
  });
});

describe("while the breaker is open", () => {
  async function opened(): Promise<void> {
    await answer("1".repeat(10));
    expect(await isOpen()).toBe(true);
    await sql`delete from deliveries`.execute(db());
  }

  test("of twenty replicas one makes a probe, with one delivery", async () => {
    await opened();
    await take(db(), ...Array.from({ length: 40 }, () => ({})));
    expect((await Promise.all([claims("a"), claims("b")])).flat()).toEqual([]);
    await probeTime();
    const won = await Promise.all(Array.from({ length: 20 }, (_, i) => claims(`w${i}`)));
    expect(won.flat()).toHaveLength(1);
    expect(await claims("later")).toEqual([]);
  });

  test("a probe whose answer is good closes it, and everything flows", async () => {
    await opened();
    await take(db(), ...Array.from({ length: 5 }, () => ({})));
    await probeTime();
    const [probe] = await claims("dead");
    await settle(accepted(probe as Claim));
    expect(await rowOf()).toMatchObject({ breaker_opened_at: null, breaker_open_until: null, recent_calls: "" });
    expect(await claims("dead")).toHaveLength(4);
    expect((await channelEvents()).map(({ type }) => type)).toEqual([
      "channel.breaker_opened",
      "channel.breaker_closed",
    ]);
  });

  test("a refusal closes it, too: the provider is there", async () => {
    await opened();
    await post("refuse@sandbox");
    await probeTime();
    const [probe] = await claims("dead");
    await settle(settled(probe as Claim, { verdict: "refused", reason: "invalid_request" }));
    expect(await isOpen()).toBe(false);
  });

  test("a probe that fails keeps it open: the next one as long after its answer as it has been open", async () => {
    await opened();
    await take(db(), {}, {});
    await probeTime();
    const [probe] = await claims("dead");
    await settle(failing(probe as Claim));
    expect(await isOpen()).toBe(true);
    expect(((await rowOf()).breaker_open_until?.getTime() ?? 0) - Date.now()).toBeGreaterThan(29_000);
    expect(await claims("dead")).toEqual([]);
  });

  test("a probe that nobody answers is followed by another when its lease is over", async () => {
    await opened();
    await take(db(), {}, {});
    await probeTime();
    expect(await claims("dead")).toHaveLength(1);
    expect(((await rowOf()).breaker_open_until?.getTime() ?? 0) - Date.now()).toBeGreaterThan(55_000);
    await probeTime();
    expect(await claims("b")).toHaveLength(1);
  });

  test("an answer to a call of before it opened neither closes nor prolongs it", async () => {
    await take(db(), ...Array.from({ length: 12 }, () => ({})));
    const made = await claims("dead");
    await settle(...made.slice(0, 10).map(failing));
    const before = await rowOf();
    await settle(accepted(made[10] as Claim), failing(made[11] as Claim));
    expect(await rowOf()).toEqual(before);
  });

  test("the right to a probe is given back when the gate holds what was due", async () => {
    await opened();
    const always = { from: "00:00", to: "23:59", time_zone: "UTC" };
    await take(db(), { quietHours: { ...always, from: "23:59", to: "23:58" } });
    await probeTime();
    expect(await claims("a")).toEqual([]);
    await take(db(), { recipient: "second@sandbox" });
    expect(await claims("a")).toMatchObject([{ to: "second@sandbox" }]);
  });

  test("with nothing due, looking costs no write", async () => {
    await opened();
    await probeTime();
    const before = await rowVersion();
    for (let i = 0; i < 3; i += 1) expect(await claims("a")).toEqual([]);
    expect(await rowVersion()).toBe(before);
  });
});

async function rowVersion(id = "sandbox"): Promise<string> {
  const { rows } = await sql<{
    v: string;
  }>`select xmin::text || ctid::text as v from channels where id = ${id}`.execute(db());
  return rows[0]?.v ?? "";
}

describe("the cost", () => {
  test("a healthy channel's row is neither written nor locked when its calls are settled", async () => {
    const before = await rowVersion();
    const held = db()
      .transaction()
      .execute(async (tx) => {
        await sql`select from channels where id = 'sandbox' for update`.execute(tx);
        await answer("0".repeat(20));
      });
    await held;
    expect(await rowVersion()).toBe(before);
  });

  test("after a failure it is written by the next good call, and then left alone", async () => {
    await answer("1");
    expect((await rowOf()).recent_calls).toBe("1");
    await answer("0");
    expect((await rowOf()).recent_calls).toBe("");
    const before = await rowVersion();
    await answer("0".repeat(20));
    expect(await rowVersion()).toBe(before);
  });

  test("commits about the same channels never wait for each other in a circle", async () => {
    const ids = ["a", "b", "c", "d"];
    for (const id of ids) await channel(db(), id, "sandbox");
    const made: Claim[] = [];
    for (const id of ids) {
      await take(db(), ...Array.from({ length: 8 }, () => ({ channel: id })));
      const batch = await claimDue(db(), { ...request, channel: id, claimedBy: "dead" }, (due, now) =>
        decideDue(due, table(), now),
      );
      made.push(...batch.claims);
    }
    const groups = Array.from({ length: 8 }, (_, i) => ids.map((_, j) => made[j * 8 + i] as Claim));
    const shuffled = groups.map((group, i) => (i % 2 === 0 ? group : group.toReversed()));
    await Promise.all(shuffled.map((group) => settle(...group.map(failing))));
    for (const id of ids) expect((await rowOf(id)).recent_calls).toBe("1".repeat(8));
  });
});

describe("an outage of three minutes with 2,000 rows (case 44)", () => {
  test("at most four calls a row, the other channel unaffected, new mail not stuck behind the old", {
    timeout: 60_000,
  }, async () => {
    const resend = await openFakeResend();
    const telegram = await openFakeTelegram();
    resend.always(resendError(503, "internal_server_error"));
    await channel(db(), "email", "resend");
    await channel(db(), "telegram", "telegram");
    const mail = (to: string) => ({
      channel: "email",
      recipient: to,
      request: { channel: "email", to, message: { subject: "s", text: "t" } },
    });
    await take(db(), ...Array.from({ length: 2_000 }, (_, i) => mail(`u${i}@example.com`)));
    const worker = await work(db(), [emailTo(resend.url), telegramTo(telegram.url)], { concurrency: 32 });
    await until(
      () => isOpen("email"),
      (open) => open,
    );

    const [chat] = await take(db(), { channel: "telegram", recipient: "77", request: { message: { text: "t" } } });
    await settles(db(), chat as DeliveryId, "sent");
    for (let probe = 1; probe <= 6; probe += 1) {
      const before = resend.counts.calls;
      await allDue();
      await probeTime("email");
      await until(
        () => resend.counts.calls,
        (calls) => calls > before,
      );
      await until(
        () => rowOf("email"),
        (row) => (row.breaker_open_until?.getTime() ?? 0) - Date.now() < 30_000,
      );
      await new Promise((resolve) => setTimeout(resolve, 60));
      expect(resend.counts.calls - before, "one call a probe").toBe(1);
    }
    // Without the breaker it would have been three calls a row.
    expect(resend.counts.calls).toBeLessThan(60);

    resend.always(null);
    await allDue();
    await probeTime("email");
    await until(
      () => isOpen("email"),
      (open) => !open,
    );
    const [fresh] = await take(db(), mail("fresh@example.com"));
    await until(
      async () => {
        await allDue();
        return await tally(db());
      },
      (states) => states["sent"] === 2_002,
      30_000,
    );
    expect(await stateOf(db(), fresh as DeliveryId)).toMatchObject({ state: "sent", attempt_count: 1 });
    const made = await sql<{ most: number }>`select max(attempt_count)::integer as most from deliveries`.execute(db());
    expect(made.rows[0]?.most).toBeLessThanOrEqual(4);
    expect(Math.max(...resend.received.values())).toBe(1);
    await worker.stop(4_000);
    await Promise.all([resend.close(), telegram.close()]);
  });
});
