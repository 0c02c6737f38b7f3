import { sql } from "kysely";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { DeliveryId } from "../../src/ledger/delivery.ts";
import { capabilityOf } from "../../src/providers/index.ts";
import { resolveItems } from "../../src/store/resolutions.ts";
import type { Worker } from "../../src/worker/worker.ts";
import type { Effect, Fake } from "../fakes/desk.ts";
import { openFakeResend, resendError } from "../fakes/resend.ts";
import { openFakeTelegram } from "../fakes/telegram.ts";
import { moveInTime, take } from "../support/builders.ts";
import { empty, type TestDatabase, testDatabase } from "../support/database.ts";
import {
  attemptsOf,
  emailTo,
  onRung,
  openItem,
  settles,
  stateOf,
  telegramTo,
  until,
  work,
} from "../support/pipeline.ts";
import { apply, eventsOf, itemsOf, receipt, receiptOf } from "../support/receipts.ts";

let database: TestDatabase;
let resend: Fake;
let telegram: Fake;
let worker: Worker;
let onEffect: (effect: Effect) => Promise<void> = async () => {};

beforeAll(async () => {
  database = await testDatabase();
  resend = await openFakeResend({ onEffect: (effect) => onEffect(effect) });
  telegram = await openFakeTelegram();
});
afterAll(async () => {
  await Promise.all([resend.close(), telegram.close()]);
  await database.close();
});
beforeEach(async () => {
  await empty(database.db, "deliveries", "channels", "suppressions", "events", "receipts");
  onEffect = async () => {};
  resend.reset();
  telegram.reset();
  worker = await work(database.db, [emailTo(resend.url), telegramTo(telegram.url)], { providerTimeoutMs: 1_000 });
});
afterEach(() => worker.stop(3_000));

async function post(channel: "email" | "telegram", to: string): Promise<DeliveryId> {
  const message = channel === "email" ? { subject: "Hello", text: "hi" } : { text: "hi" };
  const [id] = await take(database.db, { channel, recipient: to, request: { channel, to, message } });
  return id as DeliveryId;
}
const callsTo = (fake: Fake, recipient: string) => fake.calls.filter((call) => call.recipient === recipient);

let decisions = 0;
async function resolve(id: DeliveryId, action: "resend" | "resend_same_key" | "abandon") {
  const item = await openItem(database.db, id);
  const itemId = (await itemsOf(database.db, id)).at(-1)?.id ?? "";
  decisions += 1;
  const decided = { itemId, action, note: `d${decisions}`, by: "eve", providerMessageId: null };
  const results = await resolveItems(
    database.db,
    [{ ...decided, acknowledgesDuplicateRisk: true }],
    null,
    capabilityOf,
  );
  worker.wake(["email", "telegram"]);
  expect(item).toBeDefined();
  return results[0]?.kind;
}

describe("webhooks settle", () => {
  test("a doubtful email whose webhook arrives leaves the queue with no one touching it", async () => {
    resend.script("doubt@example.com", [resendError(409, "invalid_idempotent_request")]);
    const id = await post("email", "doubt@example.com");
    await settles(database.db, id, "needs_attention");
    await apply(database.db, receipt({ deliveryId: id, providerMessageId: "em_1" }));
    expect(await stateOf(database.db, id)).toMatchObject({ state: "sent", provider_message_id: "em_1" });
    expect(await openItem(database.db, id)).toMatchObject({ resolution: "evidence", resolved_by: "ledger" });
    expect(callsTo(resend, "doubt@example.com")).toHaveLength(1);
  });

  test("one that waits on its rung is sent by its webhook, and the rung is never climbed", async () => {
    resend.script("rung@example.com", [{ do: "reset", effect: true }]);
    const id = await post("email", "rung@example.com");
    await onRung(database.db, id, 1);
    await apply(database.db, receipt({ deliveryId: id, providerMessageId: "em_2" }));
    await moveInTime(database.db, id, 60_000);
    expect(await stateOf(database.db, id)).toMatchObject({ state: "sent", next_attempt_at: null });
    expect(callsTo(resend, "rung@example.com")).toHaveLength(1);
  });

  test("a webhook that overtakes the answer is matched by its tag at once, and the answer settles the delivery", async () => {
    const tagOf = ({ content }: Effect) =>
      (content as { tags: { name: string; value: string }[] }).tags.find(({ name }) => name === "delivery_id")?.value;
    onEffect = async (effect) => {
      await apply(database.db, receipt({ deliveryId: tagOf(effect) as DeliveryId }));
    };
    const id = await post("email", "fast@example.com");
    await settles(database.db, id, "sent");
    expect(await receiptOf(database.db, id)).toMatchObject({ status: "delivered" });
    expect(await eventsOf(database.db, id)).toEqual([
      "delivery.accepted",
      "delivery.claimed",
      "receipt.delivered",
      "delivery.sent",
    ]);
  });

  test("a webhook that overtakes an answer which is then lost settles the delivery all the same: one call, no item", async () => {
    resend.script("both@example.com", [{ do: "hang", effect: true }]);
    const id = await post("email", "both@example.com");
    await until(
      () => stateOf(database.db, id),
      ({ state }) => state === "claimed",
    );
    await apply(database.db, receipt({ deliveryId: id, providerMessageId: "em_3" }));
    await settles(database.db, id, "sent");
    expect((await attemptsOf(database.db, id)).map(({ verdict, evidence }) => [verdict, evidence])).toEqual([
      ["accepted", "receipt"],
    ]);
    expect(callsTo(resend, "both@example.com")).toHaveLength(1);
  });
});

describe("a person's resend", () => {
  test("makes one more call, under a new key, for each decision; doubt after it opens a new item", async () => {
    telegram.always({ do: "reset", effect: true });
    const id = await post("telegram", "1");
    await settles(database.db, id, "needs_attention");
    expect([await resolve(id, "resend"), callsTo(telegram, "1").length]).toEqual(["resolved", 1]);
    await until(
      () => itemsOf(database.db, id),
      (items) => items.length === 2,
    );
    expect(callsTo(telegram, "1")).toHaveLength(2);
    telegram.always(null);
    expect(await resolve(id, "resend")).toBe("resolved");
    await settles(database.db, id, "sent");
    expect(callsTo(telegram, "1")).toHaveLength(3);
    const keys = (await attemptsOf(database.db, id)).map((attempt) => attempt.idempotency_key);
    expect(keys).toEqual([`${id}.1`, `${id}.2`, `${id}.3`]);
    expect(await resolve(id, "resend")).toBe("already_resolved");
  });

  test("under the same key repeats the frozen bytes, and the provider sends once", async () => {
    resend.script("same@example.com", [resendError(500, "internal_server_error"), { do: "reset", effect: true }]);
    const id = await post("email", "same@example.com");
    for (let attempt = 1; attempt < 4; attempt += 1) {
      await onRung(database.db, id, attempt);
      resend.script("same@example.com", [{ do: "reset", effect: true }]);
      await moveInTime(database.db, id, 60_000);
    }
    await settles(database.db, id, "needs_attention");
    expect(await resolve(id, "resend_same_key")).toBe("resolved");
    await settles(database.db, id, "sent");
    const calls = callsTo(resend, "same@example.com");
    expect(calls).toHaveLength(5);
    expect(new Set(calls.map(({ key, body }) => `${key} ${body}`)).size).toBe(1);
    expect(resend.received.get("same@example.com")).toBe(1);
  });

  test("a repeat under the same key that is deferred never leads to a fresh key while the doubt lasts", async () => {
    resend.script("pinned@example.com", [{ do: "reset", effect: true }]);
    const id = await post("email", "pinned@example.com");
    await onRung(database.db, id, 1);
    await sql`
      update deliveries set state = 'needs_attention', next_attempt_at = null, hold_reason = null, settled_at = now()
      where id = ${id}`.execute(database.db);
    await sql`
      insert into attention_items (id, delivery_id, producer_id, channel, reason)
      select gen_random_uuid(), id, producer_id, channel, 'server_error' from deliveries where id = ${id}`.execute(
      database.db,
    );
    resend.script("pinned@example.com", [resendError(429, "rate_limit_exceeded")]);
    await resolve(id, "resend_same_key");
    await onRung(database.db, id, 2);
    await moveInTime(database.db, id, 60_000);
    await settles(database.db, id, "sent");
    expect(new Set(callsTo(resend, "pinned@example.com").map(({ key }) => key))).toEqual(new Set([`${id}.1`]));
    expect(resend.received.get("pinned@example.com")).toBe(1);
  });

  test("that is refused goes back to needs-attention: the first attempt is still in doubt", async () => {
    telegram.script("2", [
      { do: "reset" },
      { do: "answer", status: 400, json: { ok: false, error_code: 400, description: "Bad Request: chat not found" } },
    ]);
    const id = await post("telegram", "2");
    await settles(database.db, id, "needs_attention");
    await resolve(id, "resend");
    await until(
      () => itemsOf(database.db, id),
      (items) => items.length === 2,
    );
    expect((await itemsOf(database.db, id))[1]).toMatchObject({ reason: "refused_after_unknown", closed_at: null });
  });
});

test("a late answer for an abandoned delivery is a contradiction, never silently applied", async () => {
  telegram.script("3", [{ do: "hang", effect: true }]);
  const id = await post("telegram", "3");
  await settles(database.db, id, "needs_attention");
  await resolve(id, "abandon");
  await apply(database.db, receipt({ channel: "telegram", deliveryId: id }));
  expect(await stateOf(database.db, id)).toMatchObject({ state: "failed", failure: "abandoned" });
  expect((await itemsOf(database.db, id)).map(({ reason }) => reason)).toEqual(["timeout", "contradiction"]);
});
