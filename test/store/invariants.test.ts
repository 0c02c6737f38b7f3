import { sql } from "kysely";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { STATES, TRANSITIONS } from "../../src/ledger/delivery.ts";
import { insertAttempt, insertDelivery } from "../support/builders.ts";
import { type TestDatabase, testDatabase } from "../support/database.ts";

/** Each test tries to break an invariant by plain SQL, as a bug in the code would. */
let database: TestDatabase;
beforeAll(async () => {
  database = await testDatabase();
});
afterAll(() => database.close());

const run = (statement: string) => sql.raw(statement).execute(database.db);
const refused = async (statement: string, by: RegExp) => await expect(run(statement)).rejects.toThrow(by);

/** The columns that each state needs beside it. */
function columnsOf(state: string): Record<string, unknown> {
  return {
    state,
    next_attempt_at: state === "pending" ? new Date() : null,
    settled_at: state === "pending" || state === "claimed" ? null : new Date(),
    failure: state === "failed" ? "refused" : null,
  };
}
const assignmentsOf = (state: string) => `
  state = '${state}',
  next_attempt_at = ${state === "pending" ? "now()" : "null"},
  settled_at = ${state === "pending" || state === "claimed" ? "null" : "now()"},
  failure = ${state === "failed" ? "'refused'" : "null"}`;

describe("deliveries", () => {
  test("one delivery a (producer, name)", async () => {
    await insertDelivery(database.db, { name: "twice" });
    await expect(insertDelivery(database.db, { name: "twice" })).rejects.toThrow(/deliveries_name/);
  });

  test("names are compared byte by byte", async () => {
    for (const name of ["ABC", "abc", "caf\u00e9", "cafe\u0301"]) await insertDelivery(database.db, { name });
  });

  test.each([
    ["state", "almost"],
    ["failure", "unlucky"],
    ["hold_reason", "lazy"],
    ["on_unknown", "guess"],
    ["receipt_status", "read"],
  ])("%s takes only the words of the design", async (column, word) => {
    const id = await insertDelivery(database.db);
    await refused(
      `update deliveries set ${column} = '${word}' where id = '${id}'`,
      /check constraint|never changes|does not follow/,
    );
  });

  test("a pending delivery has a time that it waits for, and no other has", async () => {
    const id = await insertDelivery(database.db);
    await refused(`update deliveries set next_attempt_at = null where id = '${id}'`, /deliveries_due_time/);
    await refused(`update deliveries set state = 'claimed' where id = '${id}'`, /deliveries_due_time/);
  });

  test("a close states that nothing was sent: never in doubt", async () => {
    const id = await insertDelivery(database.db, { in_doubt: true });
    for (const state of ["cancelled", "expired", "suppressed"]) {
      await refused(
        `update deliveries set ${assignmentsOf(state)} where id = '${id}'`,
        /deliveries_closed_without_doubt/,
      );
    }
  });

  test("failed has a failure, and only failed has one", async () => {
    const id = await insertDelivery(database.db);
    const bare = "state = 'failed', next_attempt_at = null, settled_at = now()";
    await refused(`update deliveries set ${bare} where id = '${id}'`, /deliveries_failure/);
    await refused(`update deliveries set failure = 'refused' where id = '${id}'`, /deliveries_failure/);
  });

  test.each(STATES.flatMap((from) => STATES.filter((to) => to !== from).map((to) => [from, to] as const)))(
    "%s → %s is allowed exactly where the design allows it",
    async (from, to) => {
      const id = await insertDelivery(database.db, columnsOf(from));
      const move = run(`update deliveries set ${assignmentsOf(to)} where id = '${id}'`);
      if (TRANSITIONS[from].includes(to)) await move;
      else await expect(move).rejects.toThrow(/does not follow/);
    },
  );

  test.each([
    "name = 'x'",
    "recipient = 'x'",
    "channel = 'x'",
    "request_hash = sha256('x')",
    "accepted_at = now() + '1 s'",
    "on_unknown = 'resend'",
  ])("what was accepted never changes: %s", async (assignment) => {
    const id = await insertDelivery(database.db);
    await refused(`update deliveries set ${assignment} where id = '${id}'`, /what was accepted never changes/);
  });
});

describe("contents", () => {
  test("the frozen message never changes", async () => {
    const id = await insertDelivery(database.db);
    await run(`insert into messages select id, producer_id, '{"message":1}' from deliveries where id = '${id}'`);
    await refused(
      `update messages set request = '{"message":2}' where delivery_id = '${id}'`,
      /messages rows never change/,
    );
  });

  test("a frozen request body never changes, and there is one a key", async () => {
    const id = await insertDelivery(database.db);
    const insert = `insert into request_bodies select id, producer_id, 1, 'body' from deliveries where id = '${id}'`;
    await run(insert);
    await refused(
      `update request_bodies set body = 'other' where delivery_id = '${id}'`,
      /request_bodies rows never change/,
    );
    await refused(insert, /request_bodies_pkey/);
  });

  test("an event never changes", async () => {
    await run("insert into events (type, producer_id, data) values ('delivery.sent', gen_random_uuid(), '{}')");
    await refused("update events set type = 'delivery.failed'", /events rows never change/);
  });
});

describe("attempts", () => {
  test("one unsettled attempt a delivery: this index is the guarded claim", async () => {
    const id = await insertDelivery(database.db);
    await insertAttempt(database.db, id);
    await expect(insertAttempt(database.db, id, { number: 2 })).rejects.toThrow(/attempts_one_unsettled/);
  });

  test("of ten transactions that open an attempt at once, one wins", async () => {
    const id = await insertDelivery(database.db);
    const tries = await Promise.allSettled(
      Array.from({ length: 10 }, (_, i) => insertAttempt(database.db, id, { number: i + 1 })),
    );
    expect(tries.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
  });

  const settled = { settled_at: new Date(), reason: "some_reason" };

  test.each(["accepted", "refused", "deferred"])("the verdict %s is written once", async (verdict) => {
    const id = await insertDelivery(database.db);
    await insertAttempt(database.db, id, { ...settled, verdict });
    for (const other of ["accepted", "refused", "deferred", "unknown"].filter((word) => word !== verdict)) {
      await refused(
        `update attempts set verdict = '${other}', evidence = 'answer', evidence_at = now() where delivery_id = '${id}'`,
        /is not replaced/,
      );
    }
  });

  test("unknown is replaced by evidence, and by nothing else", async () => {
    const id = await insertDelivery(database.db);
    await insertAttempt(database.db, id, { ...settled, verdict: "unknown" });
    await refused(`update attempts set verdict = 'accepted' where delivery_id = '${id}'`, /is not replaced/);
    await run(
      `update attempts set verdict = 'accepted', evidence = 'receipt', evidence_at = now() where delivery_id = '${id}'`,
    );
    await refused(
      `update attempts set verdict = 'unknown', evidence = 'receipt' where delivery_id = '${id}'`,
      /is not replaced/,
    );
  });

  test("a settled attempt is never opened again", async () => {
    const id = await insertDelivery(database.db);
    await insertAttempt(database.db, id, { ...settled, verdict: "unknown" });
    await refused(
      `update attempts set settled_at = null, verdict = null, reason = null where delivery_id = '${id}'`,
      /settled once/,
    );
  });

  test.each([
    "idempotency_key = 'x'",
    "generation = 2",
    "number = 7",
    "claimed_by = 'x'",
    "claimed_at = now() - '1 h'::interval",
    "lease_expires_at = now() + '9 h'::interval",
    "recipient = 'x'",
  ])("a claim never changes: %s", async (assignment) => {
    const id = await insertDelivery(database.db);
    await insertAttempt(database.db, id);
    await refused(`update attempts set ${assignment} where delivery_id = '${id}'`, /a claim never changes/);
  });

  test.each([
    ["a verdict without a settlement", "verdict = 'accepted', reason = 'x'", /attempts_settled/],
    ["a settlement without a verdict", "settled_at = now()", /attempts_settled/],
    ["a verdict that is none", "verdict = 'perhaps', reason = 'x', settled_at = now()", /verdict/],
    ["a reason that is no word", "verdict = 'refused', reason = 'No Way', settled_at = now()", /reason/],
    ["a phase that is none", "phase = 'halfway'", /phase/],
  ])("%s is refused", async (_what, assignment, by) => {
    const id = await insertDelivery(database.db);
    await insertAttempt(database.db, id);
    await refused(`update attempts set ${assignment} where delivery_id = '${id}'`, by);
  });

  test.each(["", "with space", "new\nline", "caf\u00e9", "x".repeat(257)])("%j is no idempotency key", async (key) => {
    const id = await insertDelivery(database.db);
    await expect(insertAttempt(database.db, id, { idempotency_key: key })).rejects.toThrow(/idempotency_key/);
  });

  test("a lease ends after it begins", async () => {
    const id = await insertDelivery(database.db);
    await expect(insertAttempt(database.db, id, { lease_expires_at: new Date(0) })).rejects.toThrow(/attempts_lease/);
  });
});

describe("attention and receipts", () => {
  test("one open item a delivery", async () => {
    const id = await insertDelivery(database.db);
    const open = `insert into attention_items (id, delivery_id, producer_id, channel, reason)
      select gen_random_uuid(), id, producer_id, channel, 'timeout' from deliveries where id = '${id}'`;
    await run(open);
    await refused(open, /attention_items_one_open/);
    await refused(`update attention_items set closed_at = now() where delivery_id = '${id}'`, /attention_items_closed/);
  });

  test("one receipt a provider event id", async () => {
    const insert =
      "insert into receipts (id, channel, event_id, type, occurred_at) values (gen_random_uuid(), 'email', 'msg_1', 'email.delivered', now())";
    await run(insert);
    await refused(insert, /receipts_pkey/);
  });
});
