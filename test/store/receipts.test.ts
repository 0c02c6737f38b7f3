import { sql } from "kysely";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { AttemptNumber, DeliveryId, ProducerId } from "../../src/ledger/delivery.ts";
import { ownOutcome } from "../../src/ledger/verdict.ts";
import { capabilityOf } from "../../src/providers/index.ts";
import { ensureProducer } from "../../src/store/keys.ts";
import { rematchReceipts } from "../../src/store/receipts.ts";
import { settleAttempts } from "../../src/store/settlements.ts";
import { channel, insertAttempt, insertDelivery } from "../support/builders.ts";
import { empty, type TestDatabase, testDatabase } from "../support/database.ts";
import { attemptsOf, stateOf } from "../support/pipeline.ts";
import { apply, eventsOf, itemsOf, receipt, receiptOf } from "../support/receipts.ts";

let database: TestDatabase;
let shop: ProducerId;
beforeAll(async () => {
  database = await testDatabase();
});
afterAll(() => database.close());
beforeEach(async () => {
  await empty(database.db, "deliveries", "channels", "suppressions", "events", "receipts");
  await channel(database.db, "email", "resend");
  await channel(database.db, "telegram", "telegram");
  shop = await ensureProducer(database.db, "shop");
});

const settled = { settled_at: new Date() };
const CLOSED = { next_attempt_at: null, settled_at: new Date() };

/** An email with one attempt: of this verdict, or open. */
async function attempted(
  verdict: "accepted" | "unknown" | "refused" | "deferred" | null,
  delivery: Record<string, unknown> = {},
  attempt: Record<string, unknown> = {},
): Promise<DeliveryId> {
  const states = {
    accepted: { state: "sent", ...CLOSED },
    unknown: { state: "needs_attention", in_doubt: true, ...CLOSED },
    refused: { state: "failed", failure: "refused", ...CLOSED },
    deferred: {},
    open: { state: "claimed", next_attempt_at: null },
  };
  const id = await insertDelivery(database.db, {
    channel: "email",
    recipient: "ada@example.com",
    attempt_count: 1,
    ...states[verdict ?? "open"],
    ...delivery,
  });
  const verdictOf =
    verdict === null ? {} : { verdict, reason: verdict === "unknown" ? "timeout" : verdict, ...settled };
  await insertAttempt(database.db, id, { recipient: "ada@example.com", ...verdictOf, ...attempt });
  if (verdict === "unknown") {
    await sql`
      insert into attention_items (id, delivery_id, producer_id, channel, reason)
      select gen_random_uuid(), id, producer_id, channel, 'timeout' from deliveries where id = ${id}`.execute(
      database.db,
    );
  }
  return id;
}

/** The answer to the open attempt comes. */
const answer = (
  id: DeliveryId,
  verdict: "accepted" | "unknown" | "deferred",
  providerMessageId: string | null = null,
) =>
  settleAttempts(
    database.db,
    [
      {
        deliveryId: id,
        producerId: shop,
        number: 1 as AttemptNumber,
        outcome: { ...ownOutcome("unknown", verdict), verdict, providerMessageId },
        witness: { source: "answer", by: "test" },
        credentials: null,
        answer: null,
      },
    ],
    capabilityOf,
  );

describe("matching", () => {
  test("by our tag, by the provider's message id, and by the name", async () => {
    const id = await attempted(
      "accepted",
      { name: "order-1", provider_message_id: "em_1" },
      { provider_message_id: "em_1" },
    );
    const results = await apply(
      database.db,
      receipt({ deliveryId: id }),
      receipt({ providerMessageId: "em_1" }),
      receipt({ name: "order-1", producerId: shop }),
    );
    expect(results).toEqual(results.map(() => ({ result: "applied", deliveryId: id })));
    expect(await receiptOf(database.db, id)).toMatchObject({ status: "delivered" });
  });

  test("an unknown id, another channel's delivery and another producer's are kept, and change nothing", async () => {
    const id = await attempted("accepted", { provider_message_id: "em_1" }, { provider_message_id: "em_1" });
    const other = await ensureProducer(database.db, "other");
    const results = await apply(
      database.db,
      receipt({ providerMessageId: "em_unknown" }),
      receipt({ deliveryId: "01990000-0000-7000-8000-000000000000" as DeliveryId }),
      receipt({ channel: "telegram", deliveryId: id }),
      receipt({ deliveryId: id, producerId: other }),
      receipt({ providerMessageId: "em_1", producerId: other }),
    );
    expect(results).toEqual(results.map(() => ({ result: "unmatched", deliveryId: null })));
    expect(await receiptOf(database.db, id)).toBeNull();
    const kept = await sql<{
      n: number;
    }>`select count(*)::integer as n from receipts where delivery_id is null`.execute(database.db);
    expect(kept.rows[0]?.n).toBe(5);
  });

  test("a message id that two deliveries have matches neither: a Telegram message's number is one in its chat only", async () => {
    for (const recipient of ["1", "2"]) {
      await attempted("accepted", { channel: "telegram", recipient }, { provider_message_id: "42" });
    }
    const [result] = await apply(database.db, receipt({ channel: "telegram", providerMessageId: "42" }));
    expect(result?.result).toBe("unmatched");
  });
});

describe("the same event", () => {
  test("twice is one, in one list or in two", async () => {
    const id = await attempted("accepted");
    const one = receipt({ deliveryId: id });
    const results = await apply(database.db, one, { ...one }, receipt({ deliveryId: id, status: "opened" }));
    expect(results.map(({ result }) => result)).toEqual(["applied", "duplicate", "applied"]);
    expect(await apply(database.db, one)).toEqual([{ result: "duplicate", deliveryId: id }]);
    expect(await eventsOf(database.db, id)).toEqual(["receipt.delivered", "receipt.opened"]);
  });

  test("fifty times at once is one", async () => {
    const id = await attempted("unknown");
    const one = receipt({ deliveryId: id, providerMessageId: "em_1" });
    const results = await Promise.all(Array.from({ length: 50 }, () => apply(database.db, one)));
    expect(results.flat().filter(({ result }) => result === "applied")).toHaveLength(1);
    expect((await eventsOf(database.db, id)).filter((type) => type === "receipt.delivered")).toHaveLength(1);
    expect((await stateOf(database.db, id)).state).toBe("sent");
  });

  test("is not marked as had when its effect could not be written: the repeat applies it", async () => {
    const id = await attempted("accepted");
    await sql`create function fail_once() returns trigger language plpgsql as $$ begin raise 'no'; end $$`.execute(
      database.db,
    );
    await sql`create trigger fail_once before update of receipt_status on deliveries for each row execute function fail_once()`.execute(
      database.db,
    );
    const one = receipt({ deliveryId: id, status: "bounced" });
    await expect(apply(database.db, one)).rejects.toThrow("no");
    await sql`drop function fail_once cascade`.execute(database.db);
    expect(await apply(database.db, one)).toEqual([{ result: "applied", deliveryId: id }]);
    expect(await receiptOf(database.db, id)).toMatchObject({ status: "bounced" });
    expect(await apply(database.db, one)).toEqual([{ result: "duplicate", deliveryId: id }]);
  });
});

describe("order", () => {
  const EVENTS = [
    { status: "delivered", occurredAt: 3_000 },
    { status: null, type: "email.sent", occurredAt: 5_000 },
    { status: "complained", occurredAt: 2_000 },
    { status: "delivered", occurredAt: 2_000 },
    { status: "opened", occurredAt: 4_000 },
  ] as const;
  const permutations = <T>(all: readonly T[]): T[][] =>
    all.length <= 1
      ? [[...all]]
      : all.flatMap((one, index) => permutations(all.toSpliced(index, 1)).map((rest) => [one, ...rest]));

  test("delivered, sent, complained, delivered, opened end as complained in all 120 orders; all stand in the timeline", async () => {
    const orders = permutations(EVENTS);
    const results = await Promise.all(
      orders.map(async (order) => {
        const id = await attempted("accepted");
        for (const event of order) await apply(database.db, receipt({ ...event, deliveryId: id }));
        return { receipt: await receiptOf(database.db, id), events: (await eventsOf(database.db, id)).toSorted() };
      }),
    );
    expect(new Set(results.map((result) => JSON.stringify(result)))).toEqual(
      new Set([
        JSON.stringify({
          receipt: { status: "complained", at: 2_000 },
          events: [
            "receipt.accepted",
            "receipt.complained",
            "receipt.delivered",
            "receipt.delivered",
            "receipt.opened",
          ],
        }),
      ]),
    );
  });

  test("a late sent never undoes delivered, and is no receipt by itself", async () => {
    const id = await attempted("accepted");
    await apply(database.db, receipt({ deliveryId: id, occurredAt: 1_000 }));
    await apply(database.db, receipt({ deliveryId: id, status: null, type: "email.sent", occurredAt: 9_000 }));
    expect(await receiptOf(database.db, id)).toEqual({ status: "delivered", at: 1_000 });
  });

  test("a bounce after delivered is what came last", async () => {
    const id = await attempted("accepted");
    await apply(database.db, receipt({ deliveryId: id, status: "bounced", occurredAt: 2_000 }));
    await apply(database.db, receipt({ deliveryId: id, occurredAt: 1_000 }));
    expect(await receiptOf(database.db, id)).toEqual({ status: "bounced", at: 2_000 });
  });
});

describe("a report that the provider has the message", () => {
  test("settles an unknown attempt as accepted: the delivery leaves needs-attention by itself, and the item says so", async () => {
    const id = await attempted("unknown");
    await apply(database.db, receipt({ deliveryId: id, status: null, type: "email.sent", providerMessageId: "em_1" }));
    expect(await stateOf(database.db, id)).toMatchObject({
      state: "sent",
      in_doubt: false,
      provider_message_id: "em_1",
    });
    const [attempt] = await attemptsOf(database.db, id);
    expect(attempt).toMatchObject({ verdict: "accepted", evidence: "receipt", provider_message_id: "em_1" });
    expect(await itemsOf(database.db, id)).toMatchObject([{ resolution: "evidence", resolved_by: "ledger" }]);
    expect(await eventsOf(database.db, id)).toEqual(["receipt.accepted", "delivery.sent", "attention.closed"]);
  });

  test("supplies the id of an acceptance whose answer was cut off", async () => {
    const id = await attempted("accepted");
    await apply(database.db, receipt({ deliveryId: id, providerMessageId: "em_1" }));
    expect((await stateOf(database.db, id)).provider_message_id).toBe("em_1");
    expect((await attemptsOf(database.db, id))[0]).toMatchObject({ verdict: "accepted", provider_message_id: "em_1" });
  });

  test("while the attempt is open, waits for its answer", async () => {
    const id = await attempted(null);
    await apply(database.db, receipt({ deliveryId: id, providerMessageId: "em_1" }));
    expect(await stateOf(database.db, id)).toMatchObject({ state: "claimed" });
    expect(await receiptOf(database.db, id)).toMatchObject({ status: "delivered" });
    await answer(id, "accepted", "em_1");
    expect(await stateOf(database.db, id)).toMatchObject({ state: "sent", provider_message_id: "em_1" });
    expect(await itemsOf(database.db, id)).toEqual([]);
  });

  test("that overtook an answer which was lost settles the attempt: no repeat, no item left", async () => {
    const id = await attempted(null);
    await apply(database.db, receipt({ deliveryId: id, providerMessageId: "em_1" }));
    await answer(id, "unknown");
    expect(await stateOf(database.db, id)).toMatchObject({
      state: "sent",
      provider_message_id: "em_1",
      in_doubt: false,
    });
  });

  test("by a message id that nobody knows yet is kept, and matched when the attempt settles", async () => {
    const id = await attempted(null);
    const early = [
      receipt({ providerMessageId: "em_7", occurredAt: 1_000 }),
      receipt({ providerMessageId: "em_7", status: "opened", occurredAt: 2_000 }),
    ];
    expect((await apply(database.db, ...early)).map(({ result }) => result)).toEqual(["unmatched", "unmatched"]);
    await answer(id, "accepted", "em_7");
    expect(await receiptOf(database.db, id)).toMatchObject({ status: "opened" });
    expect(await eventsOf(database.db, id)).toEqual(["delivery.sent", "receipt.delivered", "receipt.opened"]);
    expect(await apply(database.db, early[0] ?? receipt())).toEqual([{ result: "duplicate", deliveryId: id }]);
  });

  test("that its producer alone may claim is not matched to another's message later", async () => {
    const id = await attempted(null);
    const other = await ensureProducer(database.db, "other");
    await apply(database.db, receipt({ providerMessageId: "em_8", producerId: other }));
    await answer(id, "accepted", "em_8");
    expect(await receiptOf(database.db, id)).toBeNull();
  });

  test("and an attempt that settles at the same moment find each other, in whatever order they commit", async () => {
    const ids = await Promise.all(Array.from({ length: 40 }, () => attempted(null)));
    await Promise.all(
      ids.flatMap((id) => [
        answer(id, "accepted", `em_${id}`),
        apply(database.db, receipt({ providerMessageId: `em_${id}` })),
      ]),
    );
    await sql`update receipts set look_again_at = now() where look_again_at is not null`.execute(database.db);
    await rematchReceipts(database.db, 100, capabilityOf);
    for (const id of ids) expect(await receiptOf(database.db, id)).toMatchObject({ status: "delivered" });
  });

  test("that matches nothing is looked at a few times, and then left alone, still visible", async () => {
    await apply(database.db, receipt({ providerMessageId: "em_elsewhere" }));
    const look = async () => {
      await sql`
        update receipts set received_at = received_at - interval '5 minutes', look_again_at = now() - interval '1 second'
        where look_again_at is not null`.execute(database.db);
      return await rematchReceipts(database.db, 10, capabilityOf);
    };
    expect([await look(), await look(), await look(), await look()]).toEqual([1, 1, 0, 0]);
    const { rows } = await sql`select 1 from receipts where delivery_id is null`.execute(database.db);
    expect(rows).toHaveLength(1);
  });
});

describe("a contradiction opens an item of its own, and moves nothing", () => {
  test("delivered, for a delivery that an operator abandoned", async () => {
    const id = await attempted("unknown");
    await sql`update deliveries set state = 'failed', failure = 'abandoned' where id = ${id}`.execute(database.db);
    await sql`update attention_items set closed_at = now(), resolution = 'abandon', resolved_by = 'eve'`.execute(
      database.db,
    );
    await apply(database.db, receipt({ deliveryId: id, providerMessageId: "em_1" }));
    await apply(database.db, receipt({ deliveryId: id, providerMessageId: "em_1", status: "opened" }));
    expect(await stateOf(database.db, id)).toMatchObject({ state: "failed", failure: "abandoned" });
    const items = await itemsOf(database.db, id);
    expect(items.map(({ reason, closed_at }) => [reason, closed_at === null])).toEqual([
      ["timeout", false],
      ["contradiction", true],
    ]);
    expect(items[1]?.detail).toMatchObject({ why: "accepted_after_failed", provider_message_id: "em_1" });
    expect((await attemptsOf(database.db, id))[0]).toMatchObject({ verdict: "accepted" });
  });

  test("delivered, for one that was refused", async () => {
    const id = await attempted("refused");
    await apply(database.db, receipt({ deliveryId: id }));
    expect(await stateOf(database.db, id)).toMatchObject({ state: "failed" });
    expect(await itemsOf(database.db, id)).toMatchObject([{ reason: "contradiction", closed_at: null }]);
  });

  test("two message ids for one delivery", async () => {
    const id = await attempted("accepted", { provider_message_id: "em_1" }, { provider_message_id: "em_1" });
    await apply(database.db, receipt({ deliveryId: id, providerMessageId: "em_2" }));
    expect(await stateOf(database.db, id)).toMatchObject({ state: "sent", provider_message_id: "em_1" });
    const [item] = await itemsOf(database.db, id);
    expect(item?.detail).toMatchObject({
      why: "two_message_ids",
      held_message_id: "em_1",
      provider_message_id: "em_2",
    });
  });

  test("delivered, for one that waits for a further attempt: it stops, for the attempt could be a second message", async () => {
    const id = await attempted("deferred");
    await apply(database.db, receipt({ deliveryId: id, providerMessageId: "em_1" }));
    expect(await stateOf(database.db, id)).toMatchObject({ state: "needs_attention", next_attempt_at: null });
    expect(await itemsOf(database.db, id)).toMatchObject([{ reason: "contradiction" }]);
  });

  test("once for each message id, also after somebody has closed it", async () => {
    const id = await attempted("refused");
    await apply(database.db, receipt({ deliveryId: id, providerMessageId: "em_1" }));
    await sql`update attention_items set closed_at = now(), resolution = 'abandon', resolved_by = 'eve'`.execute(
      database.db,
    );
    await apply(database.db, receipt({ deliveryId: id, providerMessageId: "em_1", status: "opened" }));
    await apply(database.db, receipt({ deliveryId: id, providerMessageId: "em_2" }));
    expect(await itemsOf(database.db, id)).toHaveLength(2);
  });
});

describe("what was found by attacking it", () => {
  test("a receipt known by its message id alone matches a delivery whose attempts both have that id", async () => {
    const id = await attempted(
      "accepted",
      { provider_message_id: "em_1", attempt_count: 2 },
      { provider_message_id: "em_1" },
    );
    const more = { number: 2, verdict: "accepted", reason: "accepted", ...settled, provider_message_id: "em_1" };
    await insertAttempt(database.db, id, { recipient: "ada@example.com", ...more });
    expect(await apply(database.db, receipt({ providerMessageId: "em_1" }))).toEqual([
      { result: "applied", deliveryId: id },
    ]);
  });

  test("a receipt that came while the attempt was open supplies the id that its acceptance lacks", async () => {
    const id = await attempted(null);
    await apply(database.db, receipt({ deliveryId: id, providerMessageId: "em_1" }));
    await answer(id, "accepted");
    expect(await stateOf(database.db, id)).toMatchObject({ state: "sent", provider_message_id: "em_1" });
  });

  test("and contradicts it, when the answer has another id", async () => {
    const id = await attempted(null);
    await apply(database.db, receipt({ deliveryId: id, providerMessageId: "em_1" }));
    await answer(id, "accepted", "em_2");
    expect((await itemsOf(database.db, id))[0]?.detail).toMatchObject({ why: "two_message_ids" });
  });

  test("what contradicts the ledger while an item is open is added to it, once for each message id", async () => {
    const id = await attempted("accepted", { provider_message_id: "em_1" }, { provider_message_id: "em_1" });
    for (const providerMessageId of ["em_2", "em_3", "em_3", "em_2"]) {
      await apply(database.db, receipt({ deliveryId: id, providerMessageId }));
    }
    expect(await itemsOf(database.db, id)).toMatchObject([
      { detail: { provider_message_id: "em_2", further: [{ provider_message_id: "em_3" }] } },
    ]);
  });

  test("an event that a producer reported, though it was not about its own message, is not lost to the one whose it is", async () => {
    const id = await attempted("unknown");
    const event = { eventId: "evt_shared", deliveryId: id, providerMessageId: "em_1" };
    const other = await ensureProducer(database.db, "other");
    expect((await apply(database.db, receipt({ ...event, producerId: other })))[0]?.result).toBe("unmatched");
    expect((await apply(database.db, receipt(event)))[0]?.result).toBe("applied");
    expect((await apply(database.db, receipt(event)))[0]?.result).toBe("duplicate");
    expect((await stateOf(database.db, id)).state).toBe("sent");
  });

  test("settling and looking again never wait for each other in a circle", async () => {
    const { rows: before } = await sql<{ n: string }>`
      select deadlocks::text as n from pg_stat_database where datname = current_database()`.execute(database.db);
    for (let round = 0; round < 10; round += 1) {
      const ids = await Promise.all(Array.from({ length: 6 }, () => attempted(null)));
      await apply(database.db, ...ids.map((id) => receipt({ providerMessageId: `em_${id}` })));
      await sql`update receipts set look_again_at = now() where delivery_id is null`.execute(database.db);
      const late = ids.map((id) => answer(id, "accepted", `em_${id}`));
      await Promise.all([...late, ...Array.from({ length: 6 }, () => rematchReceipts(database.db, 50, capabilityOf))]);
    }
    const { rows: after } = await sql<{ n: string }>`
      select deadlocks::text as n from pg_stat_database where datname = current_database()`.execute(database.db);
    expect(after).toEqual(before);
  });
});

describe("suppression", () => {
  const list = async () =>
    (await sql<{ recipient: string; reason: string }>`select recipient, reason from suppressions`.execute(database.db))
      .rows;

  test("a reason to suppress puts the delivery's recipient onto its channel's list, in the key's spelling", async () => {
    const id = await attempted("accepted", { recipient: "Ada@Example.com" });
    const bounce = receipt({
      deliveryId: id,
      status: "bounced",
      suppresses: "hard_bounce",
      recipients: ["ada@example.com"],
    });
    await apply(database.db, bounce);
    expect(await list()).toEqual([{ recipient: "ada@example.com", reason: "hard_bounce" }]);
  });

  test("a bounce of a copy does not suppress the recipient", async () => {
    const id = await attempted("accepted");
    await apply(
      database.db,
      receipt({ deliveryId: id, status: "bounced", suppresses: "hard_bounce", recipients: ["boss@example.com"] }),
    );
    expect(await list()).toEqual([]);
  });

  test("what matches none of our messages suppresses nobody, until it does", async () => {
    const id = await attempted(null);
    await apply(database.db, receipt({ providerMessageId: "em_9", status: "complained", suppresses: "complaint" }));
    expect(await list()).toEqual([]);
    await answer(id, "accepted", "em_9");
    expect(await list()).toEqual([{ recipient: "ada@example.com", reason: "complaint" }]);
  });
});
