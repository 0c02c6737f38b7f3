import {
  type AttemptRow,
  byText,
  columnsOf,
  type DeliveryRow,
  date,
  type Json,
  type Model,
  pairKey,
  type Result,
} from "./model.ts";
import type { Statement } from "./statement.ts";
import { Blocked, DatabaseError, type Tx } from "./tables.ts";

/** Every settled attempt of a delivery, as `json_agg` gives it. */
export function historyOf(model: Model, tx: Tx, deliveryId: string): Json[] {
  return attemptsOf(model, tx, deliveryId)
    .filter((attempt) => attempt.settled_at !== null)
    .map(({ number, ladder, generation, verdict, reason, counted, retry_after_s, claimed_at }) => ({
      ...{ number, ladder, generation, verdict, reason, counted, retryAfterS: retry_after_s, claimedAt: claimed_at },
    }));
}

export const attemptsOf = (model: Model, tx: Tx, deliveryId: string): AttemptRow[] =>
  [...model.attempts.rows(tx)].filter((row) => row.delivery_id === deliveryId).sort((a, b) => a.number - b.number);

export const isSuppressed = (model: Model, tx: Tx, channel: string, recipient: string): boolean =>
  model.suppressions.find(tx, pairKey(channel, recipient.toLowerCase())) !== null;

/** What both who claims and who closes read of a delivery. */
const dueColumns = (row: DeliveryRow): Json => ({
  ...columnsOf(
    row,
    "id",
    "producer_id",
    "recipient",
    "on_unknown",
    "attempt_count",
    "ladder",
    "ladder_key",
    "in_doubt",
  ),
  ...columnsOf(row, "hold_reason", "next_attempt_at", "expires_at"),
  moved_to: null,
  quiet_hours: null,
});

function lockDue(model: Model, tx: Tx, [channel, probing, limit]: readonly unknown[]): Result {
  const row = model.channels.find(tx, channel as string);
  const isReady =
    row !== null &&
    (row.paused_at === null || (row.paused_until !== null && row.paused_until <= tx.now)) &&
    (row.paced_until === null || row.paced_until <= tx.now);
  if (!isReady) return { rows: [] };
  const waiting = [...model.deliveries.rows(tx)].filter((one) => one.channel === channel && one.state === "pending");
  const isDown = row.breaker_opened_at !== null;
  const probeIsDue = isDown && row.breaker_open_until !== null && row.breaker_open_until <= tx.now;
  const earliest = Math.min(...waiting.map((one) => one.next_attempt_at ?? Infinity));
  const wantsProbe = probeIsDue ? (waiting.length === 0 ? null : tx.now >= earliest) : false;
  const due =
    isDown && probing !== true
      ? []
      : waiting
          .filter((one) => (one.next_attempt_at ?? Infinity) <= tx.now && !model.deliveries.isLockedByOther(tx, one.id))
          .sort((a, b) => (a.next_attempt_at ?? 0) - (b.next_attempt_at ?? 0) || byText(a.id, b.id))
          .slice(0, limit as number);
  const common = { wants_probe: wantsProbe, now: date(tx.now) };
  if (due.length === 0) return { rows: [{ id: null, ...common }] };
  return {
    rows: due.map((one) => {
      model.deliveries.lock(tx, one.id);
      const { id, attempt_count } = one;
      const attempts = attempt_count > 0 ? attemptsOf(model, tx, id) : [];
      const last = Math.max(0, ...attempts.map(({ generation }) => generation));
      const history = historyOf(model, tx, id);
      return {
        ...dueColumns(one),
        request: model.messages.find(tx, id)?.request ?? null,
        history: history.length > 0 ? history : null,
        suppressed: isSuppressed(model, tx, one.channel, one.recipient),
        frozen_body: model.bodies.find(tx, pairKey(id, last))?.body ?? null,
        ...common,
      };
    }),
  };
}

/** Deliveries whose time has passed while they waited. */
function expired(model: Model, tx: Tx, [limit]: readonly unknown[]): Result {
  const due = [...model.deliveries.rows(tx)]
    .filter((row) => row.state === "pending" && row.expires_at !== null && row.expires_at <= tx.now)
    .filter((row) => !model.deliveries.isLockedByOther(tx, row.id))
    .sort((a, b) => (a.expires_at ?? 0) - (b.expires_at ?? 0))
    .slice(0, limit as number);
  for (const { id } of due) model.deliveries.lock(tx, id);
  const unread = { suppressed: false, request: null, frozen_body: null, history: null };
  return { rows: due.map((row) => ({ ...dueColumns(row), channel: row.channel, ...unread, now: date(tx.now) })) };
}

interface Claim {
  delivery_id: string;
  producer_id: string;
  number: number;
  generation: number;
  idempotency_key: string;
  recipient: string;
}

function openAttempts(model: Model, tx: Tx, [given, claimedBy, , leaseMs]: readonly unknown[]): Result {
  let affected = 0;
  for (const claim of JSON.parse(given as string) as Claim[]) {
    const { delivery_id, producer_id, number, generation, idempotency_key, recipient } = claim;
    const delivery = model.deliveries.lock(tx, delivery_id);
    if (delivery?.state !== "pending") continue;
    oneUnsettled(model, tx, delivery_id);
    model.move(tx, delivery_id, { state: "claimed", next_attempt_at: null, hold_reason: null, attempt_count: number });
    model.tell(tx, "delivery.claimed", delivery_id, producer_id, {
      attempt: number,
      idempotency_key,
      claimed_by: claimedBy,
    });
    model.attempts.put(tx, pairKey(delivery_id, number), {
      ...{ delivery_id, producer_id, number, ladder: delivery.ladder, generation, idempotency_key, recipient },
      ...{ claimed_at: tx.now, claimed_by: claimedBy as string, lease_expires_at: tx.now + (leaseMs as number) },
      ...{ settled_at: null, verdict: null, reason: null, counted: true, provider_message_id: null },
      ...{ retry_after_s: null, evidence: null, evidence_at: null },
    });
    affected += 1;
  }
  return { rows: [], affected };
}

/** The index attempts_one_unsettled: the guarded claim. */
function oneUnsettled(model: Model, tx: Tx, deliveryId: string): void {
  for (const { row, by } of model.attempts.uncommitted(tx)) if (row.delivery_id === deliveryId) throw new Blocked(by);
  if (attemptsOf(model, tx, deliveryId).some((attempt) => attempt.settled_at === null)) {
    throw new DatabaseError("23505", "attempts_one_unsettled");
  }
}

function hold(model: Model, tx: Tx, [given]: readonly unknown[]): Result {
  const holds = JSON.parse(given as string) as { id: string; reason: string; until: number | null }[];
  for (const { id, reason, until } of holds) {
    const row = model.deliveries.lock(tx, id);
    if (row?.state !== "pending") continue;
    model.move(tx, id, {
      hold_reason: reason,
      next_attempt_at: Math.max(row.next_attempt_at ?? 0, until ?? tx.now + 60_000),
    });
  }
  return { rows: [], affected: holds.length };
}

function end(model: Model, tx: Tx, [state, id, producerId, type, data]: readonly unknown[]): Result {
  const row = model.deliveries.lock(tx, id as string);
  if (row?.state !== "pending") return { rows: [], affected: 0 };
  model.move(tx, row.id, { state: state as string, next_attempt_at: null, hold_reason: null, settled_at: tx.now });
  model.tell(tx, type as string, row.id, producerId as string, JSON.parse(data as string));
  return { rows: [], affected: 1 };
}

function expiredLeases(model: Model, tx: Tx, [limit]: readonly unknown[]): Result {
  const open = [...model.attempts.rows(tx)]
    .filter((row) => row.settled_at === null && row.lease_expires_at <= tx.now)
    .sort((a, b) => a.lease_expires_at - b.lease_expires_at)
    .slice(0, limit as number);
  return {
    rows: open.map(({ delivery_id: deliveryId, producer_id: producerId, number }) => ({
      deliveryId,
      producerId,
      number,
    })),
  };
}

export const CLAIMS: readonly Statement[] = [
  ["with ready_channel as", lockDue],
  ["d.expires_at <= ledger_now()", expired],
  ["'delivery.claimed'", openAttempts],
  ["as held (id uuid", hold],
  ["update deliveries set state = ", end],
  ["where settled_at is null and lease_expires_at <= ledger_now()", expiredLeases],
];
