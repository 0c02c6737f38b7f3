import { type Selectable, sql, type Transaction } from "kysely";
import type { AttemptNumber, DeliveryId, Millis, ProducerId, ReceiptStatus, State } from "../ledger/delivery.ts";
import type { Reported } from "../ledger/receipt.ts";
import type { HeldAttempt, HeldDelivery, SettlementChange, Witness } from "../ledger/settlement.ts";
import type { Answer, Outcome } from "../ledger/verdict.ts";
import { uuidArray } from "./arrays.ts";
import type { Attempts, Schema } from "./schema.ts";

/** A verdict about one attempt, to be written. */
export interface Settlement {
  readonly deliveryId: DeliveryId;
  readonly producerId: ProducerId;
  readonly number: AttemptNumber;
  readonly outcome: Outcome;
  readonly witness: Witness;
  /** The credentials that were used, by their fingerprint; null when none were. */
  readonly credentials: string | null;
  /** What was seen; null when no provider answered. */
  readonly answer: Pick<Answer, "phase" | "status" | "code" | "message"> | null;
  /** About the call itself; absent when none was made, or nothing was kept of it. */
  readonly call?: { readonly latencyMs: number; readonly limitPerSecond: number | null };
}

/** A delivery under lock, with its attempts. */
export interface Held {
  readonly delivery: HeldDelivery & {
    readonly id: DeliveryId;
    readonly channel: string;
    readonly provider: string;
    readonly recipient: string;
    readonly producerId: ProducerId;
    /** What the provider has reported so far. */
    readonly receipt: Reported | null;
  };
  readonly attempts: readonly (HeldAttempt & { readonly recipient: string })[];
}

/** A decided settlement, with what it was decided on. */
export interface Write {
  readonly settlement: Settlement;
  readonly held: Held;
  readonly change: SettlementChange;
}

interface HeldRow {
  id: DeliveryId;
  channel: string;
  provider: string;
  recipient: string;
  state: State;
  failure: HeldDelivery["failure"];
  on_unknown: HeldDelivery["onUnknown"];
  ladder: number;
  provider_message_id: string | null;
  producer_id: ProducerId;
  receipt_status: ReceiptStatus | null;
  receipt_at: Date | null;
  now: Date;
}

type AttemptRow = Pick<
  Selectable<Attempts>,
  | "delivery_id"
  | "number"
  | "ladder"
  | "generation"
  | "recipient"
  | "claimed_by"
  | "lease_expires_at"
  | "settled_at"
  | "verdict"
  | "reason"
  | "retry_after_s"
  | "provider_message_id"
  | "claimed_at"
  | "counted"
>;

/**
 * Locks the deliveries in the order of their ids (two settlers never wait for each other in a circle), then reads their
 * attempts: in a statement of its own, so that it sees what was committed while it waited for the locks.
 */
export async function lockHeld(
  tx: Transaction<Schema>,
  ids: readonly DeliveryId[],
): Promise<{ held: ReadonlyMap<DeliveryId, Held>; now: Millis }> {
  const locked = sql<HeldRow>`
    select id, producer_id, channel, (select provider from channels c where c.id = deliveries.channel) as provider, recipient,
      state, failure, on_unknown, ladder, provider_message_id, receipt_status, receipt_at, ledger_now() as now
    from deliveries where id = any(${uuidArray(ids)}) order by id for update of deliveries`.execute(tx);
  const read = sql<AttemptRow>`
    select delivery_id, number, ladder, generation, recipient, claimed_at, claimed_by, lease_expires_at, settled_at,
      verdict, reason, counted, retry_after_s, provider_message_id
    from attempts where delivery_id = any(${uuidArray(ids)}) order by delivery_id, number`.execute(tx);
  const [{ rows }, { rows: attempts }] = await Promise.all([locked, read]);
  const byDelivery = Map.groupBy(attempts, (attempt) => attempt.delivery_id);
  const held = new Map<DeliveryId, Held>();
  for (const row of rows) {
    held.set(row.id, { delivery: heldDelivery(row), attempts: (byDelivery.get(row.id) ?? []).map(heldAttempt) });
  }
  return { held, now: rows[0]?.now.getTime() ?? 0 };
}

function heldDelivery(row: HeldRow): Held["delivery"] {
  const { id, channel, provider, recipient, state, failure, ladder } = row;
  return {
    ...{ id, channel, provider, recipient, state, failure, ladder },
    producerId: row.producer_id,
    onUnknown: row.on_unknown,
    providerMessageId: row.provider_message_id,
    receipt: row.receipt_status && row.receipt_at ? { status: row.receipt_status, at: row.receipt_at.getTime() } : null,
  };
}

function heldAttempt(row: AttemptRow): HeldAttempt & { recipient: string } {
  const { verdict, reason, counted, retry_after_s: retryAfterS, provider_message_id: providerMessageId } = row;
  return {
    number: row.number as AttemptNumber,
    ladder: row.ladder,
    generation: row.generation,
    recipient: row.recipient,
    claimedAt: row.claimed_at.getTime(),
    claimedBy: row.claimed_by,
    leaseExpiresAt: row.lease_expires_at.getTime(),
    settled: verdict === null || reason === null ? null : { verdict, reason, counted, retryAfterS, providerMessageId },
  };
}
