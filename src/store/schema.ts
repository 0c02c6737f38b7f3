import type { ColumnType, Generated, Kysely } from "kysely";
import type {
  DeliveryId,
  Failure,
  HoldReason,
  LadderKey,
  OnUnknown,
  ProducerId,
  ReceiptStatus,
  Resolution,
  State,
} from "../ledger/delivery.ts";
import type { QuietHours } from "../ledger/quiet-hours.ts";
import type { Phase, Verdict } from "../ledger/verdict.ts";

/** JSON as text going in (the caller serialises), as a parsed value coming out. */
type Json<T = unknown> = ColumnType<T, string, string>;
type JsonOrNull<T> = ColumnType<T | null, string | null | undefined, string | null>;
/** Written by the database's clock unless given. */
type Stamped = ColumnType<Date, Date | undefined, Date>;

export interface Producers {
  id: ProducerId;
  name: string;
  quiet_hours: JsonOrNull<QuietHours>;
  created_at: Stamped;
}

export interface ApiKeys {
  id: string;
  producer_id: ProducerId | null;
  name: string;
  key_hash: Buffer;
  key_hint: string;
  scopes: string[];
  created_at: Stamped;
  revoked_at: Date | null;
}

export interface Channels {
  id: string;
  provider: string;
  paused_at: Date | null;
  paused_until: Date | null;
  pause_reason: string | null;
  pause_note: string | null;
  paused_by: string | null;
  breaker_opened_at: Date | null;
  breaker_open_until: Date | null;
  recent_calls: Generated<string>;
  paced_until: Date | null;
  rate_tat: Date | null;
  rate_free_at: Date | null;
  learned_rate: number | null;
  last_webhook_at: Date | null;
  credential_fingerprint: string | null;
  created_at: Stamped;
}

export interface Deliveries {
  id: DeliveryId;
  producer_id: ProducerId;
  name: string;
  request_hash: Buffer;
  schedule: string | null;
  due_at: Date | null;
  channel: string;
  recipient: string;
  on_unknown: OnUnknown;
  metadata: Json<Record<string, unknown> | null>;
  deliver_at: Date | null;
  expires_at: Date | null;
  accepted_at: Stamped;
  state: Generated<State>;
  failure: Failure | null;
  hold_reason: HoldReason | null;
  next_attempt_at: Date | null;
  attempt_count: Generated<number>;
  ladder: Generated<number>;
  ladder_key: Generated<LadderKey>;
  /** The JSON value null says none; an SQL null says nothing. Both are read as null. */
  quiet_hours: JsonOrNull<QuietHours>;
  in_doubt: Generated<boolean>;
  provider_message_id: string | null;
  receipt_status: ReceiptStatus | null;
  receipt_at: Date | null;
  settled_at: Date | null;
}

export interface Messages {
  delivery_id: DeliveryId;
  producer_id: ProducerId;
  request: Json<Record<string, unknown>>;
}

export interface RequestBodies {
  delivery_id: DeliveryId;
  producer_id: ProducerId;
  generation: number;
  body: string;
}

export interface Attempts {
  delivery_id: DeliveryId;
  producer_id: ProducerId;
  number: number;
  ladder: number;
  generation: number;
  idempotency_key: string;
  recipient: string;
  claimed_at: Stamped;
  claimed_by: string;
  lease_expires_at: Date;
  settled_at: Date | null;
  verdict: Verdict | null;
  reason: string | null;
  counted: Generated<boolean>;
  phase: Phase | null;
  status_code: number | null;
  error_code: string | null;
  error_message: string | null;
  provider_message_id: string | null;
  retry_after_s: number | null;
  evidence_at: Date | null;
  evidence: string | null;
}

export interface AttentionItems {
  id: string;
  delivery_id: DeliveryId;
  producer_id: ProducerId;
  channel: string;
  reason: string;
  opened_at: Stamped;
  assignee: string | null;
  snoozed_until: Date | null;
  closed_at: Date | null;
  resolution: Resolution | null;
  resolved_by: string | null;
  note: string | null;
  detail: JsonOrNull<Record<string, unknown>>;
  lookup_after: ColumnType<Date | null, Date | null | undefined, Date | null>;
  lookups: Generated<number>;
}

export interface Receipts {
  id: string;
  channel: string;
  event_id: string;
  type: string;
  status: ReceiptStatus | null;
  occurred_at: Date;
  received_at: Stamped;
  delivery_id: DeliveryId | null;
  producer_id: ProducerId | null;
  provider_message_id: string | null;
  detail: Json;
  proves_acceptance: Generated<boolean>;
  name: string | null;
  suppresses: string | null;
  recipients: JsonOrNull<readonly string[]>;
  look_again_at: Date | null;
}

export interface Suppressions {
  channel: string;
  recipient: string;
  reason: string;
  created_by: string;
  created_at: Stamped;
}

export interface RecipientMoves {
  channel: string;
  recipient: string;
  moved_to: string;
  learned_at: Stamped;
}

export interface RecipientPace {
  channel: string;
  recipient: string;
  calls: Date[];
  turns: Date[];
  forget_at: Date;
}

export interface CallCounts {
  minute: Date;
  channel: string;
  verdict: Verdict;
  shard: number;
  calls: number;
  latency_ms_sum: string;
  latency_ms_max: number;
}

export interface Tombstones {
  producer_id: ProducerId;
  name: string;
  request_hash: Buffer;
  delivery_id: DeliveryId;
  outcome: Json;
  forget_at: Date;
}

export interface Events {
  tx: Generated<string>;
  id: Generated<string>;
  at: Stamped;
  type: string;
  delivery_id: DeliveryId | null;
  producer_id: ProducerId;
  data: Json<Record<string, unknown>>;
}

export interface ConsoleSessions {
  token_hash: Buffer;
  key_hash: Buffer;
  operator: string;
  created_at: Stamped;
  used_at: Stamped;
}

export interface Schema {
  producers: Producers;
  api_keys: ApiKeys;
  channels: Channels;
  deliveries: Deliveries;
  messages: Messages;
  request_bodies: RequestBodies;
  attempts: Attempts;
  attention_items: AttentionItems;
  receipts: Receipts;
  suppressions: Suppressions;
  recipient_moves: RecipientMoves;
  recipient_pace: RecipientPace;
  call_counts: CallCounts;
  tombstones: Tombstones;
  events: Events;
  console_sessions: ConsoleSessions;
}

export type Db = Kysely<Schema>;
