import { sql } from "kysely";
import type { DeliveryId, Millis, ProducerId } from "../ledger/delivery.ts";
import type { Db } from "./schema.ts";

/** A doubtful delivery about which its provider is to be asked. While the claim holds, nobody else asks. */
export interface DueLookup {
  readonly itemId: string;
  readonly deliveryId: DeliveryId;
  readonly producerId: ProducerId;
  /** When the claim lapses. */
  readonly heldUntil: Date;
  /** How often it was asked before. */
  readonly asked: number;
  /** From each doubtful claim to the end of its lease. */
  readonly spans: readonly { readonly from: Millis; readonly until: Millis }[];
}

/**
 * The open item of a channel that is due for a look-up the longest, claimed for `holdMs`; null: none is due. Items without a
 * doubtful attempt have nothing to ask about: they are never due again.
 */
export async function claimLookup(db: Db, channel: string, holdMs: number): Promise<DueLookup | null> {
  for (;;) {
    const claimed = await claimNext(db, channel, holdMs);
    if (claimed === null || claimed.spans.length > 0) return claimed;
  }
}

async function claimNext(db: Db, channel: string, holdMs: number): Promise<DueLookup | null> {
  const { rows } = await sql<DueLookup>`
    with due as (
      select id, producer_id, delivery_id from attention_items
      where closed_at is null and channel = ${channel} and lookup_after <= ledger_now()
      order by lookup_after, id limit 1
      for update skip locked
    ), asked as (
      select due.*, (
        select coalesce(json_agg(json_build_object(
          'from', floor(extract(epoch from a.claimed_at) * 1000),
          'until', floor(extract(epoch from a.lease_expires_at) * 1000)) order by a.number), '[]')
        from attempts a
        where a.delivery_id = due.delivery_id and a.producer_id = due.producer_id and a.verdict = 'unknown') as spans
      from due
    )
    update attention_items i
    set lookup_after = case when json_array_length(asked.spans) > 0
      then ledger_now() + ${holdMs}::double precision * interval '1 millisecond' end
    from asked
    where i.id = asked.id and i.producer_id = asked.producer_id
    returning i.id as "itemId", i.delivery_id as "deliveryId", i.producer_id as "producerId",
      i.lookup_after as "heldUntil", i.lookups as asked, asked.spans`.execute(db);
  return rows[0] ?? null;
}

/**
 * Writes down what was found, if the item is still open and the claim still ours: in its history, and when to ask again
 * (null: never). Returns whether it was.
 */
export async function recordLookup(
  db: Db,
  { itemId, producerId, heldUntil }: DueLookup,
  said: { readonly found: string; readonly note: string },
  againInMs: Millis | null,
): Promise<boolean> {
  const { rows } = await sql`
    with answered as (
      update attention_items
      set lookups = lookups + 1,
        lookup_after = ledger_now() + ${againInMs}::double precision * interval '1 millisecond'
      where id = ${itemId} and producer_id = ${producerId} and closed_at is null
        and lookup_after = ${heldUntil.toISOString()}::timestamptz
      returning id, delivery_id, producer_id
    )
    insert into events (type, delivery_id, producer_id, data)
    select 'attention.looked_up', delivery_id, producer_id,
      json_build_object('item', id, 'found', ${said.found}::text, 'note', ${said.note}::text)
    from answered returning id`.execute(db);
  return rows.length === 1;
}

/** Gives a claim back unused: the item is due again. */
export async function releaseLookup(db: Db, { itemId, producerId, heldUntil }: DueLookup): Promise<void> {
  await sql`
    update attention_items set lookup_after = ledger_now()
    where id = ${itemId} and producer_id = ${producerId} and closed_at is null
      and lookup_after = ${heldUntil.toISOString()}::timestamptz`.execute(db);
}
