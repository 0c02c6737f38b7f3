import { sql, type Transaction } from "kysely";
import { uuidv7 } from "uuidv7";
import type { Millis, State } from "../ledger/delivery.ts";
import { type Decision, type Due, type DueRow, dueFrom } from "./due.ts";
import type { Db, Schema } from "./schema.ts";

/** Writes what the gate said of a delivery that is not attempted now: a close, a hold, or needs-attention. */
export async function setAside(
  tx: Transaction<Schema>,
  channel: string,
  due: Due,
  decision: Exclude<Decision, { act: "claim" }>,
): Promise<void> {
  if (decision.act === "attention") {
    await moveTo(tx, due, "needs_attention", { reason: decision.reason });
    await sql`
      insert into attention_items (id, delivery_id, producer_id, channel, reason)
      values (${uuidv7()}, ${due.id}, ${due.producerId}, ${channel}, ${decision.reason})
      on conflict do nothing`.execute(tx);
  } else if (decision.act === "close") {
    await moveTo(tx, due, decision.state, {});
  } else {
    // The row moves to where its hold ends (or is looked at again in a minute), so that it does not fill the next batch.
    await sql`
      update deliveries set hold_reason = ${decision.reason},
        next_attempt_at = greatest(next_attempt_at, coalesce(
          to_timestamp(${decision.until === null ? null : decision.until / 1000}::double precision),
          ledger_now() + interval '1 minute'))
      where id = ${due.id} and producer_id = ${due.producerId} and state = 'pending'`.execute(tx);
  }
}

async function moveTo(tx: Transaction<Schema>, due: Due, state: State, data: Record<string, unknown>): Promise<void> {
  await sql`
    with moved as (
      update deliveries set state = ${state}, next_attempt_at = null, hold_reason = null, settled_at = ledger_now()
      where id = ${due.id} and producer_id = ${due.producerId} and state = 'pending'
      returning id, producer_id
    )
    insert into events (type, delivery_id, producer_id, data)
    select ${`delivery.${state}`}, id, producer_id, ${JSON.stringify(data)}::text::json from moved`.execute(tx);
}

/**
 * Closes deliveries whose time has passed while they waited, whatever holds their channel: the sweeper's part of the gate.
 * Returns how many.
 */
export async function closeExpired(
  db: Db,
  limit: number,
  decide: (due: Due, now: Millis) => Decision,
): Promise<number> {
  return await db.transaction().execute(async (tx) => {
    const { rows } = await sql<DueRow & { channel: string }>`
      select d.id, d.producer_id, d.channel, d.recipient, null as moved_to, d.on_unknown, d.attempt_count, d.ladder,
        d.ladder_key, d.in_doubt, d.next_attempt_at, d.expires_at, false as suppressed, null as request, null as frozen_body, null as history, ledger_now() as now
      from deliveries d
      where d.state = 'pending' and d.expires_at <= ledger_now()
      order by d.expires_at limit ${limit} for update skip locked`.execute(tx);
    for (const row of rows) {
      const due = dueFrom(row);
      const decision = decide(due, row.now.getTime());
      if (decision.act === "claim") throw new Error("the gate opened for an expired delivery");
      await setAside(tx, row.channel, due, decision);
    }
    return rows.length;
  });
}
