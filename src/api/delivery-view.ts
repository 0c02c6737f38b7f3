import type { z } from "zod";
import { gate } from "../ledger/gate.ts";
import { quietUntil } from "../ledger/quiet-hours.ts";
import type { AttemptRow, DeliveryRow } from "../store/deliveries.ts";
import type * as schemas from "./schemas.ts";

const text = (at: Date | null): string | null => at?.toISOString() ?? null;
const millis = (at: Date | null): number | null => at?.getTime() ?? null;

/**
 * Why a pending delivery waits now, and until when: what the gate says, not what it said when it was last asked. Where it
 * said quiet hours or pace, the delivery's own time had come, and it was moved to where that hold ends.
 */
function holdOf(row: DeliveryRow, configured: boolean): z.infer<typeof schemas.delivery>["hold"] {
  if (row.state !== "pending" || row.next_attempt_at === null) return null;
  const now = row.now.getTime();
  const next = row.next_attempt_at.getTime();
  const movedTo = (reason: typeof row.hold_reason) => (row.hold_reason === reason && next > now ? next : null);
  const [quiet, paced] = [movedTo("quiet_hours"), movedTo("rate_limited")];
  const decision = gate(
    {
      cancelled: false,
      expiresAt: millis(row.expires_at),
      suppressed: row.suppressed,
      nextAttemptAt: quiet === null && paced === null ? next : now,
      attemptCount: row.attempt_count,
      inDoubt: row.in_doubt,
      quietUntil: quiet ?? (row.quiet_hours && quietUntil(row.quiet_hours, now)),
      recipientPacedUntil: paced,
    },
    {
      paused: row.channel_paused_at === null ? null : { until: millis(row.channel_paused_until) },
      configured,
      breakerOpenUntil: millis(row.breaker_open_until),
      pacedUntil: millis(row.paced_until),
    },
    now,
  );
  if (decision.gate !== "hold") return null;
  return { reason: decision.reason, until: decision.until === null ? null : new Date(decision.until).toISOString() };
}

/** A delivery as it is answered. */
export function deliveryView(row: DeliveryRow, configured: boolean): z.infer<typeof schemas.delivery> {
  return {
    id: row.id,
    name: row.name,
    occurrence:
      row.schedule !== null && row.due_at ? { schedule: row.schedule, due_at: row.due_at.toISOString() } : null,
    producer: row.producer,
    channel: row.channel,
    provider: row.provider,
    to: row.recipient,
    state: row.state,
    failure: row.failure,
    hold: holdOf(row, configured),
    receipt:
      row.receipt_status && row.receipt_at ? { status: row.receipt_status, at: row.receipt_at.toISOString() } : null,
    attempt_count: row.attempt_count,
    provider_message_id: row.provider_message_id,
    next_attempt_at: text(row.next_attempt_at),
    deliver_at: text(row.deliver_at),
    expires_at: text(row.expires_at),
    accepted_at: row.accepted_at.toISOString(),
    settled_at: text(row.settled_at),
    metadata: row.metadata,
    on_unknown: row.on_unknown,
    quiet_hours: row.quiet_hours,
    attention:
      row.attention_id && row.attention_reason && row.attention_opened_at
        ? { id: row.attention_id, reason: row.attention_reason, opened_at: row.attention_opened_at.toISOString() }
        : null,
  };
}

export function attemptView(row: AttemptRow): z.infer<typeof schemas.attempt> {
  return {
    number: row.number,
    idempotency_key: row.idempotency_key,
    to: row.recipient,
    claimed_at: row.claimed_at.toISOString(),
    claimed_by: row.claimed_by,
    lease_expires_at: row.lease_expires_at.toISOString(),
    settled_at: text(row.settled_at),
    verdict: row.verdict,
    reason: row.reason,
    counted: row.counted,
    phase: row.phase,
    status_code: row.status_code,
    error:
      row.error_code === null && row.error_message === null
        ? null
        : { code: row.error_code, message: row.error_message },
    provider_message_id: row.provider_message_id,
    retry_after_s: row.retry_after_s,
    evidence: row.evidence,
    evidence_at: text(row.evidence_at),
  };
}
