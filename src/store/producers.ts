import { sql } from "kysely";
import type { ProducerId } from "../ledger/delivery.ts";
import type { QuietHours } from "../ledger/quiet-hours.ts";
import type { Db } from "./schema.ts";

export interface ProducerRow {
  readonly id: ProducerId;
  readonly name: string;
  readonly quiet_hours: QuietHours | null;
  readonly created_at: Date;
}

/** By their ids, a total order. `producerId`: that one alone; null: all. `after`: the last id of the page before. */
export async function listProducers(
  db: Db,
  producerId: ProducerId | null,
  page: { readonly after: string | null; readonly limit: number },
): Promise<readonly ProducerRow[]> {
  const { rows } = await sql<ProducerRow>`
    select id, name, quiet_hours, created_at from producers
    where (${producerId}::uuid is null or id = ${producerId}) and (${page.after}::uuid is null or id > ${page.after}::uuid)
    order by id limit ${page.limit}`.execute(db);
  return rows;
}

/** `producerId` not null: null unless it is that one. */
export async function findProducer(db: Db, name: string, producerId: ProducerId | null): Promise<ProducerRow | null> {
  const { rows } = await sql<ProducerRow>`
    select id, name, quiet_hours, created_at from producers
    where name = ${name} and (${producerId}::uuid is null or id = ${producerId})`.execute(db);
  return rows[0] ?? null;
}

/** Deliveries that are looked at again in one commit, when the hours that held them have changed. */
const AGAIN = 1_000;

/** The default of a producer's deliveries; null: none. What the hours before held is looked at again, at once. */
export async function setQuietHours(
  db: Db,
  producer: ProducerId,
  hours: QuietHours | null,
  by: string,
): Promise<ProducerRow> {
  const { rows } = await sql<ProducerRow>`
    with changed as (
      update producers set quiet_hours = ${hours && JSON.stringify(hours)}::text::json where id = ${producer}
      returning id, name, quiet_hours, created_at
    ), told as (
      insert into events (type, producer_id, data)
      select 'producer.quiet_hours', id, json_build_object('quiet_hours', quiet_hours, 'by', ${by}::text) from changed
    )
    select * from changed`.execute(db);
  while ((await lookAgain(db, producer)) === AGAIN);
  const [row] = rows;
  if (!row) throw new Error(`producer ${producer} is gone`);
  return row;
}

/** One that a worker holds locked is judged by the new hours in a moment, or by the old ones as the last. */
async function lookAgain(db: Db, producer: ProducerId): Promise<number> {
  const { rows } = await sql`
    with held as (
      select id from deliveries
      where producer_id = ${producer} and state = 'pending' and hold_reason = 'quiet_hours' and quiet_hours is null
        and next_attempt_at > ledger_now()
      limit ${AGAIN} for update skip locked
    )
    update deliveries d set next_attempt_at = ledger_now()
    from held where d.id = held.id and d.producer_id = ${producer}
    returning 1`.execute(db);
  return rows.length;
}
