import { sql } from "kysely";
import type { DeliveryId, ProducerId } from "../ledger/delivery.ts";
import type { Db } from "./schema.ts";

/**
 * Cancels a delivery that waits and of which nothing may have been sent: one guarded statement, so that it never takes a
 * delivery out of the hands of a worker. False when it was not in that state; the caller reads why.
 */
export async function cancelDelivery(db: Db, id: DeliveryId, producerId: ProducerId, by: string): Promise<boolean> {
  const { rows } = await sql<{ id: DeliveryId }>`
    with cancelled as (
      update deliveries
      set state = 'cancelled', next_attempt_at = null, hold_reason = null, settled_at = ledger_now()
      where id = ${id} and producer_id = ${producerId} and state = 'pending' and not in_doubt
      returning id, producer_id
    ), logged as (
      insert into events (type, delivery_id, producer_id, data)
      select 'delivery.cancelled', id, producer_id, json_build_object('by', ${by}::text) from cancelled
    )
    select id from cancelled`.execute(db);
  return rows.length === 1;
}
