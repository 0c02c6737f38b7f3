import { sql, type Transaction } from "kysely";
import type {
  DeliveryId,
  HoldReason,
  LadderKey,
  Millis,
  OnUnknown,
  ProducerId,
  SettledAttempt,
} from "../ledger/delivery.ts";
import type { GateDelivery } from "../ledger/gate.ts";
import type { Ladder } from "../ledger/next-step.ts";
import { type QuietHours, quietUntil } from "../ledger/quiet-hours.ts";
import type { Schema } from "./schema.ts";

/** A due delivery, locked by the claiming transaction. */
export interface Due {
  readonly id: DeliveryId;
  readonly producerId: ProducerId;
  readonly recipient: string;
  readonly movedTo: string | null;
  readonly onUnknown: OnUnknown;
  readonly attemptCount: number;
  readonly ladder: Ladder;
  /** Every settled attempt, in order. */
  readonly history: readonly SettledAttempt[];
  readonly request: { readonly message?: unknown };
  /** The body frozen under the latest key, if any. */
  readonly frozenBody: string | null;
  /** It was held for its recipient's pace, and its turn has come. */
  readonly hasTurn: boolean;
  readonly gate: GateDelivery;
}

/** What to do with one due delivery. */
export type Decision =
  | { readonly act: "claim"; readonly generation: number; readonly repeats: boolean }
  | { readonly act: "attention"; readonly reason: string }
  | { readonly act: "close"; readonly state: "cancelled" | "expired" | "suppressed" }
  | { readonly act: "hold"; readonly reason: HoldReason; readonly until: Millis | null };

export interface DueRow {
  id: DeliveryId;
  producer_id: ProducerId;
  recipient: string;
  moved_to: string | null;
  on_unknown: OnUnknown;
  attempt_count: number;
  ladder: number;
  ladder_key: LadderKey;
  in_doubt: boolean;
  hold_reason: HoldReason | null;
  next_attempt_at: Date;
  expires_at: Date | null;
  suppressed: boolean;
  request: { message?: unknown } | null;
  frozen_body: string | null;
  history: (Omit<SettledAttempt, "claimedAt"> & { claimedAt: number })[] | null;
  /** The delivery's own, or the producer's. */
  quiet_hours: QuietHours | null;
  now: Date;
}

/** What is due on a channel, locked. */
export interface DueBatch {
  readonly due: readonly Due[];
  readonly now: Millis;
  /** The channel's breaker is open, it is time for a probe, and there is something to try it with: nothing was locked. */
  readonly wantsProbe: boolean;
}

/**
 * Locks deliveries that are due on a channel that may send. Of two workers that want one delivery, the second finds it
 * locked (skipped) or no longer pending. A channel that is paused, down or paced is left alone as a whole, so that its
 * backlog costs nothing. `probing`: the caller has the right to one call on a channel whose breaker is open.
 */
export async function lockDue(
  tx: Transaction<Schema>,
  request: { readonly channel: string; readonly limit: number; readonly probing: boolean },
): Promise<DueBatch> {
  const { rows } = await sql<{ now: Date; wants_probe: boolean } & (DueRow | { id: null })>`
    with ready_channel as (
      select id, breaker_opened_at is not null as is_down,
        breaker_opened_at is not null and breaker_open_until <= ledger_now() and ledger_now() >= (
          select min(d.next_attempt_at) from deliveries d where d.channel = channels.id and d.state = 'pending'
        ) as wants_probe
      from channels
      where id = ${request.channel}
        and (paused_at is null or paused_until <= ledger_now())
        and (paced_until is null or paced_until <= ledger_now())
    ), due as (
      select d.* from deliveries d
      where d.channel = (select id from ready_channel where not is_down or ${request.probing}) and d.state = 'pending'
        and d.next_attempt_at <= ledger_now()
      order by d.next_attempt_at
      limit ${request.limit}
      for update of d skip locked
    )
    select due.id, due.producer_id, due.recipient, moved.moved_to, due.on_unknown, due.attempt_count, due.ladder,
      due.ladder_key, due.in_doubt, due.hold_reason, due.next_attempt_at, due.expires_at, m.request, past.history,
      ready_channel.wants_probe, ledger_now() as now,
      case when due.quiet_hours is null then p.quiet_hours else due.quiet_hours end as quiet_hours,
      exists (
        select from suppressions s where s.channel = due.channel
          and s.recipient in (suppression_key(due.recipient), suppression_key(moved.moved_to))
      ) as suppressed,
      case when due.attempt_count > 0 then (
        select b.body from request_bodies b where b.delivery_id = due.id and b.generation = past.last_generation
      ) end as frozen_body
    from ready_channel
    left join due on true
    left join producers p on p.id = due.producer_id
    left join messages m on m.delivery_id = due.id and m.producer_id = due.producer_id
    left join recipient_moves moved on moved.channel = due.channel and moved.recipient = due.recipient
    left join lateral (
      select max(a.generation) as last_generation,
        json_agg(json_build_object(
          'number', a.number, 'ladder', a.ladder, 'generation', a.generation, 'verdict', a.verdict, 'reason', a.reason,
          'counted', a.counted, 'retryAfterS', a.retry_after_s,
          'claimedAt', floor(extract(epoch from a.claimed_at) * 1000)
        ) order by a.number) filter (where a.settled_at is not null) as history
      from attempts a where due.attempt_count > 0 and a.delivery_id = due.id
    ) past on true
    order by due.next_attempt_at, due.id`.execute(tx);
  const due = rows.filter((row) => row.id !== null).map((row) => dueFrom(row as DueRow));
  return { due, now: rows[0]?.now.getTime() ?? 0, wantsProbe: rows[0]?.wants_probe ?? false };
}

export function dueFrom(row: DueRow): Due {
  return {
    id: row.id,
    producerId: row.producer_id,
    recipient: row.recipient,
    movedTo: row.moved_to,
    onUnknown: row.on_unknown,
    attemptCount: row.attempt_count,
    ladder: { number: row.ladder, key: row.ladder_key },
    history: (row.history ?? []) as readonly SettledAttempt[],
    request: row.request ?? {},
    frozenBody: row.frozen_body,
    hasTurn: row.hold_reason === "rate_limited",
    gate: {
      cancelled: false,
      expiresAt: row.expires_at?.getTime() ?? null,
      suppressed: row.suppressed,
      nextAttemptAt: row.next_attempt_at.getTime(),
      attemptCount: row.attempt_count,
      inDoubt: row.in_doubt,
      quietUntil: row.quiet_hours && quietUntil(row.quiet_hours, row.now.getTime()),
      recipientPacedUntil: null,
    },
  };
}
