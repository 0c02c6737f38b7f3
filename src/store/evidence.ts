import { sql, type Transaction } from "kysely";
import { uuidv7 } from "uuidv7";
import type { CapabilityOf } from "../ledger/capability.ts";
import type { DeliveryId, Millis, ProducerId, ReceiptStatus } from "../ledger/delivery.ts";
import { type Attachment, attach } from "../ledger/evidence.ts";
import { standing } from "../ledger/receipt.ts";
import { ownOutcome } from "../ledger/verdict.ts";
import { type Held, lockHeld, type Settlement, type Write } from "./held.ts";
import type { Schema } from "./schema.ts";
import { suppressRecipients } from "./suppress.ts";
import { ADD_TO_OPEN_ITEM, settleWithin } from "./verdicts.ts";

/** A stored receipt that belongs to a delivery. */
export interface Matched {
  readonly channel: string;
  readonly eventId: string;
  /** The provider's own word. */
  readonly type: string;
  readonly status: ReceiptStatus | null;
  readonly provesAcceptance: boolean;
  readonly occurredAt: Millis;
  readonly deliveryId: DeliveryId;
  readonly producerId: ProducerId;
  readonly providerMessageId: string | null;
  readonly suppresses: string | null;
  readonly recipients: readonly string[] | null;
  readonly detail: unknown;
}

/**
 * Applies receipts to their deliveries, within the caller's transaction: the standing receipt, the suppressions, the events,
 * and what they prove about attempts.
 */
export async function attachReceipts(
  tx: Transaction<Schema>,
  receipts: readonly Matched[],
  capabilityOf: CapabilityOf,
): Promise<void> {
  if (receipts.length === 0) return;
  const { held } = await lockHeld(tx, [...new Set(receipts.map(({ deliveryId }) => deliveryId))]);
  await recordReceipts(tx, receipts, held);
  await suppressRecipients(
    tx,
    receipts.flatMap(({ suppresses, recipients, deliveryId }) => {
      const delivery = held.get(deliveryId)?.delivery;
      if (suppresses === null || !delivery || !concerns(recipients, delivery.recipient)) return [];
      return [{ channel: delivery.channel, recipient: delivery.recipient, reason: suppresses, by: "ledger" }];
    }),
  );
  await proveAcceptance(tx, receipts, held, capabilityOf);
}

/** Of several recipients (copies), is it this one? */
const concerns = (recipients: readonly string[] | null, recipient: string): boolean =>
  recipients === null || recipients.some((one) => one.toLowerCase() === recipient.toLowerCase());

/** The receipts as events, and what now stands as each delivery's receipt, whatever the order in which they came. */
async function recordReceipts(
  tx: Transaction<Schema>,
  receipts: readonly Matched[],
  held: ReadonlyMap<DeliveryId, Held>,
): Promise<void> {
  const inOrder = receipts.toSorted((a, b) => a.occurredAt - b.occurredAt);
  const told = inOrder.map((receipt) => ({
    type: `receipt.${receipt.status ?? (receipt.provesAcceptance ? "accepted" : "other")}`,
    delivery_id: receipt.deliveryId,
    producer_id: receipt.producerId,
    data: {
      event_id: receipt.eventId,
      provider_event: receipt.type,
      status: receipt.status,
      occurred_at: new Date(receipt.occurredAt).toISOString(),
      provider_message_id: receipt.providerMessageId,
      detail: receipt.detail,
    },
  }));
  await sql`
    with standing as (
      update deliveries d set receipt_status = r.status, receipt_at = r.at
      from json_to_recordset(${JSON.stringify(changedReceipts(inOrder, held))}::text::json)
        as r (id uuid, producer_id uuid, status text, at timestamptz)
      where d.id = r.id and d.producer_id = r.producer_id
    )
    insert into events (type, delivery_id, producer_id, data)
    select type, delivery_id, producer_id, json_strip_nulls(data)
    from json_to_recordset(${JSON.stringify(told)}::text::json)
      as receipt (type text, delivery_id uuid, producer_id uuid, data json)`.execute(tx);
}

function changedReceipts(receipts: readonly Matched[], held: ReadonlyMap<DeliveryId, Held>) {
  return [...Map.groupBy(receipts, ({ deliveryId }) => deliveryId)].flatMap(([id, ofOne]) => {
    const before = held.get(id)?.delivery.receipt ?? null;
    const after = ofOne.reduce(
      (best, { status, occurredAt: at }) => (status === null ? best : standing(best, { status, at })),
      before,
    );
    if (after === null || after === before) return [];
    return [{ id, producer_id: ofOne[0]?.producerId, status: after.status, at: new Date(after.at) }];
  });
}

/**
 * What the receipts prove about attempts. One message id of a delivery after the other: the second is judged on what the
 * first has changed. `locked`: the deliveries as the caller has just read them, under their locks.
 */
async function proveAcceptance(
  tx: Transaction<Schema>,
  receipts: readonly Matched[],
  locked: ReadonlyMap<DeliveryId, Held> | null,
  capabilityOf: CapabilityOf,
): Promise<void> {
  const proofs = Map.groupBy(
    receipts.filter(({ provesAcceptance }) => provesAcceptance),
    ({ deliveryId, providerMessageId }) => `${deliveryId}/${providerMessageId ?? ""}`,
  );
  const firsts = [...proofs.values()].map((same) => same.toSorted((a, b) => a.occurredAt - b.occurredAt)[0] as Matched);
  const byDelivery = [...Map.groupBy(firsts, ({ deliveryId }) => deliveryId).values()];
  for (let turn = 0; byDelivery.some((ofOne) => ofOne.length > turn); turn += 1) {
    const now = byDelivery.flatMap((ofOne) => ofOne.slice(turn, turn + 1));
    const ids = now.map(({ deliveryId }) => deliveryId);
    const held = (turn === 0 && locked) || (await lockHeld(tx, ids)).held;
    const settlements: Settlement[] = [];
    for (const receipt of now) {
      const of = held.get(receipt.deliveryId);
      if (!of) continue;
      const attachment = attach(of.attempts.map(witnessed), receipt.providerMessageId);
      if (attachment.to === "attempt") settlements.push(acceptanceOf(receipt, attachment.number));
      if (attachment.to === "contradiction") await contradict(tx, receipt, attachment, of);
    }
    if (settlements.length === 0) continue;
    const { writes } = await settleWithin(tx, settlements, capabilityOf);
    await attachWaiting(tx, writes, capabilityOf);
  }
}

const witnessed = ({ number, settled }: Held["attempts"][number]) => ({
  number,
  verdict: settled?.verdict ?? null,
  providerMessageId: settled?.providerMessageId ?? null,
});

const acceptanceOf = (receipt: Matched, number: Settlement["number"]): Settlement => ({
  deliveryId: receipt.deliveryId,
  producerId: receipt.producerId,
  number,
  outcome: {
    ...ownOutcome("unknown", "reported_by_provider"),
    verdict: "accepted",
    providerMessageId: receipt.providerMessageId,
  },
  witness: { source: "receipt" },
  credentials: null,
  answer: null,
});

/**
 * A report that fits nothing the ledger knows: never applied, never dropped. It opens an item, once for each message id; a
 * delivery that waits stops, for its next attempt could be a second message.
 */
async function contradict(
  tx: Transaction<Schema>,
  receipt: Matched,
  { why }: Extract<Attachment, { to: "contradiction" }>,
  { delivery }: Held,
): Promise<void> {
  const detail = {
    why,
    source: "receipt",
    event_id: receipt.eventId,
    status: receipt.status,
    provider_message_id: receipt.providerMessageId,
    held_message_id: delivery.providerMessageId,
  };
  await sql`
    with news as (
      select 1 where not exists (
        select from attention_items i
        cross join lateral jsonb_array_elements(
          jsonb_build_array(i.detail::jsonb) || coalesce(i.detail::jsonb -> 'further', '[]')) said
        where i.delivery_id = ${receipt.deliveryId} and said ? 'why'
          and said ->> 'provider_message_id' is not distinct from ${receipt.providerMessageId}::text)
    ), stopped as (
      update deliveries d
      set state = 'needs_attention', next_attempt_at = null, hold_reason = null, settled_at = ledger_now()
      from news where d.id = ${receipt.deliveryId} and d.state = 'pending'
      returning d.id, d.producer_id
    ), logged as (
      insert into events (type, delivery_id, producer_id, data)
      select 'delivery.needs_attention', id, producer_id, ${JSON.stringify({ reason: "contradiction", ...detail })}::text::json
      from stopped
    )
    insert into attention_items as item (id, delivery_id, producer_id, channel, reason, detail)
    select ${uuidv7()}, ${receipt.deliveryId}, ${receipt.producerId}, ${delivery.channel}, 'contradiction',
      ${JSON.stringify(detail)}::text::json
    from news
    ${ADD_TO_OPEN_ITEM}`.execute(tx);
}

/**
 * Receipts that overtook the answers of these attempts: those that name a message id which is known only now, and those
 * that were matched by their tag while the attempt was open: they prove what the answer does not, or name another message.
 */
export async function attachWaiting(
  tx: Transaction<Schema>,
  writes: readonly Write[],
  capabilityOf: CapabilityOf,
): Promise<void> {
  if (writes.length === 0) return;
  const rows = writes.map(({ settlement, held, change }) => ({
    delivery_id: settlement.deliveryId,
    producer_id: settlement.producerId,
    channel: held.delivery.channel,
    message_id: change.writesVerdict ? settlement.outcome.providerMessageId : null,
    doubtful: settlement.outcome.verdict !== "accepted",
  }));
  const { rows: waiting } = await sql<MatchedRow & { fresh: boolean }>`
    with settled as (
      select * from json_to_recordset(${JSON.stringify(rows)}::text::json)
        as settled (delivery_id uuid, producer_id uuid, channel text, message_id text, doubtful boolean)
    ), named as (
      update receipts r set delivery_id = s.delivery_id, producer_id = s.producer_id, look_again_at = null
      from settled s
      where r.delivery_id is null and r.channel = s.channel and r.provider_message_id = s.message_id
        and (r.producer_id is null or r.producer_id = s.producer_id)
        and not exists (
          select from attempts a join deliveries d on d.id = a.delivery_id and d.producer_id = a.producer_id
          where a.provider_message_id = s.message_id and d.channel = s.channel and d.id <> s.delivery_id)
      returning r.*
    )
    select ${matchedColumns}, true as fresh from named r
    union all
    select ${matchedColumns}, false as fresh
    from receipts r join settled s on s.delivery_id = r.delivery_id
    where r.proves_acceptance and (s.doubtful or r.provider_message_id is distinct from s.message_id)`.execute(tx);
  if (waiting.length === 0) return;
  await attachReceipts(tx, waiting.filter(({ fresh }) => fresh).map(matchedFrom), capabilityOf);
  await proveAcceptance(tx, waiting.filter(({ fresh }) => !fresh).map(matchedFrom), null, capabilityOf);
}

export interface MatchedRow {
  channel: string;
  event_id: string;
  type: string;
  status: ReceiptStatus | null;
  proves_acceptance: boolean;
  occurred_at: Date;
  delivery_id: DeliveryId;
  producer_id: ProducerId;
  provider_message_id: string | null;
  suppresses: string | null;
  recipients: readonly string[] | null;
  detail: unknown;
}

/** Of `receipts r`. */
export const matchedColumns = sql`r.channel, r.event_id, r.type, r.status, r.proves_acceptance, r.occurred_at, r.delivery_id,
  r.producer_id, r.provider_message_id, r.suppresses, r.recipients, r.detail`;

export const matchedFrom = (row: MatchedRow): Matched => ({
  channel: row.channel,
  eventId: row.event_id,
  type: row.type,
  status: row.status,
  provesAcceptance: row.proves_acceptance,
  occurredAt: row.occurred_at.getTime(),
  deliveryId: row.delivery_id,
  producerId: row.producer_id,
  providerMessageId: row.provider_message_id,
  suppresses: row.suppresses,
  recipients: row.recipients,
  detail: row.detail,
});
