import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { sql } from "kysely";
import { pino } from "pino";
import type { DeliveryId } from "../../src/ledger/delivery.ts";
import { pacingOf } from "../../src/ledger/pacing.ts";
import { type AdapterSettings, openAdapter, PROVIDERS } from "../../src/providers/index.ts";
import type { Adapter } from "../../src/providers/provider.ts";
import { registerChannels } from "../../src/store/channels.ts";
import type { Db } from "../../src/store/schema.ts";
import { openSpool, type Spool } from "../../src/worker/spool.ts";
import { startWorker, type Worker, type WorkerDeps } from "../../src/worker/worker.ts";

export const silent = pino({ level: process.env["TEST_LOG_LEVEL"] ?? "silent" });

export interface Account {
  readonly id: string;
  readonly settings: AdapterSettings;
  /** Stands between the worker and the adapter. */
  readonly wrap?: (adapter: Adapter) => Adapter;
  readonly credentials?: string;
  /** Default: off, so that a test need not wait for a rate. Null: the provider's own limits. */
  readonly ratePerSecond?: number | "off" | null;
}

export const emailTo = (url: string, from = "Shop <shop@example.com>"): Account => ({
  id: "email",
  settings: { provider: "resend", apiKey: "re_test_key_of_the_shop", baseUrl: url, from },
});
export const telegramTo = (url: string): Account => ({
  id: "telegram",
  settings: { provider: "telegram", botToken: "123456:test-token-of-the-shop", apiRoot: url },
});

/** A worker with short times, on these accounts. */
export async function work(db: Db, accounts: readonly Account[], more: Partial<WorkerDeps> = {}): Promise<Worker> {
  const channels = await Promise.all(
    accounts.map(async ({ id, settings, wrap = (adapter) => adapter, credentials = "one", ratePerSecond = "off" }) => {
      const provider = PROVIDERS[settings.provider];
      if (!provider) throw new Error(settings.provider);
      await registerChannels(db, [{ id, provider: settings.provider, fingerprint: credentials }]);
      const pacing = pacingOf(provider.capability.limits, ratePerSecond);
      return { id, provider, adapter: wrap(openAdapter(settings)), credentials, pacing };
    }),
  );
  return await startWorker({
    db,
    channels,
    wake: null,
    spool: more.spool ?? (await temporarySpool()),
    log: silent,
    leaseMs: 60_000,
    providerTimeoutMs: 2_000,
    pollIntervalMs: 20,
    sweepIntervalMs: 20,
    concurrency: 16,
    ...more,
  });
}

export async function temporarySpool(): Promise<Spool> {
  return openSpool(await mkdtemp(join(tmpdir(), "ledger-spool-")));
}

/** Waits until the condition holds; fails after ten seconds with what it saw last. */
export async function until<T>(
  read: () => Promise<T> | T,
  holds: (value: T) => boolean,
  patienceMs = 10_000,
): Promise<T> {
  for (const startedAt = Date.now(); ; ) {
    const value = await read();
    if (holds(value)) return value;
    if (Date.now() - startedAt > patienceMs) throw new Error(`still ${JSON.stringify(value)}`);
    await new Promise((resolve) => setTimeout(resolve, 15));
  }
}

export async function stateOf(db: Db, id: DeliveryId) {
  return await db
    .selectFrom("deliveries")
    .select(["state", "failure", "hold_reason", "attempt_count", "in_doubt", "provider_message_id", "next_attempt_at"])
    .where("id", "=", id)
    .executeTakeFirstOrThrow();
}

export const settles = (db: Db, id: DeliveryId, state: string) =>
  until(
    () => stateOf(db, id),
    (row) => row.state === state,
  );

/** It waits on a rung of the ladder. */
export const onRung = (db: Db, id: DeliveryId, attempts: number) =>
  until(
    () => stateOf(db, id),
    (row) => row.state === "pending" && row.hold_reason === "ladder" && row.attempt_count === attempts,
  );

export async function attemptsOf(db: Db, id: DeliveryId) {
  return await db.selectFrom("attempts").selectAll().where("delivery_id", "=", id).orderBy("number").execute();
}

export async function openItem(db: Db, id: DeliveryId) {
  return await db.selectFrom("attention_items").selectAll().where("delivery_id", "=", id).executeTakeFirst();
}

/** How many deliveries are in each state. */
export async function tally(db: Db): Promise<Record<string, number>> {
  const { rows } = await sql<{ state: string; n: number }>`
    select state, count(*)::integer as n from deliveries group by state`.execute(db);
  return Object.fromEntries(rows.map(({ state, n }) => [state, n]));
}
