import { byText, type DeliveryRow, type Json, type Model, pairKey, type Result } from "./model.ts";
import type { Statement } from "./statement.ts";
import { Blocked, type Tx } from "./tables.ts";

type Posted = Pick<
  DeliveryRow,
  "id" | "producer_id" | "name" | "request_hash" | "channel" | "recipient" | "on_unknown"
> & { readonly deliver_at: string | null; readonly expires_at: string | null; readonly request: Json };

const named = (
  model: Model,
  tx: Tx,
  { producer_id, name }: { producer_id: string; name: string },
): DeliveryRow | undefined => {
  for (const { row, by } of model.deliveries.uncommitted(tx)) {
    if (row.producer_id === producer_id && row.name === name && model.deliveries.find(null, row.id) === null)
      throw new Blocked(by);
  }
  return model.deliveries.rows(tx).find((row) => row.producer_id === producer_id && row.name === name);
};

const at = (text: string | null): number | null => (text === null ? null : Date.parse(text));

function insertNew(model: Model, tx: Tx, [given]: readonly unknown[]): Result {
  const posted = (JSON.parse(given as string) as Posted[]).sort(
    (a, b) => byText(a.producer_id, b.producer_id) || byText(a.name, b.name),
  );
  const inserted: Json[] = [];
  for (const one of posted) {
    const deliverAt = at(one.deliver_at);
    const expiresAt = at(one.expires_at);
    if ((expiresAt !== null && expiresAt <= tx.now) || named(model, tx, one)) continue;
    const { id, producer_id, name, request_hash, channel, recipient, on_unknown, request } = one;
    const isLater = deliverAt !== null && deliverAt > tx.now;
    model.deliveries.put(tx, id, {
      ...{ id, producer_id, name, request_hash, channel, recipient, on_unknown },
      ...{ deliver_at: deliverAt, expires_at: expiresAt },
      ...{ accepted_at: tx.now, state: "pending", failure: null, hold_reason: isLater ? "scheduled" : null },
      ...{ next_attempt_at: isLater ? deliverAt : tx.now, attempt_count: 0, ladder: 1, ladder_key: "fresh" },
      ...{ in_doubt: false, provider_message_id: null, receipt_status: null, receipt_at: null, settled_at: null },
    });
    model.messages.put(tx, id, { delivery_id: id, request });
    model.tell(tx, "delivery.accepted", id, producer_id, { name, channel });
    inserted.push({ id });
  }
  return { rows: inserted };
}

function readKnown(model: Model, tx: Tx, [given]: readonly unknown[]): Result {
  const wanted = JSON.parse(given as string) as { producer_id: string; name: string }[];
  const rows = [...model.deliveries.rows(tx)].filter((row) =>
    wanted.some(({ producer_id, name }) => row.producer_id === producer_id && row.name === name),
  );
  return {
    rows: rows.map(({ id, producer_id, name, state, request_hash }) => ({
      ...{ producer_id, name, id, state, request_hash: Buffer.from(request_hash, "hex") },
      ...{ request: model.messages.find(tx, id)?.request ?? null, outcome: null },
    })),
  };
}

function cancel(model: Model, tx: Tx, [id, producerId, by]: readonly unknown[]): Result {
  const seen = model.deliveries.find(tx, id as string);
  if (!seen || seen.producer_id !== producerId || seen.state !== "pending" || seen.in_doubt) return { rows: [] };
  const row = model.deliveries.lock(tx, seen.id) as DeliveryRow;
  model.move(tx, row.id, { state: "cancelled", next_attempt_at: null, hold_reason: null, settled_at: tx.now });
  model.tell(tx, "delivery.cancelled", row.id, row.producer_id, { by });
  return { rows: [{ id: row.id }] };
}

function freezeBodies(model: Model, tx: Tx, [given]: readonly unknown[]): Result {
  const rows = JSON.parse(given as string) as { delivery_id: string; generation: number; body: string }[];
  for (const row of rows) model.bodies.put(tx, pairKey(row.delivery_id, row.generation), row);
  return { rows: [], affected: rows.length };
}

export const INTAKE: readonly Statement[] = [
  ["insert into messages (delivery_id, producer_id, request)", insertNew],
  ["from wanted join tombstones", readKnown],
  ["'delivery.cancelled'", cancel],
  ["insert into request_bodies", freezeBodies],
];
