import { sql } from "kysely";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { DeliveryId } from "../../src/ledger/delivery.ts";
import type { Finding, LookupClient, Sought } from "../../src/providers/provider.ts";
import { openResendLookup } from "../../src/providers/resend/lookup.ts";
import { claimLookup } from "../../src/store/lookups.ts";
import { reconcile, startReconciler } from "../../src/worker/reconcile.ts";
import { openFakeResend } from "../fakes/resend.ts";
import { channel, insertAttempt, moveInTime, take } from "../support/builders.ts";
import { empty, type TestDatabase, testDatabase } from "../support/database.ts";
import { putInDoubt } from "../support/doubt.ts";
import { attemptsOf, emailTo, onRung, settles, silent, stateOf, until, work } from "../support/pipeline.ts";
import { apply, eventsOf, itemsOf, receipt, receiptOf } from "../support/receipts.ts";

let database: TestDatabase;
const resend = await openFakeResend();
const NEVER = new AbortController().signal;

beforeAll(async () => {
  database = await testDatabase();
});
afterAll(async () => {
  await resend.close();
  await database.close();
});
beforeEach(async () => {
  await empty(database.db, "deliveries", "channels", "suppressions", "events", "receipts");
  await channel(database.db, "email", "resend");
  resend.reset();
});

async function accepted(to = "ada@example.com"): Promise<DeliveryId> {
  const request = { channel: "email", to, message: { subject: "Hello", text: "hi" } };
  const [id] = await take(database.db, { channel: "email", recipient: to, request });
  return id as DeliveryId;
}
async function doubtful(more: Parameters<typeof putInDoubt>[2] = {}): Promise<DeliveryId> {
  const id = await accepted();
  await putInDoubt(database.db, id, more);
  return id;
}

/** A client that answers from a list, and then that it found nothing. */
function answering(...findings: Finding[]) {
  const sought: Sought[] = [];
  const client: LookupClient = {
    async find(what) {
      sought.push(what);
      return findings.shift() ?? { found: "nothing", note: "no request was recorded" };
    },
    close: async () => {},
  };
  return { client, sought };
}
const found = (more: Partial<Extract<Finding, { found: "accepted" }>> = {}): Finding => ({
  found: "accepted",
  providerMessageId: "em_1",
  acceptedAt: Date.now() - 60_000,
  status: null,
  statusAt: null,
  ...more,
});

const pass = (client: LookupClient, signal = NEVER) =>
  reconcile({ db: database.db, log: silent }, "email", client, signal);
const itemOf = async (id: DeliveryId) => {
  const item = (await itemsOf(database.db, id)).at(-1);
  if (!item) throw new Error("no item");
  return item;
};
const lookedUp = async (id: DeliveryId) =>
  (
    await database.db
      .selectFrom("events")
      .select("data")
      .where("delivery_id", "=", id)
      .where("type", "=", "attention.looked_up")
      .orderBy("id")
      .execute()
  ).map(({ data }) => data);
const makeDue = () =>
  sql`update attention_items set lookup_after = ledger_now() where lookup_after is not null`.execute(database.db);

describe("a proven acceptance", () => {
  test("settles the attempt, and the item closes itself", async () => {
    const id = await doubtful();
    const acceptedAt = Date.now() - 60_000;
    const { client, sought } = answering(found({ acceptedAt }));
    expect(await pass(client)).toEqual({ asked: 1, accepted: 1 });
    expect(sought).toHaveLength(1);
    expect(await stateOf(database.db, id)).toMatchObject({ state: "sent", provider_message_id: "em_1" });
    expect(await itemOf(id)).toMatchObject({ resolution: "evidence", resolved_by: "ledger", lookup_after: null });
    const [attempt] = await attemptsOf(database.db, id);
    expect(attempt).toMatchObject({ verdict: "accepted", evidence: "receipt", provider_message_id: "em_1" });
    const [stored] = await database.db.selectFrom("receipts").selectAll().where("delivery_id", "=", id).execute();
    expect(stored).toMatchObject({
      ...{ event_id: "lookup:em_1:accepted", type: "lookup.accepted", status: null, occurred_at: new Date(acceptedAt) },
      detail: { source: "lookup", accepted_at: new Date(acceptedAt).toISOString() },
    });
    expect(await lookedUp(id)).toEqual([]);
  });

  test("brings the status along, which the provider's own webhook replaces", async () => {
    const id = await doubtful();
    const acceptedAt = Date.now() - 60_000;
    await pass(answering(found({ acceptedAt, status: "delivered" })).client);
    expect(await receiptOf(database.db, id)).toEqual({ status: "delivered", at: acceptedAt });
    const at = acceptedAt + 5_000;
    await apply(database.db, receipt({ deliveryId: id, providerMessageId: "em_1", occurredAt: at }));
    expect(await receiptOf(database.db, id)).toEqual({ status: "delivered", at });
  });

  test("is not looked for where no attempt is in doubt, and such an item is never due again", async () => {
    const id = await accepted();
    const settled = { settled_at: new Date(), verdict: "accepted", reason: "accepted", provider_message_id: "em_0" };
    await insertAttempt(database.db, id, settled);
    await sql`update deliveries set state = 'sent', next_attempt_at = null, provider_message_id = 'em_0',
      settled_at = ledger_now() where id = ${id}`.execute(database.db);
    await apply(database.db, receipt({ deliveryId: id, providerMessageId: "em_1" }));
    expect(await itemOf(id)).toMatchObject({ reason: "contradiction", closed_at: null });
    const { client, sought } = answering();
    expect(await pass(client)).toEqual({ asked: 0, accepted: 0 });
    expect(sought).toEqual([]);
    expect(await itemOf(id)).toMatchObject({ lookup_after: null, lookups: 0, closed_at: null });
  });
});

describe("no proof", () => {
  test("what was said is written down, and asked again after 1, 5, 30, 120 and 360 minutes, then never", async () => {
    const id = await doubtful();
    const { client } = answering(
      { found: "not_accepted", note: "recorded: 500 at noon; none was accepted" },
      { found: "no_answer", note: "GET /logs answered 429" },
    );
    const gaps: (number | null)[] = [];
    for (let look = 1; look <= 7; look += 1) {
      expect(await pass(client)).toEqual({ asked: look <= 6 ? 1 : 0, accepted: 0 });
      const item = await itemOf(id);
      expect(item.lookups).toBe(Math.min(look, 6));
      const { rows } = await sql<{ at: Date }>`select max(at) as at from events where delivery_id = ${id}`.execute(
        database.db,
      );
      gaps.push(item.lookup_after && item.lookup_after.getTime() - (rows[0]?.at.getTime() ?? 0));
      await makeDue();
    }
    expect(gaps.map((gap) => gap && gap / 60_000)).toEqual([1, 5, 30, 120, 360, null, null]);
    expect((await lookedUp(id)).slice(0, 3)).toMatchObject([
      { found: "not_accepted", note: "recorded: 500 at noon; none was accepted", item: (await itemOf(id)).id },
      { found: "no_answer", note: "GET /logs answered 429" },
      { found: "nothing" },
    ]);
    expect(await stateOf(database.db, id)).toMatchObject({ state: "needs_attention" });
  });

  test("the times of all doubtful attempts are asked about, and only those", async () => {
    const id = await doubtful({ agoMs: 3_600_000 });
    await insertAttempt(database.db, id, { number: 2, settled_at: new Date(), verdict: "deferred", reason: "x" });
    await insertAttempt(database.db, id, { number: 3, settled_at: new Date(), verdict: "unknown", reason: "timeout" });
    const { client, sought } = answering();
    await pass(client);
    const attempts = (await attemptsOf(database.db, id)).filter(({ verdict }) => verdict === "unknown");
    const spans = attempts.map((attempt) => ({
      from: attempt.claimed_at.getTime(),
      until: attempt.lease_expires_at.getTime(),
    }));
    expect(spans).toHaveLength(2);
    expect(sought).toEqual([{ deliveryId: id, spans }]);
  });

  test("an item that was resolved while the provider was asked keeps its resolution", async () => {
    const id = await doubtful();
    const client: LookupClient = {
      async find() {
        await apply(database.db, receipt({ deliveryId: id, providerMessageId: "em_1" }));
        return { found: "nothing", note: "no request was recorded" };
      },
      close: async () => {},
    };
    await pass(client);
    expect(await itemOf(id)).toMatchObject({ resolution: "evidence", lookups: 0, lookup_after: null });
    expect(await lookedUp(id)).toEqual([]);
  });
});

describe("who is asked about", () => {
  test("the longest due first; not those that are not due, closed, or on other channels", async () => {
    await channel(database.db, "other", "resend");
    const [later, first, notDue] = [await doubtful(), await doubtful(), await doubtful()];
    const [elsewhere] = await take(database.db, { channel: "other", recipient: "a@example.com" });
    await putInDoubt(database.db, elsewhere as DeliveryId);
    await sql`update attention_items set lookup_after = case delivery_id
        when ${first} then ledger_now() - interval '1 hour'
        when ${notDue} then ledger_now() + interval '1 second' else lookup_after end`.execute(database.db);
    const closed = await doubtful();
    await apply(database.db, receipt({ deliveryId: closed, providerMessageId: "em_9" }));
    const { client, sought } = answering();
    expect(await pass(client)).toEqual({ asked: 2, accepted: 0 });
    expect(sought.map(({ deliveryId }) => deliveryId)).toEqual([first, later]);
  });

  test("of many workers one asks about an item, and another one only when the claim has lapsed", async () => {
    const ids = await Promise.all(Array.from({ length: 12 }, () => doubtful()));
    const asked: string[] = [];
    const slow: LookupClient = {
      async find({ deliveryId }) {
        asked.push(deliveryId);
        await new Promise((resolve) => setTimeout(resolve, 5));
        return { found: "nothing", note: "n" };
      },
      close: async () => {},
    };
    await Promise.all(Array.from({ length: 6 }, () => pass(slow)));
    expect(asked.toSorted()).toEqual(ids.toSorted());

    await makeDue();
    const id = (await claimLookup(database.db, "email", 600_000))?.deliveryId;
    const { client, sought } = answering();
    await pass(client);
    expect(sought.map(({ deliveryId }) => deliveryId)).not.toContain(id);
    await sql`update attention_items set lookup_after = ledger_now() where delivery_id = ${id}`.execute(database.db);
    await pass(client);
    expect(sought.at(-1)?.deliveryId).toBe(id);
  });

  test("a worker whose claim has lapsed writes nothing over the answer of another", async () => {
    const id = await doubtful();
    const { client: quick } = answering();
    const slow: LookupClient = {
      async find() {
        await makeDue();
        await pass(quick);
        return { found: "no_answer", note: "too late" };
      },
      close: async () => {},
    };
    await pass(slow);
    expect(await itemOf(id)).toMatchObject({ lookups: 1 });
    expect(await lookedUp(id)).toMatchObject([{ found: "nothing" }]);
  });

  test("a worker that stops gives its item back", async () => {
    const id = await doubtful();
    const hanging: LookupClient = {
      find: (_, signal) =>
        new Promise((resolve) => {
          signal.addEventListener("abort", () => resolve({ found: "no_answer", note: "cut off" }), { once: true });
        }),
      close: async () => {},
    };
    const reconciler = startReconciler({ db: database.db, log: silent, intervalMs: 10 }, new Map([["email", hanging]]));
    await until(
      async () => (await itemOf(id)).lookup_after?.getTime() ?? 0,
      (at) => at > Date.now() + 60_000,
    );
    await reconciler.stop();
    expect(await itemOf(id)).toMatchObject({ lookups: 0 });
    expect(await lookedUp(id)).toEqual([]);
    const { client, sought } = answering();
    await pass(client);
    expect(sought).toHaveLength(1);
  });

  test("a client that fails stops neither the loop nor the others", async () => {
    const [bad, good] = [await doubtful(), await doubtful()];
    const failing: LookupClient = {
      async find({ deliveryId }) {
        if (deliveryId === bad) throw new Error("a fault of ours");
        return found();
      },
      close: async () => {},
    };
    const reconciler = startReconciler({ db: database.db, log: silent, intervalMs: 5 }, new Map([["email", failing]]));
    await settles(database.db, good, "sent");
    await reconciler.stop();
    expect(await stateOf(database.db, bad)).toMatchObject({ state: "needs_attention" });
  });
});

describe("with the provider over HTTP", () => {
  const ask = async () => {
    const client = openResendLookup({ apiKey: "re_test_full_access_0001", baseUrl: resend.url, minIntervalMs: 0 });
    try {
      return await pass(client);
    } finally {
      await client.close();
    }
  };

  test.each([
    ["was accepted leaves the queue with no one touching it", true, "sent"],
    ["never arrived stays in the queue", false, "needs_attention"],
  ])("a doubtful email that %s, and nothing is sent", async (_, effect, state) => {
    resend.script("doubt@example.com", [{ do: "reset", effect }]);
    const worker = await work(database.db, [emailTo(resend.url)]);
    const id = await accepted("doubt@example.com");
    await onRung(database.db, id, 1);
    // Its key's window passes while it waits.
    await worker.stop(3_000);
    await moveInTime(database.db, id, 30 * 3_600_000);
    resend.log.entries.forEach((entry) => {
      const at = new Date(Date.parse(entry.created_at) - 30 * 3_600_000).toISOString();
      Object.assign(entry, { created_at: at.replace("T", " ").replace("Z", "+00") });
    });
    const again = await work(database.db, [emailTo(resend.url)]);
    await settles(database.db, id, "needs_attention");
    await again.stop(3_000);

    const sentBefore = resend.counts.calls;
    expect(await ask()).toMatchObject({ asked: 1, accepted: effect ? 1 : 0 });
    expect(await stateOf(database.db, id)).toMatchObject({ state });
    expect(await eventsOf(database.db, id)).toContain(effect ? "attention.closed" : "attention.looked_up");
    expect(resend.counts.calls).toBe(sentBefore);
    expect(resend.effects).toHaveLength(effect ? 1 : 0);
  });

  test("an item whose provider cannot be asked says so in its history", async () => {
    const id = await doubtful();
    resend.accept(["re_another_key_0001"]);
    await ask();
    expect(await lookedUp(id)).toMatchObject([
      { found: "no_answer", note: "GET /logs answered 401 validation_error: API key is invalid" },
    ]);
    resend.accept(null);
  });
});
