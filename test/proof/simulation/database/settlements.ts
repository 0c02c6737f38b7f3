import { attemptsOf } from "./claims.ts";
import {
  byText,
  columnsOf,
  date,
  type ItemRow,
  type Json,
  type Model,
  pairKey,
  type Result,
  stripped,
} from "./model.ts";
import type { Statement } from "./statement.ts";
import { Blocked, type Tx } from "./tables.ts";

/** An array of ids in PostgreSQL's text form. */
export const idsOf = (array: unknown): string[] => {
  const inner = (array as string).slice(1, -1);
  return inner === "" ? [] : inner.split(",").sort(byText);
};

function lockHeld(model: Model, tx: Tx, [ids]: readonly unknown[]): Result {
  const rows: Json[] = [];
  for (const wanted of new Set(idsOf(ids))) {
    const row = model.deliveries.lock(tx, wanted);
    if (row === null) continue;
    rows.push({
      ...columnsOf(row, "id", "producer_id", "channel", "recipient", "state", "failure", "on_unknown", "ladder"),
      ...columnsOf(row, "provider_message_id", "receipt_status", "receipt_at"),
      provider: model.channels.find(tx, row.channel)?.provider ?? null,
      now: date(tx.now),
    });
  }
  return { rows };
}

function readAttempts(model: Model, tx: Tx, [ids]: readonly unknown[]): Result {
  const rows = [...new Set(idsOf(ids))].flatMap((id) => attemptsOf(model, tx, id));
  return {
    rows: rows.map((row) => ({
      ...columnsOf(row, "delivery_id", "number", "ladder", "generation", "recipient", "claimed_at", "claimed_by"),
      ...columnsOf(row, "lease_expires_at", "settled_at", "verdict", "reason", "counted", "retry_after_s"),
      ...columnsOf(row, "provider_message_id"),
    })),
  };
}

interface Verdict {
  delivery_id: string;
  producer_id: string;
  number: number;
  verdict: string;
  reason: string;
  counted: boolean;
  phase: string | null;
  status_code: number | null;
  error_code: string | null;
  provider_message_id: string | null;
  retry_after_s: number | null;
  evidence: string | null;
  state: string | null;
  failure: string | null;
  next_attempt_ms: number | null;
  hold_reason: string | null;
  in_doubt: boolean;
  moves: boolean;
  writes: boolean;
  event: string;
}

function writeVerdicts(model: Model, tx: Tx, [given]: readonly unknown[]): Result {
  const verdicts = JSON.parse(given as string) as Verdict[];
  for (const v of verdicts) {
    writeAttempt(model, tx, v);
    moveDelivery(model, tx, v);
    const { verdict, reason, phase, status_code, error_code, provider_message_id, failure, evidence } = v;
    const next_attempt_at = v.next_attempt_ms === null ? null : new Date(v.next_attempt_ms).toISOString();
    const data = {
      attempt: v.number,
      verdict,
      reason,
      phase,
      status_code,
      error_code,
      provider_message_id,
      failure,
      next_attempt_at,
      evidence,
    };
    model.tell(tx, v.event, v.delivery_id, v.producer_id, stripped(data));
  }
  return { rows: [], affected: verdicts.length };
}

function writeAttempt(model: Model, tx: Tx, v: Verdict): void {
  const key = pairKey(v.delivery_id, v.number);
  const attempt = model.attempts.lock(tx, key);
  if (!v.writes || attempt === null) return;
  model.settle(tx, key, {
    ...{ verdict: v.verdict, reason: v.reason, counted: v.counted, retry_after_s: v.retry_after_s },
    provider_message_id: v.provider_message_id ?? attempt.provider_message_id,
    settled_at: attempt.settled_at ?? tx.now,
    ...{ evidence: v.evidence, evidence_at: v.evidence === null ? null : tx.now },
  });
}

function moveDelivery(model: Model, tx: Tx, v: Verdict): void {
  const delivery = model.deliveries.lock(tx, v.delivery_id);
  if (delivery === null) return;
  model.move(tx, v.delivery_id, {
    in_doubt: v.in_doubt,
    provider_message_id: delivery.provider_message_id ?? v.provider_message_id,
    ...(v.moves && {
      ...{ state: v.state ?? "", failure: v.failure, next_attempt_at: v.next_attempt_ms, hold_reason: v.hold_reason },
      settled_at: v.state === "pending" ? null : tx.now,
    }),
  });
}

/** The open item of a delivery; waits for one that is being opened. */
export function openItemOf(model: Model, tx: Tx, deliveryId: string): ItemRow | undefined {
  for (const { row, by } of model.items.uncommitted(tx)) {
    if (row.delivery_id === deliveryId && model.items.find(null, row.id) === null) throw new Blocked(by);
  }
  return model.items.rows(tx).find((row) => row.delivery_id === deliveryId && row.closed_at === null);
}

/** An item is open already: what contradicts the ledger is added to it. */
export function openItem(
  model: Model,
  tx: Tx,
  item: Pick<ItemRow, "id" | "delivery_id" | "producer_id" | "channel" | "reason" | "detail">,
): void {
  const open = openItemOf(model, tx, item.delivery_id);
  if (!open) {
    const unresolved = { closed_at: null, resolution: null, resolved_by: null, note: null };
    model.items.put(tx, item.id, { ...item, opened_at: tx.now, ...unresolved, lookup_after: tx.now, lookups: 0 });
  } else if (item.detail !== null) {
    const further = (open.detail?.["further"] as readonly Json[] | undefined) ?? [];
    model.items.update(tx, open.id, { detail: { ...open.detail, further: [...further, item.detail] } });
  }
}

function openItems(model: Model, tx: Tx, [given]: readonly unknown[]): Result {
  for (const item of JSON.parse(given as string) as ItemRow[]) openItem(model, tx, item);
  return { rows: [], affected: 1 };
}

/** By the gate: an item that is open already stays as it is. */
function openPlainItem(
  model: Model,
  tx: Tx,
  [id, deliveryId, producerId, channel, reason]: readonly unknown[],
): Result {
  const item = { id, delivery_id: deliveryId, producer_id: producerId, channel, reason, detail: null } as ItemRow;
  openItem(model, tx, item);
  return { rows: [], affected: 1 };
}

function closeItems(model: Model, tx: Tx, [given]: readonly unknown[]): Result {
  const settled = JSON.parse(given as string) as { delivery_id: string; data: Json }[];
  for (const { delivery_id, data } of settled) {
    const open = model.items.rows(tx).find((row) => row.delivery_id === delivery_id && row.closed_at === null);
    if (!open) continue;
    model.items.update(tx, open.id, {
      closed_at: tx.now,
      resolution: "evidence",
      resolved_by: "ledger",
      lookup_after: null,
    });
    model.tell(tx, "attention.closed", delivery_id, open.producer_id, { ...data, item: open.id });
  }
  return { rows: [], affected: 0 };
}

export const SETTLEMENTS: readonly Statement[] = [
  ["order by id for update of deliveries", lockHeld],
  ["from attempts where delivery_id = any(", readAttempts],
  ["with verdict as (", writeVerdicts],
  ["as opened (id uuid", openItems],
  ["insert into attention_items (id", openPlainItem],
  ["'attention.closed'", closeItems],
];
