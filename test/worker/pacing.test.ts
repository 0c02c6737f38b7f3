import { sql } from "kysely";
import { beforeEach, describe, expect, test } from "vitest";
import type { DeliveryId } from "../../src/ledger/delivery.ts";
import { type Pacing, pacingOf } from "../../src/ledger/pacing.ts";
import { ownOutcome } from "../../src/ledger/verdict.ts";
import { capabilityOf } from "../../src/providers/index.ts";
import { claimDue } from "../../src/store/claims.ts";
import { forgetPaces } from "../../src/store/pacing.ts";
import { settleAttempts } from "../../src/store/settlements.ts";
import { decideDue } from "../../src/worker/claim.ts";
import { openFakeResend } from "../fakes/resend.ts";
import { openFakeTelegram } from "../fakes/telegram.ts";
import { changeChannels, channel, take } from "../support/builders.ts";
import { emailTo, settles, stateOf, tally, telegramTo, until, work } from "../support/pipeline.ts";
import { accepted, counting, database, table, useDatabase } from "./rig.ts";

useDatabase();
beforeEach(() => sql`truncate recipient_pace`.execute(db()));

const db = () => database.db;
const rate = (perSecond: number): Pacing => ({ perSecond, perRecipient: [], source: "setting" });
const TELEGRAM = pacingOf(capabilityOf("telegram").limits, null);
const many = (n: number, more: object = {}) => take(db(), ...Array.from({ length: n }, () => more));

const claim = (pacing: Pacing, more: { channel?: string; limit?: number; claimedBy?: string } = {}) =>
  claimDue(db(), { channel: "sandbox", limit: 64, claimedBy: "w", leaseMs: 60_000, pacing, ...more }, (due, now) =>
    decideDue(due, table(), now),
  );
/** Time passes for the rate and for every recipient. */
async function pass(ms: number): Promise<void> {
  const earlier = sql`${ms}::double precision * interval '1 millisecond'`;
  await changeChannels(db(), sql`rate_tat = rate_tat - ${earlier}`);
  await sql`update recipient_pace set calls = array(select t - ${earlier} from unnest(calls) t),
    turns = array(select t - ${earlier} from unnest(turns) t), forget_at = forget_at - ${earlier}`.execute(db());
  await sql`update deliveries set next_attempt_at = next_attempt_at - ${earlier} where state = 'pending'`.execute(db());
}

describe("a channel's rate", () => {
  test("claims no more than its tokens, and says when the next one comes", async () => {
    await many(20);
    const first = await claim(rate(30));
    expect(first.claims).toHaveLength(3);
    expect(first.tokenInMs).toBeGreaterThan(0);
    expect(first.tokenInMs).toBeLessThanOrEqual(37.1);
    await pass(1_000);
    expect((await claim(rate(30))).claims).toHaveLength(3);
  });

  test("what has to wait for a token is not touched, and says that it waits", async () => {
    await many(5);
    await claim(rate(0.1));
    expect(await tally(db())).toEqual({ claimed: 1, pending: 4 });
    const { rows } = await sql`select 1 from deliveries where hold_reason is not null`.execute(db());
    expect(rows).toEqual([]);
    const { rate_free_at } = await db().selectFrom("channels").select("rate_free_at").executeTakeFirstOrThrow();
    expect((rate_free_at?.getTime() ?? 0) - Date.now()).toBeGreaterThan(9_000);
  });

  test("is the same for all replicas: whatever many claimers at once get lies within it, in every second", async () => {
    const perSecond = 50;
    await many(400);
    const made: { from: number; to: number; calls: number }[] = [];
    const end = performance.now() + 2_300;
    async function claimer(claimedBy: string): Promise<void> {
      while (performance.now() < end) {
        const from = performance.now();
        const { claims } = await claim(rate(perSecond), { claimedBy });
        if (claims.length > 0) made.push({ from, to: performance.now(), calls: claims.length });
      }
    }
    await Promise.all(Array.from({ length: 6 }, (_, i) => claimer(`w${i}`)));
    // Of these it is certain that they lie within one second.
    for (const { from } of made) {
      const within = made.filter((one) => one.from >= from && one.to < from + 1_000);
      expect(within.reduce((sum, { calls }) => sum + calls, 0)).toBeLessThanOrEqual(perSecond);
    }
    const all = made.reduce((sum, { calls }) => sum + calls, 0);
    expect(all).toBeGreaterThan(10);
  });

  test("two workers on one channel never call more often than it allows", async () => {
    await many(200);
    const [one, two] = [counting(), counting()];
    const called = () => one.calls.size + two.calls.size;
    const startedAt = performance.now();
    const workers = await Promise.all([one, two].map(({ account }) => work(db(), [{ ...account, ratePerSecond: 40 }])));
    const seen: [number, number][] = [];
    await until(
      () => {
        const calls = called();
        seen.push([performance.now() - startedAt, calls]);
        return calls;
      },
      (calls) => calls >= 60,
    );
    await Promise.all(workers.map((worker) => worker.stop(4_000)));
    for (const [ms, calls] of seen) expect(calls).toBeLessThanOrEqual(4 + (36 * ms) / 1000 + 1);
    expect([...one.calls.values(), ...two.calls.values()].every((times) => times === 1)).toBe(true);
  });

  test("off: no limit, and the channel's row is not locked", async () => {
    await many(100);
    const off = pacingOf(capabilityOf("telegram").limits, "off");
    await db()
      .transaction()
      .execute(async (tx) => {
        await sql`select from channels for update`.execute(tx);
        expect((await claim(off, { limit: 100 })).claims).toHaveLength(100);
      });
  });
});

describe("a rate that is learned", () => {
  const learned: Pacing = { perSecond: "learned", perRecipient: [], source: "provider" };
  const learnedRate = async (id = "sandbox") =>
    (await db().selectFrom("channels").select("learned_rate").where("id", "=", id).executeTakeFirstOrThrow())
      .learned_rate;
  async function answered(limitPerSecond: number | null): Promise<void> {
    await many(1);
    const { claims } = await claim({ ...learned, perSecond: null });
    await settleAttempts(
      db(),
      claims.map((one) => ({
        ...accepted(one),
        witness: { source: "answer", by: "w" },
        call: { latencyMs: 5, limitPerSecond },
      })),
      capabilityOf,
    );
  }

  test("is none until an answer says it, then obeyed by all; written only when it changes", async () => {
    await many(30);
    expect((await claim(learned)).claims).toHaveLength(30);
    await answered(2);
    expect(await learnedRate()).toBe(2);
    const version = () => sql`select xmin, ctid from channels`.execute(db()).then(({ rows }) => JSON.stringify(rows));
    const before = await version();
    await answered(2);
    await answered(null);
    expect(await version()).toBe(before);
    await answered(2.7);
    expect(await learnedRate()).toBeCloseTo(2.7);
    const third = await version();
    await answered(2.7);
    expect(await version()).toBe(third);
    await many(10);
    expect((await claim(learned)).claims).toHaveLength(1);
  });

  test("from resend's own headers, by a running worker", async () => {
    const resend = await openFakeResend();
    const headers = { "ratelimit-limit": "3", "ratelimit-policy": "3;w=1" };
    resend.script("a@example.com", [{ do: "answer", status: 200, json: { id: "e" }, headers }]);
    const worker = await work(db(), [{ ...emailTo(resend.url), ratePerSecond: null }]);
    const mail = (to: string) => ({
      channel: "email",
      recipient: to,
      request: { message: { subject: "s", text: "t" } },
    });
    const [id] = await take(db(), mail("a@example.com"));
    await settles(db(), id as DeliveryId, "sent");
    expect(await learnedRate("email")).toBe(3);
    await take(db(), ...Array.from({ length: 20 }, (_, i) => mail(`u${i}@example.com`)));
    const [from, startedAt] = [resend.counts.calls, performance.now()];
    await new Promise((resolve) => setTimeout(resolve, 700));
    expect(resend.counts.calls - from).toBeLessThanOrEqual(2 + (3 * (performance.now() - startedAt)) / 1000);
    await worker.stop(4_000);
    await resend.close();
  });
});

describe("a recipient's pace", () => {
  const chat = (recipient: string) => ({ channel: "telegram", recipient, request: { message: { text: "t" } } });
  const pending = () =>
    sql<{ hold_reason: string | null; s: number }>`
      select hold_reason, round(extract(epoch from next_attempt_at - now()))::integer as s from deliveries
      where state = 'pending' order by next_attempt_at`.execute(db());
  const claimChats = () => claim(TELEGRAM, { channel: "telegram" });

  test("of several for one chat the first is claimed, the k-th held until its k-th second; others go on", async () => {
    await channel(db(), "telegram", "telegram");
    await take(db(), chat("7"), chat("7"), chat("7"), chat("8"));
    const { claims, dueInMs } = await claimChats();
    expect(claims.map(({ to }) => to)).toEqual(["7", "8"]);
    expect((await pending()).rows).toEqual([
      { hold_reason: "rate_limited", s: 1 },
      { hold_reason: "rate_limited", s: 2 },
    ]);
    expect(dueInMs).toBeGreaterThan(500);
    expect(dueInMs).toBeLessThanOrEqual(1_000);
    await pass(1_000);
    expect((await claimChats()).claims.map(({ to }) => to)).toEqual(["7"]);
  });

  test("a message that comes later queues behind those that wait, whatever the case of the chat's name", async () => {
    await channel(db(), "telegram", "telegram");
    await take(db(), chat("@News"), chat("@News"));
    await claimChats();
    await pass(500);
    await take(db(), chat("@news"));
    expect((await claimChats()).claims).toEqual([]);
    expect((await pending()).rows.map(({ s }) => s)).toEqual([1, 2].map((s) => expect.closeTo(s, -0.5)));
    await pass(600);
    expect((await claimChats()).claims.map(({ to }) => to)).toEqual(["@News"]);
  });

  test("a group gets twenty a minute", async () => {
    await channel(db(), "telegram", "telegram");
    await take(db(), ...Array.from({ length: 22 }, () => chat("-100")));
    for (const _batch of [1, 2]) await claimChats();
    expect((await pending()).rows.map(({ s }) => s)).toEqual([...Array.from({ length: 19 }, (_, i) => i + 1), 60, 61]);
  });

  test("is forgotten when it limits nothing any more", async () => {
    await channel(db(), "telegram", "telegram");
    await take(db(), chat("7"), chat("-100"));
    await claimChats();
    expect(await forgetPaces(db(), 10)).toBe(0);
    await pass(30_000);
    expect(await forgetPaces(db(), 10)).toBe(1);
    await pass(31_000);
    expect(await forgetPaces(db(), 10)).toBe(1);
  });

  test("a claim that was never called, or failed, counts as one all the same", async () => {
    await channel(db(), "telegram", "telegram");
    await take(db(), chat("7"), chat("7"));
    const { claims } = await claimChats();
    await settleAttempts(
      db(),
      claims.map((one) => ({
        ...accepted(one),
        outcome: ownOutcome("deferred", "never_called"),
        witness: { source: "never_called", by: "w" },
      })),
      capabilityOf,
    );
    expect((await claimChats()).claims).toEqual([]);
  });

  test("5,000 for one chat hold up neither an email, nor another chat, nor each other for ever (case 31)", {
    timeout: 60_000,
  }, async () => {
    const [resend, telegram] = await Promise.all([openFakeResend(), openFakeTelegram()]);
    await channel(db(), "telegram", "telegram");
    await channel(db(), "email", "resend");
    await take(db(), ...Array.from({ length: 5_000 }, () => chat("7")));
    const [other] = await take(db(), chat("8"));
    const [email] = await take(db(), {
      channel: "email",
      recipient: "ada@example.com",
      request: { message: { subject: "s", text: "t" } },
    });
    const worker = await work(db(), [emailTo(resend.url), { ...telegramTo(telegram.url), ratePerSecond: null }], {
      concurrency: 16,
    });
    await settles(db(), email as DeliveryId, "sent");
    await settles(db(), other as DeliveryId, "sent");
    const held = await until(
      () =>
        sql<{ n: number; s: number }>`
          select count(*)::integer as n, count(distinct next_attempt_at)::integer as s from deliveries
          where hold_reason = 'rate_limited'`
          .execute(db())
          .then(({ rows }) => rows[0]),
      (found) => (found?.n ?? 0) > 4_900,
      30_000,
    );
    // Each has a turn of its own, or nearly: not all until the same moment.
    expect(held?.s).toBeGreaterThan(4_800);
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    const times = telegram.calls.filter(({ recipient }) => recipient === "7").map(({ at }) => at);
    expect(times.length).toBeGreaterThan(1);
    expect(await stateOf(db(), other as DeliveryId)).toMatchObject({ state: "sent", attempt_count: 1 });
    await worker.stop(4_000);
    await Promise.all([resend.close(), telegram.close()]);
  });
});
