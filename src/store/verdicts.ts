import { sql, type Transaction } from "kysely";
import { uuidv7 } from "uuidv7";
import type { CapabilityOf } from "../ledger/capability.ts";
import type { DeliveryId, State } from "../ledger/delivery.ts";
import { type SettlementChange, settlement as settlementOf } from "../ledger/settlement.ts";
import { applyChannelEffects } from "./channel-effects.ts";
import { type Held, lockHeld, type Settlement, type Write } from "./held.ts";
import type { Schema } from "./schema.ts";

/** What became of a settlement: the delivery's state after it, or null when somebody else was first. */
export type Settled = { readonly state: State; readonly change: SettlementChange } | null;

/**
 * Writes verdicts and moves their deliveries on, within the caller's transaction. Each is decided under its delivery's lock,
 * so that of two witnesses the second finds the first's word. Answers one result a settlement, in order, and what was written.
 */
export async function settleWithin(
  tx: Transaction<Schema>,
  settlements: readonly Settlement[],
  capabilityOf: CapabilityOf,
): Promise<{ readonly results: readonly Settled[]; readonly writes: readonly Write[] }> {
  const results: Settled[] = settlements.map(() => null);
  const written: Write[] = [];
  // A delivery that is named twice is decided twice, the second time on what the first wrote.
  const all = rounds(settlements);
  for (const round of all) {
    const { held, now } = await lockHeld(
      tx,
      round.map(({ settlement }) => settlement.deliveryId),
    );
    const writes: Write[] = [];
    for (const { settlement, index } of round) {
      const of = held.get(settlement.deliveryId);
      if (!of) continue;
      const { number, outcome, witness } = settlement;
      const table = capabilityOf(of.delivery.provider);
      const change = settlementOf(of.delivery, of.attempts, number, outcome, witness, table, now);
      if (!change) continue;
      writes.push({ settlement, held: of, change });
      results[index] = { state: change.delivery?.state ?? of.delivery.state, change };
    }
    written.push(...writes);
    // The channels at the end, all at once: they are locked in their order.
    await writeAll(tx, writes, round === all.at(-1) ? written : []);
  }
  return { results, writes: written };
}

interface Numbered {
  readonly settlement: Settlement;
  readonly index: number;
}

function rounds(settlements: readonly Settlement[]): Numbered[][] {
  const out: Numbered[][] = [];
  const seen = new Map<DeliveryId, number>();
  for (const [index, settlement] of settlements.entries()) {
    const round = seen.get(settlement.deliveryId) ?? 0;
    seen.set(settlement.deliveryId, round + 1);
    out[round] ??= [];
    out[round]?.push({ settlement, index });
  }
  return out;
}

async function writeAll(tx: Transaction<Schema>, writes: readonly Write[], concluded: readonly Write[]): Promise<void> {
  if (writes.length > 0) await writeVerdicts(tx, writes);
  const effective = concluded.filter(({ change }) => change.writesVerdict);
  await Promise.all([openItems(tx, writes), closeItems(tx, writes), applyChannelEffects(tx, effective)]);
}

/** Verdicts, deliveries and events in one statement. The locks are held: each row is as it was when it was decided. */
async function writeVerdicts(tx: Transaction<Schema>, writes: readonly Write[]): Promise<void> {
  await sql`
    with verdict as (
      select * from json_to_recordset(${JSON.stringify(writes.map(verdictRow))}::text::json) as verdict (
        delivery_id uuid, producer_id uuid, number integer, verdict text, reason text, counted boolean, phase text,
        status_code integer, error_code text, error_message text, provider_message_id text,
        retry_after_s double precision, evidence text, state text, failure text, next_attempt_ms double precision,
        hold_reason text, in_doubt boolean, moves boolean, writes boolean, event text)
    ), settled as (
      update attempts a
      set verdict = v.verdict, reason = v.reason, counted = v.counted, phase = coalesce(v.phase, a.phase),
        status_code = coalesce(v.status_code, a.status_code), error_code = coalesce(v.error_code, a.error_code),
        error_message = coalesce(v.error_message, a.error_message),
        provider_message_id = coalesce(v.provider_message_id, a.provider_message_id),
        retry_after_s = v.retry_after_s, settled_at = coalesce(a.settled_at, ledger_now()),
        evidence = v.evidence, evidence_at = case when v.evidence is not null then ledger_now() end
      from verdict v
      where a.delivery_id = v.delivery_id and a.producer_id = v.producer_id and a.number = v.number and v.writes
    ), moved as (
      update deliveries d
      set state = case when v.moves then v.state else d.state end,
        failure = case when v.moves then v.failure else d.failure end,
        next_attempt_at = case when v.moves then to_timestamp(v.next_attempt_ms / 1000) else d.next_attempt_at end,
        hold_reason = case when v.moves then v.hold_reason else d.hold_reason end,
        settled_at = case when v.moves and v.state <> 'pending' then ledger_now()
                          when v.moves then null else d.settled_at end,
        in_doubt = v.in_doubt,
        provider_message_id = coalesce(d.provider_message_id, v.provider_message_id)
      from verdict v
      where d.id = v.delivery_id and d.producer_id = v.producer_id
    )
    insert into events (type, delivery_id, producer_id, data)
    select v.event, v.delivery_id, v.producer_id, json_strip_nulls(json_build_object(
      'attempt', v.number, 'verdict', v.verdict, 'reason', v.reason, 'phase', v.phase, 'status_code', v.status_code,
      'error_code', v.error_code, 'provider_message_id', v.provider_message_id, 'failure', v.failure,
      'next_attempt_at', to_char(to_timestamp(v.next_attempt_ms / 1000) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
      'evidence', v.evidence))
    from verdict v`.execute(tx);
}

function verdictRow({ settlement, change }: Write): Record<string, unknown> {
  const { outcome, answer, witness } = settlement;
  return {
    delivery_id: settlement.deliveryId,
    producer_id: settlement.producerId,
    number: settlement.number,
    verdict: outcome.verdict,
    reason: outcome.reason,
    counted: change.counted,
    phase: answer?.phase ?? (outcome.verdict === "deferred" ? "not_sent" : null),
    status_code: answer?.status ?? null,
    error_code: answer?.code ?? null,
    error_message: answer?.message ?? null,
    provider_message_id: outcome.providerMessageId,
    retry_after_s: outcome.retryAfterS,
    evidence: change.isEvidence ? witness.source : null,
    state: change.delivery?.state ?? null,
    failure: change.delivery?.failure ?? null,
    next_attempt_ms: change.delivery?.nextAttemptAt ?? null,
    hold_reason: change.delivery?.holdReason ?? null,
    in_doubt: change.inDoubt,
    moves: change.delivery !== null,
    writes: change.writesVerdict,
    event: change.delivery ? `delivery.${change.delivery.state}` : "attempt.settled",
  };
}

/** An item is open already: what contradicts the ledger is added to it, under `further`; anything else it says itself. */
export const ADD_TO_OPEN_ITEM = sql`
  on conflict (delivery_id, producer_id) where closed_at is null do update
  set detail = (coalesce(item.detail::jsonb, '{}') || jsonb_build_object(
    'further', coalesce(item.detail::jsonb -> 'further', '[]') || excluded.detail::jsonb))::json
  where excluded.detail is not null`;

async function openItems(tx: Transaction<Schema>, writes: readonly Write[]): Promise<void> {
  const items = writes.flatMap(({ settlement, held, change }) =>
    change.attention === null
      ? []
      : [
          {
            id: uuidv7(),
            delivery_id: settlement.deliveryId,
            producer_id: settlement.producerId,
            channel: held.delivery.channel,
            reason: change.attention,
            detail: change.attention === "contradiction" ? contradictionOf(settlement, held) : null,
          },
        ],
  );
  if (items.length === 0) return;
  await sql`
    insert into attention_items as item (id, delivery_id, producer_id, channel, reason, detail)
    select id, delivery_id, producer_id, channel, reason, case when json_typeof(detail) <> 'null' then detail end
    from json_to_recordset(${JSON.stringify(items)}::text::json)
      as opened (id uuid, delivery_id uuid, producer_id uuid, channel text, reason text, detail json)
    ${ADD_TO_OPEN_ITEM}`.execute(tx);
}

/** What was said, and what it contradicts, for the operator. */
function contradictionOf({ number, outcome, witness }: Settlement, { delivery, attempts }: Held) {
  const { state, providerMessageId: heldId } = delivery;
  const accepted = outcome.verdict === "accepted";
  const twoIds =
    accepted && heldId !== null && outcome.providerMessageId !== null && outcome.providerMessageId !== heldId;
  return {
    why: twoIds ? "two_message_ids" : accepted && state !== "sent" ? `accepted_after_${state}` : "verdict_disputed",
    source: witness.source,
    attempt: number,
    verdict: outcome.verdict,
    reason: outcome.reason,
    provider_message_id: outcome.providerMessageId,
    held_verdict: attempts.find((attempt) => attempt.number === number)?.settled?.verdict ?? null,
    held_message_id: heldId,
  };
}

/** An item that evidence settles closes itself, saying so. */
async function closeItems(tx: Transaction<Schema>, writes: readonly Write[]): Promise<void> {
  const settled = writes.filter(
    ({ held, change }) =>
      held.delivery.state === "needs_attention" &&
      change.delivery !== null &&
      change.delivery.state !== "needs_attention",
  );
  if (settled.length === 0) return;
  const rows = settled.map(({ settlement: { deliveryId, number, outcome, witness } }) => ({
    delivery_id: deliveryId,
    data: { resolution: "evidence", source: witness.source, attempt: number, verdict: outcome.verdict },
  }));
  await sql`
    with settled as (
      select * from json_to_recordset(${JSON.stringify(rows)}::text::json) as settled (delivery_id uuid, data json)
    ), closed as (
      update attention_items i
      set closed_at = ledger_now(), resolution = 'evidence', resolved_by = 'ledger', lookup_after = null
      from settled
      where i.delivery_id = settled.delivery_id and i.closed_at is null
      returning i.id, i.delivery_id, i.producer_id
    )
    insert into events (type, delivery_id, producer_id, data)
    select 'attention.closed', closed.delivery_id, closed.producer_id,
      (settled.data::jsonb || jsonb_build_object('item', closed.id))::json
    from closed join settled using (delivery_id)`.execute(tx);
}
