import { sql } from "kysely";
import { beforeEach, expect, test } from "vitest";
import type { DeliveryId } from "../../src/ledger/delivery.ts";
import type { QuietHours } from "../../src/ledger/quiet-hours.ts";
import { ensureProducer } from "../../src/store/keys.ts";
import { setQuietHours } from "../../src/store/producers.ts";
import { moveInTime, take } from "../support/builders.ts";
import { settles, stateOf, until, work } from "../support/pipeline.ts";
import { counting, database, sweepOnce, useDatabase } from "./rig.ts";

useDatabase();
beforeEach(() => sql`update producers set quiet_hours = null`.execute(db()));

const db = () => database.db;
/** The minute of the day in UTC, so many minutes from now. */
const clock = (minutes: number): string => new Date(Date.now() + minutes * 60_000).toISOString().slice(11, 16);
const QUIET: QuietHours = { from: clock(-60), to: clock(60), time_zone: "UTC" };
const LOUD: QuietHours = { from: clock(120), to: clock(180), time_zone: "UTC" };

const one = async (more: object = {}) => (await take(db(), more))[0] as DeliveryId;
const shop = () => ensureProducer(db(), "shop");
const held = (id: DeliveryId) =>
  until(
    () => stateOf(db(), id),
    (row) => row.hold_reason === "quiet_hours",
  );
const running = () => work(db(), [counting().account]);

test("a delivery in its quiet hours is held until they end, and costs no attempt; then it is sent", async () => {
  const id = await one({ quietHours: QUIET });
  const worker = await running();
  const row = await held(id);
  expect(row).toMatchObject({ state: "pending", attempt_count: 0 });
  expect(row.next_attempt_at?.toISOString().slice(11, 19)).toBe(`${QUIET.to}:00`);
  await sql`update deliveries set quiet_hours = ${JSON.stringify(LOUD)}::text::json`.execute(db());
  await moveInTime(db(), id, 3_600_000);
  await settles(db(), id, "sent");
  await worker.stop(4_000);
});

test("the producer's quiet hours hold what says nothing; a delivery's own, or none, go before them", async () => {
  await setQuietHours(db(), await shop(), QUIET, "test");
  const [silent, own, none] = [await one(), await one({ quietHours: LOUD }), await one({ quietHours: null })];
  const worker = await running();
  await settles(db(), own, "sent");
  await settles(db(), none, "sent");
  await held(silent);
  await worker.stop(4_000);
});

test("when the producer's quiet hours change, what the old ones held is looked at again, at once", async () => {
  await setQuietHours(db(), await shop(), QUIET, "test");
  const [silent, own] = [await one(), await one({ quietHours: QUIET })];
  const worker = await running();
  await Promise.all([held(silent), held(own)]);
  await setQuietHours(db(), await shop(), null, "test");
  await settles(db(), silent, "sent");
  expect(await stateOf(db(), own)).toMatchObject({ state: "pending", hold_reason: "quiet_hours" });
  await worker.stop(4_000);
});

test("a row whose quiet hours cannot be read stops nobody, and is sent", async () => {
  const odd = [{ from: "22:00", to: "07:00", time_zone: "Mars/Phobos" }, { from: 5 }, [], "x", 7];
  const ids = await take(db(), ...odd.map((hours) => ({ quietHours: hours as unknown as QuietHours })), {});
  const worker = await running();
  for (const id of ids) await settles(db(), id as DeliveryId, "sent");
  await worker.stop(4_000);
});

test("who expires in quiet hours is closed as expired", async () => {
  const id = await one({ quietHours: QUIET, expiresAt: new Date(Date.now() + 60_000) });
  const worker = await running();
  await held(id);
  await worker.stop(4_000);
  await sql`update deliveries set expires_at = ledger_now()`.execute(db());
  await sweepOnce();
  expect(await stateOf(db(), id)).toMatchObject({ state: "expired", attempt_count: 0 });
});
