import { sql } from "kysely";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type TestDatabase, testDatabase } from "../support/database.ts";
import { type App, email, openApp } from "./open-app.ts";

let database: TestDatabase;
let app: App;
beforeAll(async () => {
  database = await testDatabase();
  app = await openApp(database.db);
});
afterAll(() => database.close());

const cancel = (id: string) => app.ask(`/v1/deliveries/${id}/cancel`, { method: "POST" });

async function delivery(change = sql`state = state`): Promise<string> {
  const { body } = await app.post(email());
  await sql`update deliveries set ${change} where id = ${body.id}`.execute(database.db);
  return body.id;
}
const events = async (id: string) =>
  (await app.ask(`/v1/deliveries/${id}/timeline`)).body.data.map(({ type }: { type: string }) => type);

test("a delivery that waits is cancelled, and stays so: a repeat is answered 200 and changes nothing", async () => {
  const id = await delivery();
  for (let i = 0; i < 2; i += 1) {
    expect(await cancel(id)).toMatchObject({ status: 200, body: { id, state: "cancelled", next_attempt_at: null } });
  }
  expect(await events(id)).toEqual(["delivery.accepted", "delivery.cancelled"]);
});

test("of many who cancel at once one does it, and all are told that it is cancelled", async () => {
  const id = await delivery();
  const answers = await Promise.all(Array.from({ length: 20 }, () => cancel(id)));
  expect(answers.every(({ status }) => status === 200)).toBe(true);
  expect(await events(id)).toEqual(["delivery.accepted", "delivery.cancelled"]);
});

test.each([
  ["one whose attempt is under way", "already-claimed", sql`state = 'claimed', next_attempt_at = null`],
  ["one that was sent", "already-settled", sql`state = 'sent', next_attempt_at = null, settled_at = now()`],
  [
    "one that failed",
    "already-settled",
    sql`state = 'failed', failure = 'refused', next_attempt_at = null, settled_at = now()`,
  ],
  ["one that waits in doubt", "in-doubt", sql`in_doubt = true, attempt_count = 1`],
  [
    "one in needs-attention in doubt",
    "in-doubt",
    sql`in_doubt = true, state = 'needs_attention', next_attempt_at = null, settled_at = now()`,
  ],
])("%s is not cancelled: %s", async (_rule, type, change) => {
  const id = await delivery(change);
  const before = (await app.ask(`/v1/deliveries/${id}`)).body;
  expect((await cancel(id)).body).toMatchObject({ status: 409, type: `/problems/${type}` });
  expect((await app.ask(`/v1/deliveries/${id}`)).body).toEqual(before);
});

test("a worker that claims at the same time and a cancel never both win", async () => {
  for (let round = 0; round < 20; round += 1) {
    const id = await delivery();
    const claim = sql<{ id: string }>`
      update deliveries set state = 'claimed', next_attempt_at = null where id = ${id} and state = 'pending'
      returning id`.execute(database.db);
    const [claimed, cancelled] = await Promise.all([claim, cancel(id)]);
    expect([claimed.rows.length, cancelled.status]).toEqual(claimed.rows.length === 1 ? [1, 409] : [0, 200]);
  }
});
