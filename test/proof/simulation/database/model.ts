import { DatabaseError, Table, type Tx } from "./tables.ts";

export type Json = Readonly<Record<string, unknown>>;

export interface DeliveryRow {
  id: string;
  producer_id: string;
  name: string;
  request_hash: string;
  channel: string;
  recipient: string;
  on_unknown: string;
  deliver_at: number | null;
  expires_at: number | null;
  accepted_at: number;
  state: string;
  failure: string | null;
  hold_reason: string | null;
  next_attempt_at: number | null;
  attempt_count: number;
  ladder: number;
  ladder_key: string;
  in_doubt: boolean;
  provider_message_id: string | null;
  receipt_status: string | null;
  receipt_at: number | null;
  settled_at: number | null;
}

export interface AttemptRow {
  delivery_id: string;
  producer_id: string;
  number: number;
  ladder: number;
  generation: number;
  idempotency_key: string;
  recipient: string;
  claimed_at: number;
  claimed_by: string;
  lease_expires_at: number;
  settled_at: number | null;
  verdict: string | null;
  reason: string | null;
  counted: boolean;
  provider_message_id: string | null;
  retry_after_s: number | null;
  evidence: string | null;
  evidence_at: number | null;
}

export interface ItemRow {
  id: string;
  delivery_id: string;
  producer_id: string;
  channel: string;
  reason: string;
  detail: Json | null;
  opened_at: number;
  closed_at: number | null;
  resolution: string | null;
  resolved_by: string | null;
  note: string | null;
  lookup_after: number | null;
  lookups: number;
}

export interface ReceiptRow {
  channel: string;
  event_id: string;
  type: string;
  status: string | null;
  proves_acceptance: boolean;
  occurred_at: number;
  received_at: number;
  delivery_id: string | null;
  producer_id: string | null;
  provider_message_id: string | null;
  name: string | null;
  suppresses: string | null;
  recipients: unknown;
  detail: unknown;
  look_again_at: number | null;
}

export interface ChannelRow {
  id: string;
  provider: string;
  paused_at: number | null;
  paused_until: number | null;
  pause_reason: string | null;
  pause_note: string | null;
  paused_by: string | null;
  breaker_opened_at: number | null;
  breaker_open_until: number | null;
  recent_calls: string;
  paced_until: number | null;
  learned_rate: number | null;
  credential_fingerprint: string | null;
}

export interface EventRow {
  id: number;
  at: number;
  type: string;
  delivery_id: string | null;
  producer_id: string;
  data: Json;
}

/** What a statement answers: as the driver would give it. */
export interface Result {
  readonly rows: readonly Json[];
  /** Rows written, where the statement writes. */
  readonly affected?: number;
}

export const ADMIN = "00000000-0000-4000-8000-000000000001";

/**
 * The ledger's tables in memory, as far as the pipeline, the receipts and the resolutions use them, with the constraints and
 * triggers of the migrations.
 */
export class Model {
  readonly deliveries = new Table<DeliveryRow>();
  readonly messages = new Table<{ readonly delivery_id: string; readonly request: Json }>();
  readonly bodies = new Table<{ readonly delivery_id: string; readonly generation: number; readonly body: string }>();
  readonly attempts = new Table<AttemptRow>();
  readonly items = new Table<ItemRow>();
  readonly receipts = new Table<ReceiptRow>();
  readonly suppressions = new Table<{ readonly channel: string; readonly recipient: string }>();
  readonly channels = new Table<ChannelRow>();
  readonly events = new Table<EventRow>();
  #events = 0;

  tell(tx: Tx, type: string, deliveryId: string | null, producerId: string, data: Json): void {
    this.#events += 1;
    const row = { id: this.#events, at: tx.now, type, delivery_id: deliveryId, producer_id: producerId, data };
    this.events.put(tx, String(row.id), row);
  }

  /** An update of a delivery, past the guards of the schema. */
  move(tx: Tx, id: string, change: Partial<DeliveryRow>): void {
    const before = this.deliveries.lock(tx, id);
    if (before === null) return;
    const after = this.deliveries.update(tx, id, change);
    if (after.state !== before.state && !FOLLOWS[before.state]?.includes(after.state)) {
      throw refused(`delivery ${id}: ${after.state} does not follow ${before.state}`);
    }
    const { state } = after;
    const isWhole =
      (state === "pending") === (after.next_attempt_at !== null) &&
      (state === "failed") === (after.failure !== null) &&
      (state === "pending" || state === "claimed") === (after.settled_at === null) &&
      !(CLOSED.includes(state) && after.in_doubt);
    if (!isWhole) throw new DatabaseError("23514", `delivery ${id}: a check refuses ${JSON.stringify(after)}`);
  }

  settle(tx: Tx, key: string, change: Partial<AttemptRow>): void {
    const before = this.attempts.lock(tx, key);
    if (before === null) return;
    const after = this.attempts.update(tx, key, change);
    if (before.settled_at === null) return;
    if (after.settled_at !== before.settled_at) throw refused(`attempt ${key}: settled once`);
    if (after.verdict !== before.verdict && (before.verdict !== "unknown" || after.evidence === null)) {
      throw refused(`attempt ${key}: ${before.verdict} is not replaced by ${after.verdict}`);
    }
  }
}

const refused = (what: string): DatabaseError => new DatabaseError("23001", what);

const CLOSED = ["cancelled", "expired", "suppressed"];
/** The trigger deliveries_guard. */
const FOLLOWS: Readonly<Record<string, readonly string[]>> = {
  pending: ["claimed", "sent", "failed", "needs_attention", ...CLOSED],
  claimed: ["pending", "sent", "failed", "needs_attention"],
  needs_attention: ["pending", "sent", "failed"],
  failed: ["pending", "sent", "needs_attention"],
};

export const pairKey = (a: string, b: string | number): string => `${a} ${b}`;
export const date = (at: number | null): Date | null => (at === null ? null : new Date(at));
/** These columns of a row, as the driver gives them: times as dates. */
export const columnsOf = <Row>(row: Row, ...columns: readonly (keyof Row & string)[]): Json =>
  Object.fromEntries(
    columns.map((column) => [column, TIME.test(column) ? date(row[column] as number | null) : row[column]]),
  );
const TIME = /_(at|until|after)$/;
export const byText = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

/** `json_strip_nulls` of an object's members. */
export const stripped = (members: Json): Json =>
  Object.fromEntries(Object.entries(members).filter(([, value]) => value !== null && value !== undefined));
