import { sql } from "kysely";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Fake } from "../fakes/desk.ts";
import { DAILY_QUOTA, openFakeResend, RATE_LIMITED, resendError } from "../fakes/resend.ts";
import { page, type Step } from "../fakes/step.ts";
import { BLOCKED, FLOOD, MIGRATED, openFakeTelegram, telegramError } from "../fakes/telegram.ts";
import { changeChannels } from "../support/builders.ts";
import { type TestDatabase, testDatabase } from "../support/database.ts";
import { tally, until } from "../support/pipeline.ts";
import { ADMIN_KEY, api, type Service, startService } from "./service.ts";

const DELIVERIES = 1_000;
const KILLS = 5;

let database: TestDatabase;
let resend: Fake;
let telegram: Fake;
const running: Service[] = [];

beforeAll(async () => {
  database = await testDatabase();
  resend = await openFakeResend();
  telegram = await openFakeTelegram();
});
afterAll(async () => {
  for (const service of running) service.child.kill("SIGKILL");
  await Promise.all([resend.close(), telegram.close()]);
  await database.close();
});

/** Every fault of the fakes, before and after the effect. */
const SHARED: readonly Step[] = [
  { do: "reset" },
  { do: "reset", effect: true },
  { do: "close" },
  { do: "close", effect: true },
  { do: "hang" },
  { do: "hang", effect: true },
  { do: "cut" },
  { do: "cut", effect: true },
  { do: "cut", status: 500 },
  { do: "cut", status: 500, effect: true },
  { do: "accept", delayMs: 300 },
  page(502),
  page(503),
  page(403),
  page(413),
  page(429, { "retry-after": "1" }),
  { do: "answer", status: 302, headers: { location: "http://127.0.0.1:9/" } },
  { do: "answer", status: 200, effect: true },
  { do: "answer", status: 500, raw: "", effect: true },
];
const EMAIL: readonly Step[] = [
  ...SHARED,
  ...[400, 404, 405, 413, 422, 451].map((status) => resendError(status, "validation_error")),
  resendError(403, "validation_error"),
  resendError(409, "concurrent_idempotent_requests"),
  resendError(409, "invalid_idempotent_request"),
  resendError(409, "resource_locked"),
  ...[408, 425, 500, 503, 520].map((status) => ({ ...resendError(status, "internal_server_error"), effect: true })),
  RATE_LIMITED(1),
  RATE_LIMITED("abc"),
  DAILY_QUOTA,
  { do: "answer", status: 200, json: null, effect: true },
  { do: "answer", status: 500, json: null },
];
const TELEGRAM: readonly Step[] = [
  ...SHARED,
  telegramError(400, "Bad Request: chat not found"),
  telegramError(400, "Bad Request: a text that nobody knows"),
  telegramError(400, "Bad Request: Group send failed"),
  telegramError(403, "Forbidden: bot can't initiate conversation with a user"),
  BLOCKED,
  telegramError(404, "Not Found"),
  telegramError(500, "Internal Server Error: restart"),
  telegramError(502, "Bad Gateway"),
  FLOOD(1),
  FLOOD(0),
  FLOOD("abc"),
  MIGRATED(-1_000_777),
  { do: "answer", status: 500, json: { ok: true, result: { message_id: 5 } }, effect: true },
  { do: "answer", status: 200, json: { ok: true, result: {} }, effect: true },
];

interface Planned {
  readonly name: string;
  readonly channel: "email" | "telegram";
  readonly to: string;
}

/** Every second delivery meets a fault on its first call, every sixth another one on its second. */
function plan(): Planned[] {
  return Array.from({ length: DELIVERIES }, (_, i) => {
    const channel = i % 2 === 0 ? "email" : "telegram";
    const to = channel === "email" ? `user${i}@example.com` : String(1_000_000 + i);
    const [fake, faults] = channel === "email" ? [resend, EMAIL] : [telegram, TELEGRAM];
    const nth = Math.floor(i / 4);
    const steps = [faults[nth % faults.length], faults[(nth * 7 + 3) % faults.length]] as Step[];
    if (i % 12 < 2) fake.script(to, steps);
    else if (i % 4 < 2) fake.script(to, steps.slice(0, 1));
    return { name: `proof/${i}`, channel, to };
  });
}

const message = (channel: string) =>
  channel === "email" ? { subject: "a-subject-of-the-proof", text: "t" } : { text: "t" };

/** TEST_POOLER=host:port puts a connection pooler (PgBouncer in transaction mode) between the service and its database. */
function serviceDatabase(): string {
  const url = new URL(database.url);
  const pooler = process.env["TEST_POOLER"];
  if (pooler) url.host = pooler;
  return url.href;
}

function environment(): Record<string, string> {
  return {
    DATABASE_URL: serviceDatabase(),
    RESEND_API_KEY: "re_proof_0123456789abcdef",
    RESEND_BASE_URL: resend.url,
    EMAIL_FROM: "Proof <proof@example.com>",
    TELEGRAM_BOT_TOKEN: "123456:proof-token",
    TELEGRAM_API_ROOT: telegram.url,
    RESEND_RATE_PER_SECOND: "off",
    TELEGRAM_RATE_PER_SECOND: "off",
    PROVIDER_TIMEOUT_MS: "400",
    LEASE_MS: "5500",
    SWEEP_INTERVAL_MS: "200",
    POLL_INTERVAL_MS: "50",
    WORKER_CONCURRENCY: "32",
  };
}

async function start(role: string): Promise<Service> {
  const service = await startService({ ...environment(), ROLE: role });
  running.push(service);
  return service;
}

/** Nobody waits for a rung, a pace or a hold: rows are moved in time instead; those that a worker holds, the next time. */
async function letTimePass(): Promise<void> {
  await changeChannels(
    database.db,
    sql`paced_until = null, paused_until = least(paused_until, ledger_now()),
      breaker_open_until = case when breaker_opened_at is not null then ledger_now() end`,
  );
  await sql`
    with waiting as (
      select id from deliveries where state = 'pending' and next_attempt_at > ledger_now() for update skip locked
    )
    update deliveries d set next_attempt_at = ledger_now() from waiting where d.id = waiting.id`.execute(database.db);
}

test("1,000 deliveries with every fault among them, the worker killed five times: at most one effect each, none lost, every doubt visible", {
  timeout: 180_000,
}, async () => {
  const planned = plan();
  const front = await start("api");
  let worker = await start("worker");
  for (let i = 0; i < planned.length; i += 100) {
    const list = planned.slice(i, i + 100).map((one) => ({ ...one, message: message(one.channel) }));
    const { status, body } = await api<{ data: { status: number }[] }>(front.url, "POST", "/v1/deliveries/batch", list);
    expect([status, new Set(body.data.map((item) => item.status))]).toEqual([200, new Set([202])]);
  }
  for (let kill = 0; kill < KILLS; kill += 1) {
    const before = resend.counts.calls + telegram.counts.calls;
    await until(
      () => resend.counts.calls + telegram.counts.calls,
      (calls) => calls > before + 60,
      20_000,
    );
    worker.child.kill("SIGKILL");
    await worker.ended();
    worker = await start("worker");
    await letTimePass();
  }
  await until(
    async () => {
      await letTimePass();
      return await tally(database.db);
    },
    (states) => (states["pending"] ?? 0) + (states["claimed"] ?? 0) === 0,
    120_000,
  );

  const { rows } = await sql<{
    name: string;
    state: string;
    channel: string;
    recipient: string;
    reasons: string[] | null;
    verdicts: string[];
  }>`
    select d.name, d.state, d.channel, d.recipient,
      (select json_agg(i.reason) from attention_items i where i.delivery_id = d.id and i.closed_at is null) as reasons,
      (select json_agg(a.verdict order by a.number) from attempts a where a.delivery_id = d.id) as verdicts
    from deliveries d`.execute(database.db);
  expect(rows).toHaveLength(DELIVERIES);
  const effects = (row: (typeof rows)[number]) =>
    (row.channel === "email" ? resend : telegram).received.get(row.recipient) ?? 0;
  for (const row of rows) {
    expect(effects(row), `${row.name} (${row.state}, ${row.verdicts}) happened at most once`).toBeLessThanOrEqual(1);
    if (row.state === "failed" || row.state === "suppressed")
      expect(effects(row), `${row.name} did not happen`).toBe(0);
    if (row.state === "needs_attention") expect(row.reasons, `${row.name} says why`).toHaveLength(1);
    if (row.verdicts.at(-1) === "unknown") expect(row.state).toBe("needs_attention");
  }
  const counted = await tally(database.db);
  expect(counted["sent"]).toBeGreaterThan(DELIVERIES / 2);
  expect(Object.keys(counted).every((state) => ["sent", "failed", "needs_attention"].includes(state))).toBe(true);
  // Whatever was sent without an answer to show for it was either found out under the same key, or is in the queue.
  const unaccounted = rows.filter((row) => effects(row) === 1 && !["sent", "needs_attention"].includes(row.state));
  expect(unaccounted).toEqual([]);

  // Neither the logs nor the ledger repeat a secret, the logs no recipient and no contents.
  const logs = running.map((service) => service.output()).join("");
  const { rows: errors } = await sql<{ text: string }>`
    select coalesce(string_agg(error_message || error_code, ''), '') as text from attempts`.execute(database.db);
  for (const secret of ["re_proof_", "proof-token", ADMIN_KEY]) {
    expect(logs).not.toContain(secret);
    expect(errors[0]?.text).not.toContain(secret);
  }
  expect(logs).not.toMatch(/user\d+@example\.com|a-subject-of-the-proof/);

  front.child.kill("SIGTERM");
  worker.child.kill("SIGTERM");
  expect(await Promise.all([front.ended(), worker.ended()])).toEqual([0, 0]);
});
