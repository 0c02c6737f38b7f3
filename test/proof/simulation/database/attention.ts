import { historyOf, isSuppressed } from "./claims.ts";
import { byText, columnsOf, date, type ItemRow, type Json, type Model, type Result, stripped } from "./model.ts";
import { idsOf } from "./settlements.ts";
import type { Statement } from "./statement.ts";
import type { Tx } from "./tables.ts";

function lockForResolution(model: Model, tx: Tx, [ids]: readonly unknown[]): Result {
  const wanted = new Set(idsOf(ids));
  const deliveries = new Set(
    [...model.items.rows(tx)].filter(({ id }) => wanted.has(id)).map((item) => item.delivery_id),
  );
  const locked = [...deliveries].sort(byText).filter((id) => model.deliveries.lock(tx, id) !== null);
  return { rows: locked.map(() => ({})) };
}

function findItems(model: Model, tx: Tx, [ids, , producerId]: readonly unknown[]): Result {
  const wanted = new Set(idsOf(ids));
  const items = [...model.items.rows(tx)].filter(
    (item) =>
      wanted.has(item.id) && (producerId === null || producerId === undefined || item.producer_id === producerId),
  );
  return {
    rows: items.flatMap((item) => {
      const delivery = model.deliveries.find(tx, item.delivery_id);
      if (!delivery) return [];
      return {
        ...columnsOf(item, "id", "delivery_id", "producer_id", "channel", "reason", "detail", "opened_at", "closed_at"),
        ...columnsOf(item, "resolution", "resolved_by", "note", "lookup_after", "lookups"),
        ...columnsOf(delivery, "state", "expires_at"),
        ...{ assignee: null, snoozed_until: null, now: date(tx.now) },
        provider: model.channels.find(tx, delivery.channel)?.provider ?? "unknown",
        message: model.messages.find(tx, delivery.id)?.request["message"] ?? null,
        suppressed: isSuppressed(model, tx, delivery.channel, delivery.recipient),
        history: historyOf(model, tx, delivery.id),
      };
    }),
  };
}

interface Resolved {
  item_id: string;
  delivery_id: string;
  producer_id: string;
  action: string;
  note: string;
  resolver: string;
  message_id: string | null;
  state: string | null;
  failure: string | null;
  ladder_key: string | null;
}

function writeResolutions(model: Model, tx: Tx, [given]: readonly unknown[]): Result {
  const decided = JSON.parse(given as string) as Resolved[];
  const told: [string, number, string, string, Json][] = [];
  for (const c of decided) {
    const item = model.items.lock(tx, c.item_id);
    if (item?.closed_at === null) {
      const closed = { resolution: c.action, resolved_by: c.resolver, note: c.note, lookup_after: null };
      model.items.update(tx, c.item_id, { closed_at: tx.now, ...closed });
      const data = {
        item: c.item_id,
        action: c.action,
        by: c.resolver,
        note: c.note,
        provider_message_id: c.message_id,
      };
      told.push([c.delivery_id, 1, "attention.resolved", c.producer_id, data]);
    }
    const delivery = model.deliveries.lock(tx, c.delivery_id);
    if (c.state === null || delivery === null) continue;
    model.move(tx, c.delivery_id, {
      ...{
        state: c.state,
        failure: c.failure,
        hold_reason: null,
        next_attempt_at: c.state === "pending" ? tx.now : null,
      },
      ...{
        settled_at: c.state === "pending" ? null : tx.now,
        ladder: delivery.ladder + (c.ladder_key === null ? 0 : 1),
      },
      ...{
        ladder_key: c.ladder_key ?? delivery.ladder_key,
        provider_message_id: delivery.provider_message_id ?? c.message_id,
      },
    });
    const data = { by: c.resolver, action: c.action, failure: c.failure, provider_message_id: c.message_id };
    told.push([c.delivery_id, 2, `delivery.${c.state}`, c.producer_id, data]);
  }
  for (const [id, , type, producerId, data] of told.sort((a, b) => byText(a[0], b[0]) || a[1] - b[1])) {
    model.tell(tx, type, id, producerId, stripped(data));
  }
  return { rows: [], affected: told.length };
}

function claimLookup(model: Model, tx: Tx, [channel, holdMs]: readonly unknown[]): Result {
  const [due] = [...model.items.rows(tx)]
    .filter(
      (item) =>
        item.closed_at === null &&
        item.channel === channel &&
        item.lookup_after !== null &&
        item.lookup_after <= tx.now,
    )
    .filter((item) => !model.items.isLockedByOther(tx, item.id))
    .sort((a, b) => (a.lookup_after ?? 0) - (b.lookup_after ?? 0) || byText(a.id, b.id));
  if (!due) return { rows: [] };
  const spans = [...model.attempts.rows(tx)]
    .filter((attempt) => attempt.delivery_id === due.delivery_id && attempt.verdict === "unknown")
    .sort((a, b) => a.number - b.number)
    .map((attempt) => ({ from: attempt.claimed_at, until: attempt.lease_expires_at }));
  const after = spans.length > 0 ? tx.now + (holdMs as number) : null;
  model.items.update(tx, due.id, { lookup_after: after });
  const { id: itemId, delivery_id: deliveryId, producer_id: producerId, lookups: asked } = due;
  return { rows: [{ itemId, deliveryId, producerId, heldUntil: date(after), asked, spans }] };
}

/** The item, while it is open and its claim is still the one that is given back. */
function claimed(model: Model, tx: Tx, id: unknown, heldUntil: unknown): ItemRow | null {
  const item = model.items.lock(tx, id as string);
  return item && item.closed_at === null && item.lookup_after === Date.parse(heldUntil as string) ? item : null;
}

function recordLookup(model: Model, tx: Tx, parameters: readonly unknown[]): Result {
  const [againInMs, id, , heldUntil, found, note] = parameters;
  const item = claimed(model, tx, id, heldUntil);
  if (!item) return { rows: [] };
  const after = againInMs === null ? null : tx.now + (againInMs as number);
  model.items.update(tx, item.id, { lookups: item.lookups + 1, lookup_after: after });
  model.tell(tx, "attention.looked_up", item.delivery_id, item.producer_id, { item: item.id, found, note });
  return { rows: [{}] };
}

function releaseLookup(model: Model, tx: Tx, [id, , heldUntil]: readonly unknown[]): Result {
  const item = claimed(model, tx, id, heldUntil);
  if (item) model.items.update(tx, item.id, { lookup_after: tx.now });
  return { rows: [], affected: item ? 1 : 0 };
}

export const ATTENTION: readonly Statement[] = [
  ["select from deliveries where id in (select delivery_id from attention_items", lockForResolution],
  ["m.request -> 'message' as message", findItems],
  ["with decided as (", writeResolutions],
  ["json_array_length(asked.spans)", claimLookup],
  ["'attention.looked_up'", recordLookup],
  ["update attention_items set lookup_after = ledger_now()", releaseLookup],
];
