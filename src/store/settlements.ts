import { sql, type Transaction } from "kysely";
import { uuidv7 } from "uuidv7";
import type { DeliveryId, Millis, State } from "../ledger/delivery.ts";
import type { SettlementChange } from "../ledger/settlement.ts";
import { applyChannelEffects } from "./channel-effects.ts";
import { type Held, lockHeld, type Settlement, type Write } from "./held.ts";
import type { Db, Schema } from "./schema.ts";

export type Decide = (settlement: Settlement, held: Held, now: Millis) => SettlementChange | null;

/** What became of a settlement: the delivery's state after it, or null when somebody else was first. */
export type Settled = { readonly state: State; readonly change: SettlementChange } | null;

/**
 * Writes verdicts and moves their deliveries on, all in one commit. `decide` judges each under its delivery's lock, so
 * that of two witnesses the second finds the first's word. Answers one result a settlement, in order.
 */
export async function settleAttempts(
  db: Db,
  settlements: readonly Settlement[],
  decide: Decide,
): Promise<readonly Settled[]> {
  return await db.transaction().execute(async (tx) => {
    const results: Settled[] = settlements.map(() => null);
    // A delivery that is named twice is decided twice, the second time on what the first wrote.
    for (const round of rounds(settlements)) {
      const { held, now } = await lockHeld(
        tx,
        round.map(({ settlement }) => settlement),
      );
      const writes: Write[] = [];
      for (const { settlement, index } of round) {
        const of = held.get(settlement.deliveryId);
        const change = of ? decide(settlement, of, now) : null;
        if (!of || !change) continue;
        writes.push({ settlement, held: of, change });
        results[index] = { state: change.delivery?.state ?? of.delivery.state, change };
      }
      if (writes.length > 0) await writeAll(tx, writes);
    }
    return results;
  });
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

async function writeAll(tx: Transaction<Schema>, writes: readonly Write[]): Promise<void> {
  await writeVerdicts(tx, writes);
  await Promise.all([openItems(tx, writes), closeItems(tx, writes), applyChannelEffects(tx, writes)]);
}

/** Verdicts, deliveries and events in one statement. The locks are held: each row is as it was when it was decided. */
async function writeVerdicts(tx: Transaction<Schema>, writes: readonly Write[]): Promise<void> {
  await sql`
    with verdict as (
      select * from json_to_recordset(${JSON.stringify(writes.map(verdictRow))}::text::json) as verdict (
        delivery_id uuid, producer_id uuid, number integer, verdict text, reason text, counted boolean, phase text,
        status_code integer, error_code text, error_message text, provider_message_id text,
        retry_after_s double precision, evidence text, state text, failure text, next_attempt_ms double precision,
        hold_reason text, in_doubt boolean, moves boolean, event text)
    ), settled as (
      update attempts a
      set verdict = v.verdict, reason = v.reason, counted = v.counted, phase = v.phase, status_code = v.status_code,
        error_code = v.error_code, error_message = v.error_message, provider_message_id = v.provider_message_id,
        retry_after_s = v.retry_after_s, settled_at = coalesce(a.settled_at, ledger_now()),
        evidence = v.evidence, evidence_at = case when v.evidence is not null then ledger_now() end
      from verdict v
      where a.delivery_id = v.delivery_id and a.producer_id = v.producer_id and a.number = v.number
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
    evidence: change.replacesUnknown ? witness.source : null,
    state: change.delivery?.state ?? null,
    failure: change.delivery?.failure ?? null,
    next_attempt_ms: change.delivery?.nextAttemptAt ?? null,
    hold_reason: change.delivery?.holdReason ?? null,
    in_doubt: change.inDoubt,
    moves: change.delivery !== null,
    event: change.delivery ? `delivery.${change.delivery.state}` : "attempt.settled",
  };
}

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
          },
        ],
  );
  if (items.length === 0) return;
  await tx
    .insertInto("attention_items")
    .values(items)
    .onConflict((conflict) => conflict.doNothing())
    .execute();
}

/** An item that evidence settles closes itself, saying so. */
async function closeItems(tx: Transaction<Schema>, writes: readonly Write[]): Promise<void> {
  const left = writes.filter(
    ({ held, change }) => held.delivery.state === "needs_attention" && change.delivery !== null,
  );
  const settled = left.filter(({ change }) => change.delivery?.state !== "needs_attention");
  if (settled.length === 0) return;
  await tx
    .updateTable("attention_items")
    .set({ closed_at: sql<Date>`ledger_now()`, resolution: "evidence", resolved_by: "ledger" })
    .where(
      "delivery_id",
      "in",
      settled.map(({ settlement }) => settlement.deliveryId),
    )
    .where("closed_at", "is", null)
    .execute();
}
