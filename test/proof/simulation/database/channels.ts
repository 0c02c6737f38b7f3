import { ADMIN, byText, type ChannelRow, date, type Json, type Model, pairKey, type Result } from "./model.ts";
import type { Statement } from "./statement.ts";
import type { Tx } from "./tables.ts";

function takeProbe(model: Model, tx: Tx, [leaseMs, id]: readonly unknown[]): Result {
  const seen = model.channels.find(tx, id as string);
  if (!seen || seen.breaker_opened_at === null || (seen.breaker_open_until ?? 0) > tx.now) return { rows: [] };
  model.channels.update(tx, seen.id, { breaker_open_until: tx.now + (leaseMs as number) });
  return { rows: [{ id }] };
}

function returnProbe(model: Model, tx: Tx, [id]: readonly unknown[]): Result {
  model.channels.update(tx, id as string, { breaker_open_until: tx.now });
  return { rows: [], affected: 1 };
}

interface Heard {
  channel: string;
  touches: boolean;
  calls: boolean;
  rate: number | null;
}

function hear(model: Model, tx: Tx, [given]: readonly unknown[]): Result {
  const rows: Json[] = [];
  for (const heard of (JSON.parse(given as string) as Heard[]).sort((a, b) => byText(a.channel, b.channel))) {
    const seen = model.channels.find(tx, heard.channel);
    if (!seen) continue;
    const isRelearned = (row: ChannelRow) => heard.rate !== null && row.learned_rate !== heard.rate;
    const isFailing = seen.recent_calls !== "" || seen.breaker_opened_at !== null;
    if (!heard.touches && !(heard.calls && isFailing) && !isRelearned(seen)) continue;
    const row = model.channels.lock(tx, heard.channel) as ChannelRow;
    rows.push({
      ...{
        id: row.id,
        recent_calls: row.recent_calls,
        opened_at: row.breaker_opened_at,
        open_until: row.breaker_open_until,
      },
      ...{ relearned: isRelearned(row), now: tx.now },
    });
  }
  return { rows };
}

const millis = (seconds: unknown): number | null => (seconds === null ? null : Math.round((seconds as number) * 1000));

function writeBreaker(model: Model, tx: Tx, parameters: readonly unknown[]): Result {
  const [recentCalls, openedAt, openUntil, rate, id, type, data, isTold] = parameters;
  const row = model.channels.lock(tx, id as string) as ChannelRow;
  model.channels.update(tx, row.id, {
    ...{
      recent_calls: recentCalls as string,
      breaker_opened_at: millis(openedAt),
      breaker_open_until: millis(openUntil),
    },
    learned_rate: (rate as number | null) ?? row.learned_rate,
  });
  if (isTold) model.tell(tx, type as string, null, ADMIN, JSON.parse(data as string));
  return { rows: [], affected: isTold ? 1 : 0 };
}

function holdChannel(model: Model, tx: Tx, [reason, note, holdS, id, credentials]: readonly unknown[]): Result {
  const row = model.channels.lock(tx, id as string) as ChannelRow;
  const isFree = row.paused_at === null || (row.paused_until !== null && row.paused_until <= tx.now);
  if (!isFree || row.credential_fingerprint !== (credentials ?? row.credential_fingerprint))
    return { rows: [], affected: 0 };
  model.channels.update(tx, row.id, {
    ...{ paused_at: tx.now, pause_reason: reason as string, paused_by: "ledger", pause_note: note as string | null },
    paused_until: holdS === null ? null : tx.now + (holdS as number) * 1000,
  });
  model.tell(tx, "channel.paused", null, ADMIN, { channel: id, reason, note, by: "ledger" });
  return { rows: [], affected: 1 };
}

function slowChannel(model: Model, tx: Tx, [seconds, id]: readonly unknown[]): Result {
  const row = model.channels.lock(tx, id as string) as ChannelRow;
  model.channels.update(tx, row.id, {
    paced_until: Math.max(row.paced_until ?? 0, tx.now + (seconds as number) * 1000),
  });
  return { rows: [], affected: 1 };
}

const answered = (row: ChannelRow): Json => ({
  ...{ id: row.id, provider: row.provider, pausedAt: date(row.paused_at), pausedUntil: date(row.paused_until) },
  ...{ pauseReason: row.pause_reason, pauseNote: row.pause_note, pausedBy: row.paused_by },
  ...{ breakerOpenedAt: date(row.breaker_opened_at), breakerOpenUntil: date(row.breaker_open_until) },
  ...{ pacedUntil: date(row.paced_until), learnedRate: row.learned_rate, lastWebhookAt: null },
});

function pause(model: Model, tx: Tx, [note, by, id]: readonly unknown[]): Result {
  const change = { paused_at: tx.now, paused_until: null, pause_reason: "operator" };
  const row = model.channels.update(tx, id as string, {
    ...change,
    pause_note: note as string,
    paused_by: by as string,
  });
  model.tell(tx, "channel.paused", null, ADMIN, { channel: id, reason: row.pause_reason, note, by });
  return { rows: [answered(row)] };
}

function resume(model: Model, tx: Tx, [id, note, by]: readonly unknown[]): Result {
  const before = model.channels.lock(tx, id as string) as ChannelRow;
  const change = { paused_at: null, paused_until: null, pause_reason: null, pause_note: null, paused_by: null };
  const row = model.channels.update(tx, before.id, change);
  if (before.paused_at !== null) {
    model.tell(tx, "channel.resumed", null, ADMIN, { channel: id, reason: before.pause_reason, note, by });
  }
  return { rows: [answered(row)] };
}

function suppress(model: Model, tx: Tx, [given]: readonly unknown[]): Result {
  const wanted = JSON.parse(given as string) as { channel: string; recipient: string; reason: string; by: string }[];
  const keyed = wanted.map((one) => ({ ...one, recipient: one.recipient.toLowerCase() }));
  for (const { channel, recipient, reason, by } of keyed.sort(
    (a, b) => byText(a.channel, b.channel) || byText(a.recipient, b.recipient),
  )) {
    const key = pairKey(channel, recipient);
    if (model.suppressions.find(tx, key) !== null) continue;
    model.suppressions.put(tx, key, { channel, recipient });
    model.tell(tx, "suppression.added", null, ADMIN, { channel, recipient, reason, by });
  }
  return { rows: [], affected: 0 };
}

/** What is counted for people to look at decides nothing, and is left out. */
const uncounted = (): Result => ({ rows: [], affected: 0 });

export const CHANNELS: readonly Statement[] = [
  ["set breaker_open_until = ledger_now() +", takeProbe],
  ["set breaker_open_until = ledger_now() where", returnProbe],
  ["as heard (channel text", hear],
  ["set recent_calls =", writeBreaker],
  ["paused_by = 'ledger'", holdChannel],
  ["set paced_until = greatest", slowChannel],
  ["pause_reason = 'operator'", pause],
  ["with before as (", resume],
  ["as wanted (channel text, recipient text", suppress],
  ["insert into call_counts", uncounted],
  ["delete from call_counts", uncounted],
  ["delete from recipient_pace", uncounted],
];
