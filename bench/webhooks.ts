/**
 * A load of webhooks on the running service: `npm run bench:webhooks -- [--rate 2000] [--seconds 10]`. Every event is sent
 * twice, and all are shuffled. Prints what was answered, how fast, and whether the ledger holds exactly the right receipts.
 * The service runs as a process of its own on the embedded database (or on DATABASE_URL, in a fresh schema of yours).
 */
import { setTimeout as pause } from "node:timers/promises";
import { parseArgs } from "node:util";
import { Pool } from "undici";
import { resendWebhook, type SignedRequest } from "../test/fakes/webhooks.ts";
import { endAll, started, startedService } from "./processes.ts";

const { values } = parseArgs({
  options: { rate: { type: "string", default: "2000" }, seconds: { type: "string", default: "10" } },
});
const rate = Number(values.rate);
const events = rate * Number(values.seconds);
const KINDS = ["email.sent", "email.delivered", "email.opened", "email.clicked"] as const;
const SECRET = "whsec_dGhlIHNlY3JldCBvZiB0aGUgYmVuY2htYXJr";
const KEY = "an-admin-key-for-the-benchmark";
const deliveries = Math.ceil(events / KINDS.length);

const say = (line: string) => process.stdout.write(`${line}\n`);
const fakes = await started("../test/fakes/serve.ts", ["--count-only"], {}, /"resend":"([^"]+)"/);
const service = await startedService({
  ...{ LEDGER_ADMIN_KEY: KEY, RESEND_API_KEY: "re_bench", RESEND_BASE_URL: fakes.found },
  ...{ EMAIL_FROM: "bench@example.com", RESEND_WEBHOOK_SECRET: SECRET, RESEND_RATE_PER_SECOND: "off" },
});
const pool = new Pool(service.found, { connections: 256 });
try {
  await run();
} finally {
  await pool.close();
  await endAll();
}

async function ask<T>(method: "GET" | "POST", path: string, body?: unknown): Promise<T> {
  const answer = await pool.request({
    ...{ method, path },
    headers: { authorization: `Bearer ${KEY}`, "content-type": "application/json" },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  return (await answer.body.json()) as T;
}

async function run(): Promise<void> {
  say(`posting ${deliveries} emails`);
  const ids: string[] = [];
  for (let from = 0; from < deliveries; from += 1_000) {
    const batch = Array.from({ length: Math.min(1_000, deliveries - from) }, (_, n) => ({
      ...{ name: `bench/${from + n}`, channel: "email", to: `u${from + n}@example.com` },
      message: { subject: "Bench", text: "x" },
    }));
    const { data: answers } = await ask<{ data: { delivery: { id: string } }[] }>(
      "POST",
      "/v1/deliveries/batch",
      batch,
    );
    ids.push(...answers.map(({ delivery }) => delivery.id));
  }
  while ((await ask<{ data: unknown[] }>("GET", "/v1/deliveries?state=pending&limit=1")).data.length > 0)
    await pause(200);
  while ((await ask<{ data: unknown[] }>("GET", "/v1/deliveries?state=claimed&limit=1")).data.length > 0)
    await pause(200);

  const emailIds = await messageIds();
  const at = Date.now();
  const signed = ids
    .flatMap((deliveryId) =>
      KINDS.map((type, n) => {
        const about = { deliveryId, emailId: emailIds.get(deliveryId) ?? "" };
        return resendWebhook({ ...about, type, secrets: [SECRET], at: new Date(at + n), id: `msg_${deliveryId}_${n}` });
      }),
    )
    .slice(0, events);
  const load = [...signed, ...signed];
  for (let n = load.length - 1; n > 0; n -= 1) {
    const other = Math.floor(Math.random() * (n + 1));
    [load[n], load[other]] = [load[other] as SignedRequest, load[n] as SignedRequest];
  }
  say(`sending ${load.length} webhooks (${events} events, each twice, shuffled) at ${rate} a second`);
  await send(load);
  await check(ids);
}

/** Resend's id of each email, as the ledger was told it. */
async function messageIds(): Promise<ReadonlyMap<string, string>> {
  const found = new Map<string, string>();
  for (let cursor: string | null = ""; cursor !== null; ) {
    const page: { data: { id: string; provider_message_id: string }[]; next_cursor: string | null } = await ask(
      "GET",
      `/v1/deliveries?limit=100${cursor ? `&cursor=${cursor}` : ""}`,
    );
    for (const { id, provider_message_id: emailId } of page.data) found.set(id, emailId);
    cursor = page.next_cursor;
  }
  return found;
}

/** Open loop: each is sent at its time, whether the ones before were answered or not. */
async function send(load: readonly SignedRequest[]): Promise<void> {
  const latencies: number[] = [];
  const results = new Map<string, number>();
  const under: Promise<void>[] = [];
  const startedAt = performance.now();
  for (let sent = 0; sent < load.length; ) {
    const due = Math.min(load.length, Math.floor(((performance.now() - startedAt) * rate) / 1000) + 1);
    for (; sent < due; sent += 1) under.push(one(load[sent] as SignedRequest));
    await pause(1);
  }
  await Promise.all(under);
  const tookS = (performance.now() - startedAt) / 1000;
  latencies.sort((a, b) => a - b);
  const quantile = (q: number) => `${(latencies[Math.floor(latencies.length * q)] ?? 0).toFixed(1)} ms`;
  say(`answered in ${tookS.toFixed(1)} s: ${Math.round(load.length / tookS)} a second`);
  say(`latency p50 ${quantile(0.5)}, p99 ${quantile(0.99)}, worst ${quantile(0.999999)}`);
  for (const [result, n] of [...results].toSorted()) say(`  ${result}: ${n}`);

  async function one({ headers, body }: SignedRequest): Promise<void> {
    const from = performance.now();
    const answer = await pool.request({ method: "POST", path: "/v1/webhooks/resend/email", headers, body });
    const { result } = (await answer.body.json()) as { result?: string };
    latencies.push(performance.now() - from);
    const key = `${answer.statusCode} ${result ?? ""}`;
    results.set(key, (results.get(key) ?? 0) + 1);
  }
}

async function check(ids: readonly string[]): Promise<void> {
  const standing = new Map<string, number>();
  let entries = 0;
  const expected = new Map<string, number>();
  for (const [index, id] of ids.entries()) {
    const kinds = KINDS.slice(0, Math.min(KINDS.length, events - index * KINDS.length));
    const last = kinds.at(-1)?.replace("email.", "") ?? "none";
    expected.set(last, (expected.get(last) ?? 0) + 1);
    const { data: timeline } = await ask<{ data: { type: string }[] }>("GET", `/v1/deliveries/${id}/timeline`);
    entries += timeline.filter(({ type }) => type.startsWith("receipt.")).length;
    const { receipt } = await ask<{ receipt: { status: string } | null }>("GET", `/v1/deliveries/${id}`);
    standing.set(receipt?.status ?? "none", (standing.get(receipt?.status ?? "none") ?? 0) + 1);
  }
  const unmatched = await ask<{ data: unknown[] }>("GET", "/v1/receipts?matched=false&limit=1");
  const { total } = await ask<{ total: number }>("GET", "/v1/attention/summary");
  const right =
    entries === events &&
    total === 0 &&
    unmatched.data.length === 0 &&
    [...expected].every(([status, n]) => standing.get(status === "sent" ? "none" : status) === n);
  say(`timeline entries ${entries} of ${events}; standing receipts ${JSON.stringify(Object.fromEntries(standing))}`);
  say(right ? "exactly the right receipts" : "WRONG");
  if (!right) process.exitCode = 1;
}
