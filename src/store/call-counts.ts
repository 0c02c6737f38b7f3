import { sql, type Transaction } from "kysely";
import type { Verdict } from "../ledger/verdict.ts";
import type { Write } from "./held.ts";
import type { Db, Schema } from "./schema.ts";

/** What is older is forgotten. */
const KEPT = sql`interval '25 hours'`;

interface Count {
  readonly channel: string;
  readonly verdict: Verdict;
  readonly calls: number;
  readonly latency_ms_sum: number;
  readonly latency_ms_max: number;
}

/**
 * Counts a commit's calls: one row a channel, minute and verdict, in the shard of the connection, so that commits rarely meet
 * at one row; in the order of their keys, so that two that do never wait in a circle.
 */
export async function countCalls(tx: Transaction<Schema>, calls: readonly Write[]): Promise<void> {
  if (calls.length === 0) return;
  await sql`
    insert into call_counts (minute, channel, verdict, shard, calls, latency_ms_sum, latency_ms_max)
    select date_trunc('minute', ledger_now()), channel, verdict, pg_backend_pid() % 16, calls, latency_ms_sum, latency_ms_max
    from json_to_recordset(${JSON.stringify(countsOf(calls))}::text::json)
      as counted (channel text, verdict text, calls integer, latency_ms_sum bigint, latency_ms_max integer)
    order by channel, verdict
    on conflict (minute, channel, verdict, shard) do update
      set calls = call_counts.calls + excluded.calls,
        latency_ms_sum = call_counts.latency_ms_sum + excluded.latency_ms_sum,
        latency_ms_max = greatest(call_counts.latency_ms_max, excluded.latency_ms_max)`.execute(tx);
}

function countsOf(calls: readonly Write[]): Count[] {
  const keyed = Map.groupBy(calls, ({ settlement, held }) => `${held.delivery.channel} ${settlement.outcome.verdict}`);
  return [...keyed].map(([key, ofOne]) => {
    const [channel = "", verdict = ""] = key.split(" ");
    const latencies = ofOne.map(({ settlement }) => Math.round(settlement.call?.latencyMs ?? 0));
    return {
      channel,
      verdict: verdict as Verdict,
      calls: latencies.length,
      latency_ms_sum: latencies.reduce((sum, ms) => sum + ms, 0),
      latency_ms_max: Math.max(...latencies),
    };
  });
}

/** Forgets counts that nobody reads any more. */
export async function forgetCounts(db: Db): Promise<void> {
  await sql`delete from call_counts where minute < ledger_now() - ${KEPT}`.execute(db);
}

/** How many calls proved what. */
export interface ProvedCalls {
  readonly accepted: number;
  readonly refused: number;
  readonly deferred: number;
  readonly unknown: number;
}

/** Columns over rows `n` of the counts: what the calls proved (ProvedCalls), and their latency as "meanMs" and "maxMs". */
export const provedCalls = sql`
  coalesce(sum(n.calls) filter (where n.verdict = 'accepted'), 0)::integer as accepted,
  coalesce(sum(n.calls) filter (where n.verdict = 'refused'), 0)::integer as refused,
  coalesce(sum(n.calls) filter (where n.verdict = 'deferred'), 0)::integer as deferred,
  coalesce(sum(n.calls) filter (where n.verdict = 'unknown'), 0)::integer as unknown,
  round(sum(n.latency_ms_sum) / sum(n.calls), 1)::double precision as "meanMs", max(n.latency_ms_max) as "maxMs"`;

/** A channel's calls in one minute. */
export interface CountedMinute extends ProvedCalls {
  readonly channel: string;
  readonly at: Date;
  readonly meanMs: number;
  readonly maxMs: number;
}

/** The last hour, minute by minute, oldest first; minutes without a call have no row. */
export async function listCounts(db: Db): Promise<readonly CountedMinute[]> {
  const { rows } = await sql<CountedMinute>`
    select n.channel, n.minute as at, ${provedCalls} from call_counts n
    where n.minute > ledger_now() - interval '1 hour'
    group by n.channel, n.minute order by n.channel, n.minute`.execute(db);
  return rows;
}
