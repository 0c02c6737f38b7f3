import { sql } from "kysely";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { DeliveryId } from "../../src/ledger/delivery.ts";
import { readTimeline } from "../../src/store/deliveries.ts";
import type { Posted } from "../../src/store/intake.ts";
import type { Worker } from "../../src/worker/worker.ts";
import type { Fake } from "../fakes/desk.ts";
import { DAILY_QUOTA, openFakeResend, RATE_LIMITED, resendError } from "../fakes/resend.ts";
import { BLOCKED, MIGRATED, openFakeTelegram, telegramError } from "../fakes/telegram.ts";
import { changeChannels, moveInTime, take } from "../support/builders.ts";
import { empty, type TestDatabase, testDatabase } from "../support/database.ts";
import {
  attemptsOf,
  emailTo,
  onRung,
  openItem,
  settles,
  stateOf,
  tally,
  telegramTo,
  until,
  work,
} from "../support/pipeline.ts";

let database: TestDatabase;
let resend: Fake;
let telegram: Fake;
let worker: Worker;
const HOUR = 3_600_000;

beforeAll(async () => {
  database = await testDatabase();
  resend = await openFakeResend();
  telegram = await openFakeTelegram();
});
afterAll(async () => {
  await Promise.all([resend.close(), telegram.close()]);
  await database.close();
});
beforeEach(async () => {
  await empty(database.db, "deliveries", "channels", "suppressions", "recipient_moves", "events");
  resend.reset();
  telegram.reset();
  resend.accept(null);
  telegram.accept(null);
  worker = await work(database.db, [emailTo(resend.url), telegramTo(telegram.url)], { providerTimeoutMs: 300 });
});
afterEach(() => worker.stop(3_000));

let counter = 0;
async function postEmail(to: string, more: Partial<Posted> = {}): Promise<DeliveryId> {
  counter += 1;
  const request = { channel: "email", to, message: { subject: `Hello ${counter}`, text: "hi" } };
  const [id] = await take(database.db, { channel: "email", recipient: to, request, ...more });
  return id as DeliveryId;
}
async function postTelegram(to: string, more: Partial<Posted> = {}): Promise<DeliveryId> {
  const request = { channel: "telegram", to, message: { text: "hi" } };
  const [id] = await take(database.db, { channel: "telegram", recipient: to, request, ...more });
  return id as DeliveryId;
}
const callsTo = (fake: Fake, recipient: string) => fake.calls.filter((call) => call.recipient === recipient);
const nextRung = (id: DeliveryId) => moveInTime(database.db, id, 60_000);

describe("the main job", () => {
  test("an email is claimed, called once and settled as sent, with the provider's message id", async () => {
    const id = await postEmail("ada@example.com");
    const row = await settles(database.db, id, "sent");
    expect(row.provider_message_id).toMatch(/^[0-9a-f-]{36}$/);
    const [attempt] = await attemptsOf(database.db, id);
    expect(attempt).toMatchObject({ number: 1, verdict: "accepted", idempotency_key: `${id}.1`, phase: "sent" });
    expect(callsTo(resend, "ada@example.com")).toHaveLength(1);
  });

  test("a telegram message likewise", async () => {
    const id = await postTelegram("1001");
    await settles(database.db, id, "sent");
    expect(callsTo(telegram, "1001")).toHaveLength(1);
  });

  test("deliver_at is waited for, and no attempt is used up meanwhile", async () => {
    const id = await postEmail("later@example.com", { deliverAt: new Date(Date.now() + HOUR) });
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(await stateOf(database.db, id)).toMatchObject({ state: "pending", attempt_count: 0 });
    await moveInTime(database.db, id, HOUR);
    await settles(database.db, id, "sent");
  });
});

describe("doubtful answers", () => {
  test("an email whose answer was lost is repeated on the next rung, same key, same bytes: one effect", async () => {
    resend.script("lost@example.com", [{ do: "reset", effect: true }]);
    const id = await postEmail("lost@example.com");
    await onRung(database.db, id, 1);
    await nextRung(id);
    await settles(database.db, id, "sent");
    const calls = callsTo(resend, "lost@example.com");
    expect(calls).toHaveLength(2);
    expect(calls[1]?.body).toBe(calls[0]?.body);
    expect(calls[1]?.key).toBe(calls[0]?.key);
    expect(resend.received.get("lost@example.com")).toBe(1);
  });

  test("the repeat is the frozen body, also when the default sender has changed since (an upgrade, a restart)", async () => {
    resend.script("frozen@example.com", [resendError(500, "internal_server_error")]);
    const id = await postEmail("frozen@example.com");
    await onRung(database.db, id, 1);
    await worker.stop(2_000);
    worker = await work(database.db, [emailTo(resend.url, "Other <other@example.com>")]);
    await nextRung(id);
    await settles(database.db, id, "sent");
    const bodies = callsTo(resend, "frozen@example.com").map(({ body }) => body);
    expect(new Set(bodies).size).toBe(1);
  });

  test("a telegram message that was read and never answered is in needs-attention, and is never sent again", async () => {
    telegram.script("1002", [{ do: "hang", effect: true }]);
    const id = await postTelegram("1002");
    await settles(database.db, id, "needs_attention");
    expect(await openItem(database.db, id)).toMatchObject({ reason: "timeout", closed_at: null });
    await moveInTime(database.db, id, 10 * 60_000);
    await new Promise((resolve) => setTimeout(resolve, 150));
    expect(callsTo(telegram, "1002")).toHaveLength(1);
  });

  test.each([
    ["a reset after the request", { do: "reset" as const }],
    ["a close after the request", { do: "close" as const }],
    ["a 502", telegramError(502, "Bad Gateway")],
  ])("telegram, %s: needs-attention after one call", async (_what, step) => {
    telegram.script("1003", [step]);
    const id = await postTelegram("1003");
    await settles(database.db, id, "needs_attention");
    expect(callsTo(telegram, "1003")).toHaveLength(1);
  });

  test("on_unknown resend accepts a duplicate: sent again on the next rung, under a fresh key", async () => {
    telegram.script("1004", [{ do: "reset", effect: true }]);
    const id = await postTelegram("1004", { onUnknown: "resend" });
    await onRung(database.db, id, 1);
    await nextRung(id);
    await settles(database.db, id, "sent");
    expect((await attemptsOf(database.db, id)).map(({ generation }) => generation)).toEqual([1, 2]);
  });

  test("when the key's window has closed before the rung is reached, nothing is sent: needs-attention", async () => {
    resend.script("old@example.com", [{ do: "reset" }]);
    const id = await postEmail("old@example.com");
    await onRung(database.db, id, 1);
    await moveInTime(database.db, id, 23 * HOUR);
    await settles(database.db, id, "needs_attention");
    expect(await openItem(database.db, id)).toMatchObject({ reason: "window_closed" });
    expect(callsTo(resend, "old@example.com")).toHaveLength(1);
  });

  test("four unknown answers end in needs-attention", async () => {
    resend.script(
      "never@example.com",
      Array.from({ length: 4 }, () => resendError(500, "internal_server_error")),
    );
    const id = await postEmail("never@example.com");
    for (const made of [1, 2, 3]) {
      await onRung(database.db, id, made);
      await nextRung(id);
    }
    await settles(database.db, id, "needs_attention");
    expect(callsTo(resend, "never@example.com")).toHaveLength(4);
  });

  test("a body conflict under the key is a fault of ours: needs-attention at once, no new key", async () => {
    resend.script("conflict@example.com", [resendError(409, "invalid_idempotent_request")]);
    const id = await postEmail("conflict@example.com");
    await settles(database.db, id, "needs_attention");
    expect(await openItem(database.db, id)).toMatchObject({ reason: "payload_mismatch" });
  });

  test("an expiry reached with an attempt in doubt is not called expired: needs-attention says so", async () => {
    resend.script("doubt@example.com", [{ do: "reset" }]);
    const id = await postEmail("doubt@example.com", { expiresAt: new Date(Date.now() + 30_000) });
    await onRung(database.db, id, 1);
    await nextRung(id);
    await settles(database.db, id, "needs_attention");
    expect(await openItem(database.db, id)).toMatchObject({ reason: "expired_in_doubt" });
  });
});

test("while a provider stalls, no transaction is open and no row is locked", async () => {
  telegram.script("1099", [{ do: "hang" }]);
  const id = await postTelegram("1099");
  await until(
    () => callsTo(telegram, "1099").length,
    (calls) => calls === 1,
  );
  const { rows } = await sql<{ state: string }>`
    select state from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid() and xact_start < now() - interval '50 milliseconds'`.execute(
    database.db,
  );
  expect(rows).toEqual([]);
  await settles(database.db, id, "needs_attention");
});

describe("proven answers", () => {
  test("a refusal is failed after one call, with the provider's words", async () => {
    resend.script("bad@example.com", [resendError(422, "invalid_parameter", "no such domain")]);
    const id = await postEmail("bad@example.com");
    expect(await settles(database.db, id, "failed")).toMatchObject({ failure: "refused" });
    expect((await attemptsOf(database.db, id))[0]).toMatchObject({
      status_code: 422,
      error_code: "invalid_parameter",
      error_message: "no such domain",
    });
  });

  test("a rate limit climbs the ladder under fresh keys, then is sent", async () => {
    resend.script("busy@example.com", [RATE_LIMITED(1)]);
    const id = await postEmail("busy@example.com");
    const row = await onRung(database.db, id, 1);
    const [attempt] = await attemptsOf(database.db, id);
    expect((row.next_attempt_at?.getTime() ?? 0) - (attempt?.settled_at?.getTime() ?? 0)).toBe(60_000);
    await changeChannels(database.db, sql`paced_until = null`);
    await nextRung(id);
    await settles(database.db, id, "sent");
    expect((await attemptsOf(database.db, id)).map(({ generation }) => generation)).toEqual([1, 2]);
  });

  test("a longer wait that the provider names is taken to its rung, and the slot is free meanwhile", async () => {
    telegram.script("1005", [telegramError(429, "Too Many Requests: retry after 10072", { retry_after: 10_072 })]);
    const id = await postTelegram("1005");
    const row = await onRung(database.db, id, 1);
    const [attempt] = await attemptsOf(database.db, id);
    expect((row.next_attempt_at?.getTime() ?? 0) - (attempt?.settled_at?.getTime() ?? 0)).toBe(168 * 60_000);
    await settles(database.db, await postTelegram("1006"), "sent");
  });

  test("four deferrals are failed as exhausted", async () => {
    telegram.script(
      "1007",
      Array.from({ length: 4 }, () => telegramError(429, "Too Many Requests", { retry_after: 1 })),
    );
    const id = await postTelegram("1007");
    for (const made of [1, 2, 3]) {
      await onRung(database.db, id, made);
      await nextRung(id);
    }
    expect(await settles(database.db, id, "failed")).toMatchObject({ failure: "exhausted", attempt_count: 4 });
  });

  test("a group that moved is reached at its new id, also by the next delivery to the old one", async () => {
    telegram.script("-55", [MIGRATED(-1_009_990_001)]);
    const id = await postTelegram("-55");
    await onRung(database.db, id, 1);
    await nextRung(id);
    await settles(database.db, id, "sent");
    const next = await postTelegram("-55");
    await settles(database.db, next, "sent");
    const claimed = (await readTimeline(database.db, next)).find(({ type }) => type === "delivery.claimed");
    expect(claimed?.data, "saying so").toMatchObject({ moved_to: "-1009990001" });
    expect(telegram.received.get("-1009990001")).toBe(2);
    expect(callsTo(telegram, "-55")).toHaveLength(1);
  });

  test("a user who blocked the bot is suppressed: the next delivery is closed without a call", async () => {
    telegram.script("1008", [BLOCKED]);
    expect(await settles(database.db, await postTelegram("1008"), "failed")).toMatchObject({ failure: "refused" });
    await settles(database.db, await postTelegram("1008"), "suppressed");
    expect(callsTo(telegram, "1008")).toHaveLength(1);
  });

  test("an error text with U+0000 is stored all the same", async () => {
    resend.script("nul@example.com", [resendError(422, "validation_error", "bad \u0000 byte")]);
    await settles(database.db, await postEmail("nul@example.com"), "failed");
  });
});

describe("refusals that concern the channel", () => {
  test("a thousand deliveries and a wrong key end, after the key is put right, as a thousand sent ones", async () => {
    resend.accept(["another key"]);
    const message = { subject: "s", text: "t" };
    const list = Array.from({ length: 1_000 }, (_, i) => `user${i}@example.com`);
    await take(
      database.db,
      ...list.map((to) => ({ channel: "email", recipient: to, name: to, request: { channel: "email", to, message } })),
    );
    const paused = () =>
      database.db.selectFrom("channels").selectAll().where("id", "=", "email").executeTakeFirstOrThrow();
    await until(paused, (row) => row.pause_reason === "credentials_refused");
    await until(
      () => tally(database.db),
      (states) => states["pending"] === 1_000,
    );
    const burned = resend.counts.calls;
    await new Promise((resolve) => setTimeout(resolve, 150));
    expect(resend.counts.calls).toBe(burned);
    expect(burned).toBeLessThanOrEqual(64);
    resend.accept(null);
    await changeChannels(database.db, sql`paused_at = null, pause_reason = null`);
    await sql`update deliveries set next_attempt_at = ledger_now() where state = 'pending'`.execute(database.db);
    await until(
      () => tally(database.db),
      (states) => states["sent"] === 1_000,
      20_000,
    );
    expect([...resend.received.values()].every((times) => times === 1)).toBe(true);
  });

  test("a worker that still has the old key holds nobody; the hold ends when the key is put right", async () => {
    const paused = () =>
      database.db.selectFrom("channels").select("paused_at").where("id", "=", "email").executeTakeFirstOrThrow();
    resend.accept(["re_right_key_of_the_shop"]);
    const id = await postEmail("rolling@example.com");
    await until(paused, (row) => row.paused_at !== null);
    // A rolling restart: the new worker has the right key, the old one goes on a while.
    const right = { ...emailTo(resend.url), credentials: "two" };
    right.settings = { ...right.settings, apiKey: "re_right_key_of_the_shop" } as typeof right.settings;
    const next = await work(database.db, [right], { concurrency: 1 });
    expect(await paused()).toEqual({ paused_at: null });
    await until(
      async () => {
        await nextRung(id);
        return stateOf(database.db, id);
      },
      ({ state }) => state === "sent",
    );
    expect(await paused()).toEqual({ paused_at: null });
    await next.stop(2_000);
  });

  test("a used-up quota holds the channel for a time and burns no attempt", async () => {
    resend.always(DAILY_QUOTA);
    const id = await postEmail("quota@example.com");
    await onRung(database.db, id, 1);
    expect((await attemptsOf(database.db, id))[0]).toMatchObject({ reason: "daily_quota_exceeded", counted: false });
    const channel = await database.db
      .selectFrom("channels")
      .selectAll()
      .where("id", "=", "email")
      .executeTakeFirstOrThrow();
    expect((channel.paused_until?.getTime() ?? 0) - (channel.paused_at?.getTime() ?? 0)).toBe(HOUR);
    resend.always(null);
    await changeChannels(database.db, sql`paused_until = ledger_now()`);
    await nextRung(id);
    await settles(database.db, id, "sent");
  });

  test("a paused channel makes no attempt; its deliveries still expire", async () => {
    await sql`update channels set paused_at = ledger_now(), pause_reason = 'operator' where id = 'email'`.execute(
      database.db,
    );
    const waits = await postEmail("waits@example.com");
    const late = await postEmail("late@example.com", { expiresAt: new Date(Date.now() + HOUR) });
    await moveInTime(database.db, late, HOUR);
    await settles(database.db, late, "expired");
    expect(await stateOf(database.db, waits)).toMatchObject({ state: "pending", attempt_count: 0 });
    expect(resend.counts.calls).toBe(0);
    await changeChannels(database.db, sql`paused_at = null, pause_reason = null`);
    await settles(database.db, waits, "sent");
  });
});
