import { sql, type Transaction } from "kysely";
import { type Doubtful, judge, resolvedTo } from "../ledger/attention.ts";
import type { CapabilityOf } from "../ledger/capability.ts";
import type { Action, DeliveryId, ProducerId, Resolution } from "../ledger/delivery.ts";
import { uuidArray } from "./arrays.ts";
import { findItems, type ItemRow } from "./attention.ts";
import type { Db, Schema } from "./schema.ts";

/** A person's decision about one item. */
export interface Decided {
  readonly itemId: string;
  readonly action: Action;
  readonly note: string;
  /** Who decides. */
  readonly by: string;
  /** The provider's id of the message, where the person has found it (`mark_sent`). */
  readonly providerMessageId: string | null;
  readonly acknowledgesDuplicateRisk: boolean;
}

/** What became of a decision, after the commit. */
export type Resolved =
  | { readonly kind: "resolved"; readonly deliveryId: DeliveryId; readonly channel: string; readonly attempts: boolean }
  | { readonly kind: "not_found" }
  /** Somebody, or evidence, was first. */
  | {
      readonly kind: "already_resolved";
      readonly deliveryId: DeliveryId;
      readonly action: Resolution;
      readonly by: string;
      readonly at: Date;
      readonly note: string | null;
    }
  | { readonly kind: "not_possible"; readonly why: string }
  /** It may send a second message, and that was not acknowledged. */
  | { readonly kind: "duplicate_risk"; readonly risk: string };

interface Write {
  readonly decided: Decided;
  readonly item: ItemRow;
}

/**
 * Resolves items, in one commit; the first decision about an item wins. Each is judged under its delivery's lock, on what
 * the database then holds. Answers one result a decision, in order. `producerId` null: whosever they are.
 */
export async function resolveItems(
  db: Db,
  decisions: readonly Decided[],
  producerId: ProducerId | null,
  capabilityOf: CapabilityOf,
): Promise<readonly Resolved[]> {
  return await db.transaction().execute(async (tx) => {
    const ids = [...new Set(decisions.map(({ itemId }) => itemId))];
    await sql`
      select from deliveries where id in (select delivery_id from attention_items where id = any(${uuidArray(ids)}))
      order by id for update`.execute(tx);
    // In a statement of its own: it sees what was committed while the locks were waited for.
    const items = await findItems(tx, ids, producerId);
    const writes = new Map<string, Write>();
    const results = decisions.map((decided): Resolved => {
      const item = items.get(decided.itemId);
      if (!item) return { kind: "not_found" };
      const first = writes.get(item.id);
      if (first) return alreadyBy(first);
      const result = decide(decided, item, capabilityOf);
      if (result.kind === "resolved") writes.set(item.id, { decided, item });
      return result;
    });
    if (writes.size > 0) await writeResolutions(tx, [...writes.values()]);
    return results;
  });
}

function alreadyBy({ decided: { action, by, note }, item }: Write): Resolved {
  return { kind: "already_resolved", deliveryId: item.delivery_id, action, by, at: item.now, note };
}

function decide(decided: Decided, item: ItemRow, capabilityOf: CapabilityOf): Resolved {
  if (item.closed_at && item.resolution) {
    const { resolution: action, closed_at: at, note, delivery_id: deliveryId } = item;
    return { kind: "already_resolved", deliveryId, action, by: item.resolved_by ?? "ledger", at, note };
  }
  const judged = judge(decided.action, doubtfulOf(item), capabilityOf(item.provider), item.now.getTime());
  if ("why" in judged) return { kind: "not_possible", why: judged.why };
  if (judged.mayDuplicate && !decided.acknowledgesDuplicateRisk) return { kind: "duplicate_risk", risk: judged.risk };
  const attempts = resolvedTo(decided.action, item.state)?.state === "pending";
  return { kind: "resolved", deliveryId: item.delivery_id, channel: item.channel, attempts };
}

/** An item as the rules of the core want it. */
export const doubtfulOf = (item: ItemRow): Doubtful => ({
  state: item.state,
  reason: item.reason,
  expiresAt: item.expires_at?.getTime() ?? null,
  suppressed: item.suppressed,
  history: item.history,
});

/** Items closed, deliveries moved, and who did what and why, in one statement. The locks are held. */
async function writeResolutions(tx: Transaction<Schema>, writes: readonly Write[]): Promise<void> {
  const rows = writes.map(({ decided, item }) => {
    const to = resolvedTo(decided.action, item.state);
    return {
      item_id: item.id,
      delivery_id: item.delivery_id,
      producer_id: item.producer_id,
      action: decided.action,
      note: decided.note,
      resolver: decided.by,
      message_id: decided.action === "mark_sent" ? decided.providerMessageId : null,
      state: to?.state ?? null,
      failure: to?.failure ?? null,
      ladder_key: to?.ladderKey ?? null,
    };
  });
  await sql`
    with decided as (
      select * from json_to_recordset(${JSON.stringify(rows)}::text::json) as decided (
        item_id uuid, delivery_id uuid, producer_id uuid, action text, note text, resolver text, message_id text,
        state text, failure text, ladder_key text)
    ), closed as (
      update attention_items i
      set closed_at = ledger_now(), resolution = c.action, resolved_by = c.resolver, note = c.note, lookup_after = null
      from decided c where i.id = c.item_id and i.producer_id = c.producer_id and i.closed_at is null
      returning i.id
    ), moved as (
      update deliveries d
      set state = c.state, failure = c.failure, hold_reason = null,
        next_attempt_at = case when c.state = 'pending' then ledger_now() end,
        settled_at = case when c.state <> 'pending' then ledger_now() end,
        ladder = d.ladder + case when c.ladder_key is not null then 1 else 0 end,
        ladder_key = coalesce(c.ladder_key, d.ladder_key),
        provider_message_id = coalesce(d.provider_message_id, c.message_id)
      from decided c where d.id = c.delivery_id and d.producer_id = c.producer_id and c.state is not null
      returning d.id
    ), told as (
      select 1 as place, 'attention.resolved' as type, c.delivery_id, c.producer_id, json_build_object(
        'item', c.item_id, 'action', c.action, 'by', c.resolver, 'note', c.note, 'provider_message_id', c.message_id) as data
      from decided c join closed on closed.id = c.item_id
      union all
      select 2, 'delivery.' || c.state, c.delivery_id, c.producer_id, json_build_object(
        'by', c.resolver, 'action', c.action, 'failure', c.failure, 'provider_message_id', c.message_id)
      from decided c join moved on moved.id = c.delivery_id
    )
    insert into events (type, delivery_id, producer_id, data)
    select type, delivery_id, producer_id, json_strip_nulls(data) from told order by delivery_id, place`.execute(tx);
}

/** What people do with an item besides resolving it. */
export type Handling =
  | { readonly kind: "assigned"; readonly assignee: string | null }
  | { readonly kind: "snoozed"; readonly until: Date | null }
  | { readonly kind: "noted"; readonly note: string };

/** Writes it down, with who and when. False when the item is not open, or not visible. */
export async function handleItem(
  db: Db,
  itemId: string,
  producerId: ProducerId | null,
  by: string,
  handling: Handling,
): Promise<boolean> {
  const { kind, ...data } = handling;
  const change =
    handling.kind === "assigned"
      ? sql`assignee = ${handling.assignee}`
      : handling.kind === "snoozed"
        ? sql`snoozed_until = ${handling.until}`
        : sql`assignee = assignee`;
  const { rows } = await sql<{ id: string }>`
    with changed as (
      update attention_items set ${change}
      where id = ${itemId} and closed_at is null and (${producerId}::uuid is null or producer_id = ${producerId})
      returning id, delivery_id, producer_id
    ), told as (
      insert into events (type, delivery_id, producer_id, data)
      select ${`attention.${kind}`}, delivery_id, producer_id,
        (${JSON.stringify({ ...data, by })}::text::jsonb || jsonb_build_object('item', id))::json
      from changed
    )
    select id from changed`.execute(db);
  return rows.length === 1;
}
