import { sql, type Transaction } from "kysely";
import { type Heard, hear } from "./breaker.ts";
import { countCalls } from "./call-counts.ts";
import type { Write } from "./held.ts";
import type { Schema } from "./schema.ts";
import { type Suppression, suppressRecipients } from "./suppress.ts";

/**
 * What verdicts say about more than their own delivery: the channel held, slowed, or known to fail; a recipient suppressed or
 * moved; the calls counted. The channels' rows are locked first, and in order; what follows may come in any.
 */
export async function applyChannelEffects(tx: Transaction<Schema>, writes: readonly Write[]): Promise<void> {
  const heard = heardOf(writes);
  await Promise.all([
    heard.length === 0 ? null : hear(tx, heard).then(() => applyToChannels(tx, writes)),
    countCalls(tx, writes.filter(isCall)),
    suppressRecipients(tx, writes.filter(({ settlement }) => settlement.outcome.suppresses).map(suppressionOf)),
  ]);
}

/** A call that was made and answered, and is written for the first time: not a lease, not late evidence. */
const isCall = ({ settlement, change }: Write): boolean =>
  settlement.witness.source === "answer" && !change.isEvidence && settlement.answer !== null;

const concernsChannel = ({ settlement: { outcome } }: Write): boolean =>
  outcome.scope === "channel" || outcome.slowsChannel;

function heardOf(writes: readonly Write[]): Heard[] {
  const telling = writes.filter((write) => isCall(write) || concernsChannel(write) || write.settlement.outcome.movedTo);
  return [...Map.groupBy(telling, ({ held }) => held.delivery.channel)].map(([channel, ofOne]) => {
    const calls = ofOne.filter(isCall);
    return {
      channel,
      calls: calls.map(({ settlement: { number, outcome }, held }) => ({
        claimedAt: held.attempts.find((attempt) => attempt.number === number)?.claimedAt ?? 0,
        // A spooled outcome of an earlier version does not say.
        failing: outcome.failing ?? false,
      })),
      limitPerSecond:
        calls.findLast(({ settlement }) => settlement.call?.limitPerSecond)?.settlement.call?.limitPerSecond ?? null,
      touches: ofOne.some(concernsChannel),
    };
  });
}

async function applyToChannels(tx: Transaction<Schema>, writes: readonly Write[]): Promise<void> {
  for (const write of writes) {
    const { outcome } = write.settlement;
    if (outcome.scope === "channel") await holdChannel(tx, write);
    if (outcome.slowsChannel) await slowChannel(tx, write);
    if (outcome.movedTo !== null) await rememberMove(tx, write, outcome.movedTo);
  }
}

const suppressionOf = ({ settlement, held }: Write): Suppression => ({
  channel: held.delivery.channel,
  recipient: held.attempts.find(({ number }) => number === settlement.number)?.recipient ?? held.delivery.recipient,
  reason: settlement.outcome.reason,
  by: "ledger",
});

/**
 * Holds the channel until an operator resumes it, or for as long as the provider or its table says. A pause stands. What a
 * worker with other credentials than the current ones was told (a restart is under way) holds nobody.
 */
async function holdChannel(tx: Transaction<Schema>, { settlement, held }: Write): Promise<void> {
  const { reason, holdS } = settlement.outcome;
  await sql`
    with paused as (
      update channels
      set paused_at = ledger_now(), pause_reason = ${reason}, paused_by = 'ledger',
        pause_note = ${settlement.answer?.message ?? null},
        paused_until = ledger_now() + ${holdS}::double precision * interval '1 second'
      where id = ${held.delivery.channel} and (paused_at is null or paused_until <= ledger_now())
        and credential_fingerprint is not distinct from coalesce(${settlement.credentials}::text, credential_fingerprint)
      returning id
    )
    insert into events (type, producer_id, data)
    select 'channel.paused', (select id from producers where name = 'admin'),
      json_build_object('channel', id, 'reason', ${reason}::text, 'note', ${settlement.answer?.message ?? null}::text, 'by', 'ledger')
    from paused`.execute(tx);
}

async function slowChannel(tx: Transaction<Schema>, { settlement, held }: Write): Promise<void> {
  await sql`
    update channels
    set paced_until = greatest(paced_until,
      ledger_now() + ${Math.min(settlement.outcome.retryAfterS ?? 1, 60)}::double precision * interval '1 second')
    where id = ${held.delivery.channel}`.execute(tx);
}

/** Kept under the recipient as posted, so that a second move replaces the first and no chain needs following. */
async function rememberMove(tx: Transaction<Schema>, { held }: Write, movedTo: string): Promise<void> {
  await sql`
    insert into recipient_moves (channel, recipient, moved_to)
    values (${held.delivery.channel}, ${held.delivery.recipient}, ${movedTo})
    on conflict (channel, recipient) do update set moved_to = excluded.moved_to, learned_at = ledger_now()`.execute(tx);
}
