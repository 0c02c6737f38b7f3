/**
 * How fast the console's pages are with a full ledger: `npm run bench:console -- [--deliveries 1000000]`. Fills a fresh ledger by
 * plain SQL, starts the service on it, asks every page twenty times, and prints the median and the slowest, in milliseconds.
 */
import { join } from "node:path";
import { parseArgs } from "node:util";
import { type Kysely, sql } from "kysely";
import { openDatabase } from "../src/store/database.ts";
import { openEmbedded } from "../src/store/embedded.ts";
import { ensureProducer } from "../src/store/keys.ts";
import { migrate } from "../src/store/migrate.ts";
import type { Schema } from "../src/store/schema.ts";
import { dataFolder, endAll, startedService } from "./processes.ts";

const { values } = parseArgs({ options: { deliveries: { type: "string", default: "1000000" } } });
const DELIVERIES = Number(values.deliveries);
const DOUBTFUL = 5_000;
const ROUNDS = 20;
const KEY = "an-admin-key-for-the-benchmark";
const say = (line: string) => process.stdout.write(`${line}\n`);

const given = process.env["DATABASE_URL"];
// The service starts its own server on the same folder, or finds this one.
const embedded = given ? null : await openEmbedded(join(await dataFolder(), "data"));
const database = openDatabase({ url: given ?? embedded?.url ?? "", poolSize: 4, applicationName: "bench" });
try {
  await migrate(database.db);
  say(`filling the ledger with ${DELIVERIES.toLocaleString("en")} deliveries`);
  await fill(database.db);
  const service = await startedService({
    ...{ LEDGER_ADMIN_KEY: KEY, SANDBOX: "on", RESEND_API_KEY: "re_bench", EMAIL_FROM: "bench@example.com" },
    ...{
      RESEND_BASE_URL: "http://127.0.0.1:9",
      TELEGRAM_BOT_TOKEN: "123456:bench",
      TELEGRAM_API_ROOT: "http://127.0.0.1:9",
    },
    ...(embedded && { DATABASE_URL: embedded.url }),
  });
  await measure(service.found);
} finally {
  await database.close();
  await endAll();
  await embedded?.stop();
}

/** Two thirds by email, a third by telegram, over thirty days; most were sent and reported; some of everything else. */
async function fill(db: Kysely<Schema>): Promise<void> {
  const producer = sql`${await ensureProducer(db, "shop")}::uuid`;
  const step = 100_000;
  for (let from = 0; from < DELIVERIES; from += step) {
    await db.transaction().execute(async (tx) => {
      await sql`set local session_replication_role = replica`.execute(tx);
      await sql`
        create temporary table made on commit drop as
        select n, case when n % 3 = 0 then 'telegram' else 'email' end as channel,
          case when n % 3 = 0 then (7000000000 + n % 200000)::text else 'user' || n % 200000 || '@example.com' end as recipient,
          at, (lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || '7' || lpad(to_hex(n % 4096), 3, '0')
            || '8' || lpad(to_hex(n), 15, '0'))::uuid as id,
          case when n % 200 = 0 then 'failed' when n % 1000 = 1 then 'cancelled' when n % 1000 = 2 then 'expired'
            when n % 1000 = 3 then 'suppressed' when n > ${DELIVERIES - DOUBTFUL} then 'needs_attention'
            when n % 100 = 7 then 'pending' else 'sent' end as state
        from (select n, ledger_now() - (${DELIVERIES} - n) * interval '30 days' / ${DELIVERIES} as at
          from generate_series(${from + 1}::bigint, ${Math.min(DELIVERIES, from + step)}::bigint) as n) as counted`.execute(
        tx,
      );
      await sql`
        insert into deliveries (id, producer_id, name, request_hash, channel, recipient, on_unknown, accepted_at, state, failure,
          next_attempt_at, attempt_count, in_doubt, settled_at, receipt_status, receipt_at, schedule, due_at)
        select id, ${producer}, 'order/' || n, sha256(n::text::bytea), channel, recipient, 'attention', at, state,
          case when state = 'failed' then 'refused' end, case when state = 'pending' then at + interval '40 days' end,
          case when state in ('pending', 'cancelled', 'expired', 'suppressed') then 0 else 1 end, state = 'needs_attention',
          case when state <> 'pending' then at end,
          case when state = 'sent' and channel = 'email' then case when n % 500 = 4 then 'bounced' else 'delivered' end end,
          case when state = 'sent' and channel = 'email' then at end,
          case when n % 10 = 5 then 'nightly-' || n % 50 end, case when n % 10 = 5 then at end
        from made`.execute(tx);
      await sql`
        insert into messages (delivery_id, producer_id, request)
        select id, ${producer}, json_build_object('name', 'order/' || n, 'channel', channel, 'to', recipient,
          'message', json_build_object('subject', 'Your order ' || n, 'text', repeat('It is on its way. ', 10))) from made`.execute(
        tx,
      );
      await sql`
        insert into attempts (delivery_id, producer_id, number, ladder, generation, idempotency_key, recipient, claimed_at, claimed_by,
          lease_expires_at, settled_at, verdict, reason, phase, status_code, provider_message_id)
        select id, ${producer}, 1, 1, 1, id || '.1', recipient, at, 'bench', at + interval '1 minute', at,
          case state when 'sent' then 'accepted' when 'failed' then 'refused' else 'unknown' end,
          case state when 'sent' then 'accepted' when 'failed' then 'invalid_request' else 'timeout' end, 'sent',
          case state when 'sent' then 200 when 'failed' then 422 end,
          case when state = 'sent' then 'message-' || n end
        from made where state in ('sent', 'failed', 'needs_attention')`.execute(tx);
      await sql`
        insert into attention_items (id, delivery_id, producer_id, channel, reason, opened_at)
        select gen_random_uuid(), id, ${producer}, channel, 'timeout', at from made where state = 'needs_attention'`.execute(
        tx,
      );
      await sql`
        insert into receipts (id, channel, event_id, type, status, occurred_at, received_at, delivery_id, producer_id, provider_message_id)
        select id, channel, 'evt_' || n, 'email.delivered',
          case when n % 500 = 4 then 'bounced' else 'delivered' end, at, at, case when n % 100 > 0 then id end,
          case when n % 100 > 0 then ${producer} end, 'message-' || n
        from made where state = 'sent' and channel = 'email'`.execute(tx);
      await sql`
        insert into events (at, type, delivery_id, producer_id, data)
        select at, 'delivery.accepted', id, ${producer}, '{}'::json from made union all
        select at, 'delivery.' || state, id, ${producer}, '{"attempt":1}'::json from made where state <> 'pending'`.execute(
        tx,
      );
      await sql`
        insert into suppressions (channel, recipient, reason, created_by, created_at)
        select channel, recipient, 'bounced', 'provider', at from made where n % 100 = 3 and channel = 'email' on conflict do nothing`.execute(
        tx,
      );
    });
  }
  await sql`
    insert into call_counts (minute, channel, verdict, shard, calls, latency_ms_sum, latency_ms_max)
    select date_trunc('minute', now()) - m * interval '1 minute', channel, verdict, shard, 50, 5000, 400
    from generate_series(0, 59) as m, unnest(array['email', 'telegram']) as channel,
      unnest(array['accepted', 'refused', 'deferred', 'unknown']) as verdict, generate_series(0, 3) as shard
    on conflict do nothing`.execute(db);
  await sql`vacuum analyze`.execute(db);
}

interface Row {
  readonly id: string;
  readonly to: string;
}

async function measure(url: string): Promise<void> {
  const api = async <T>(path: string) =>
    (await (await fetch(`${url}${path}`, { headers: { authorization: `Bearer ${KEY}` } })).json()) as T;
  const one = async (query: string): Promise<Row> => {
    const [row] = (await api<{ data: readonly Row[] }>(`/v1/deliveries?limit=1&${query}`)).data;
    if (!row) throw new Error(`no delivery is ${query}`);
    return row;
  };
  const [sent, doubtful] = [await one("state=sent&channel=email"), await one("state=needs_attention")];
  const [item] = (await api<{ data: readonly { id: string }[] }>("/v1/attention?limit=1")).data;
  const day = (ago: number) => new Date(Date.now() - ago * 86_400_000).toISOString().slice(0, 10);
  const pages = [
    "/console/attention",
    "/console/attention?channel=email&reason=timeout&older_than=3600&producer=shop",
    "/console/attention?assignee=me",
    `/console/attention/resolve?ids=${item?.id}&action=abandon`,
    `/console/deliveries/${sent.id}`,
    `/console/deliveries/${doubtful.id}`,
    `/console/deliveries/${sent.id}/raw`,
    "/console/deliveries",
    "/console/deliveries?name=order/500000",
    "/console/deliveries?q=order/500000",
    "/console/deliveries?q=nobody@example.com",
    `/console/deliveries?to=${sent.to}`,
    "/console/deliveries?provider_message_id=message-500000",
    "/console/deliveries?schedule=nightly-5",
    "/console/deliveries?schedule=never-seen",
    ...["pending", "claimed", "sent", "failed", "needs_attention", "cancelled", "expired", "suppressed"].map(
      (state) => `/console/deliveries?state=${state}`,
    ),
    ...["refused", "exhausted", "abandoned"].map((failure) => `/console/deliveries?failure=${failure}`),
    ...["delivered", "bounced", "complained", "opened"].map((receipt) => `/console/deliveries?receipt=${receipt}`),
    "/console/deliveries?channel=sandbox",
    "/console/deliveries?channel=telegram&state=failed&failure=exhausted",
    `/console/deliveries?accepted_after=${day(15)}`,
    `/console/deliveries?accepted_before=${day(25)}`,
    `/console/deliveries?accepted_after=${day(16)}&accepted_before=${day(15)}&state=cancelled`,
    `/console/deliveries?accepted_before=${day(60)}`,
    "/console/overview",
    "/console/suppressions",
    "/console/suppressions?recipient=nobody@example.com",
    "/console/suppressions?reason=asked",
    "/console/receipts",
    "/console/receipts?provider_message_id=message-500000",
    "/console/keys",
    "/console/session",
  ];
  const cookie = await signIn(url);
  let worst = 0;
  say(`\n| page | median ms | slowest ms |\n|---|---:|---:|`);
  for (const page of pages) {
    const times: number[] = [];
    for (let round = 0; round <= ROUNDS; round += 1) {
      const startedAt = performance.now();
      const answer = await fetch(`${url}${page}`, { headers: { cookie }, redirect: "manual" });
      await answer.text();
      if (answer.status !== 200 && answer.status !== 303) throw new Error(`${page}: ${answer.status}`);
      // The first one fills caches.
      if (round > 0) times.push(performance.now() - startedAt);
    }
    times.sort((a, b) => a - b);
    const median = times[ROUNDS / 2] ?? 0;
    worst = Math.max(worst, median);
    say(
      `| \`${page.replace(/[0-9a-f]{8}-[0-9a-f-]{27}/, "…")}\` | ${median.toFixed(1)} | ${times.at(-1)?.toFixed(1)} |`,
    );
  }
  say(`\nthe slowest page's median: ${worst.toFixed(1)} ms`);
}

async function signIn(url: string): Promise<string> {
  const answer = await fetch(`${url}/console/sign-in`, {
    ...{ method: "POST", redirect: "manual", body: new URLSearchParams({ key: KEY, operator: "Bench" }) },
    headers: { origin: url },
  });
  const cookie = answer.headers.get("set-cookie")?.split(";")[0];
  if (!cookie) throw new Error(`signing in: ${answer.status}`);
  return cookie;
}
