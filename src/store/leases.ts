import { sql } from "kysely";
import type { AttemptNumber, DeliveryId, ProducerId } from "../ledger/delivery.ts";
import type { Db } from "./schema.ts";

export interface ExpiredLease {
  readonly deliveryId: DeliveryId;
  readonly producerId: ProducerId;
  readonly number: AttemptNumber;
}

/** Open attempts whose lease has run out, the oldest first: their holders are presumed dead. Reads only. */
export async function expiredLeases(db: Db, limit: number): Promise<readonly ExpiredLease[]> {
  const { rows } = await sql<ExpiredLease>`
    select delivery_id as "deliveryId", producer_id as "producerId", number
    from attempts
    where settled_at is null and lease_expires_at <= ledger_now()
    order by lease_expires_at limit ${limit}`.execute(db);
  return rows;
}
