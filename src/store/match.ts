import { sql, type Transaction } from "kysely";
import type { DeliveryId, ProducerId } from "../ledger/delivery.ts";
import type { Schema } from "./schema.ts";

/** What a receipt says of the delivery that it is about. */
export interface Clue {
  readonly channel: string;
  readonly eventId: string;
  /** From our own tag, or from whoever posted it. */
  readonly deliveryId: DeliveryId | null;
  readonly providerMessageId: string | null;
  readonly name: string | null;
  /** Only this producer's deliveries; null: anybody's. */
  readonly producerId: ProducerId | null;
}

export interface Match {
  readonly deliveryId: DeliveryId;
  readonly producerId: ProducerId;
}

export const clueKey = ({ channel, eventId }: Pick<Clue, "channel" | "eventId">): string => `${channel}/${eventId}`;

const BY_ID = sql`
  select c.channel, c.event_id, d.id, d.producer_id, 1 as rank
  from clue c join deliveries d on d.id = c.delivery_id
  where d.channel = c.channel and (c.producer_id is null or d.producer_id = c.producer_id)`;
/** Once a delivery: a repeat under the same key is told the same message id as the attempt before it. */
const BY_MESSAGE = sql`
  select distinct c.channel, c.event_id, d.id, d.producer_id, 2 as rank
  from clue c
  join attempts a on a.provider_message_id = c.message_id
  join deliveries d on d.id = a.delivery_id and d.producer_id = a.producer_id
  where c.delivery_id is null and d.channel = c.channel and (c.producer_id is null or d.producer_id = c.producer_id)`;
const BY_NAME = sql`
  select c.channel, c.event_id, d.id, d.producer_id, 3 as rank
  from clue c
  join producers p on c.name is not null and (c.producer_id is null or p.id = c.producer_id)
  join deliveries d on d.producer_id = p.id and d.name = c.name
  where c.delivery_id is null and d.channel = c.channel`;

/**
 * The delivery of each clue, by `clueKey`. A delivery's id decides; then the provider's message id, then the name: if there
 * is exactly one delivery on that channel that has it (a Telegram message's number is one in its chat only).
 */
export async function matchDeliveries(
  tx: Transaction<Schema>,
  clues: readonly Clue[],
): Promise<ReadonlyMap<string, Match>> {
  if (clues.length === 0) return new Map();
  const rows = clues.map((clue) => ({
    channel: clue.channel,
    event_id: clue.eventId,
    delivery_id: clue.deliveryId,
    message_id: clue.providerMessageId,
    name: clue.name,
    producer_id: clue.producerId,
  }));
  // Only the ways that are needed: most receipts have our tag.
  const byId = clues.some(({ deliveryId }) => deliveryId !== null) ? [BY_ID] : [];
  const others = clues.filter(({ deliveryId }) => deliveryId === null);
  const byMessage = others.some(({ providerMessageId }) => providerMessageId !== null) ? [BY_MESSAGE] : [];
  const byName = others.some(({ name }) => name !== null) ? [BY_NAME] : [];
  const ways = [...byId, ...byMessage, ...byName];
  if (ways.length === 0) return new Map();
  const { rows: found } = await sql<{ channel: string; event_id: string; id: DeliveryId; producer_id: ProducerId }>`
    with clue as (
      select * from json_to_recordset(${JSON.stringify(rows)}::text::json) as clue (
        channel text, event_id text, delivery_id uuid, message_id text, name text, producer_id uuid)
    ), candidate as (${sql.join(ways, sql` union `)}), ranked as (
      select *, count(*) over (partition by channel, event_id, rank) as rivals,
        row_number() over (partition by channel, event_id order by rank) as place
      from candidate
    )
    select channel, event_id, id, producer_id from ranked where place = 1 and rivals = 1`.execute(tx);
  return new Map(
    found.map(({ channel, event_id: eventId, id, producer_id: producerId }) => [
      clueKey({ channel, eventId }),
      { deliveryId: id, producerId },
    ]),
  );
}
