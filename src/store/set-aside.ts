import { sql, type Transaction } from "kysely";
import { uuidv7 } from "uuidv7";
import type { Millis, State } from "../ledger/delivery.ts";
import { type Decision, type Due, type DueRow, dueFrom } from "./due.ts";
import type { Db, Schema } from "./schema.ts";

/** A delivery that is not attempted now, and what the gate said of it. */
export interface Aside {
  readonly due: Due;
  readonly decision: Exclude<Decision, { act: "claim" }>;
}

/** Writes what the gate said: closes, needs-attention, and all holds in one statement. */
export async function setAside(tx: Transaction<Schema>, channel: string, asides: readonly Aside[]): Promise<void> {
  const holds: { id: string; producer_id: string; reason: string; until: Millis | null }[] = [];
  for (const { due, decision } of asides) {
    if (decision.act !== "hold") await end(tx, channel, due, decision);
    else holds.push({ id: due.id, producer_id: due.producerId, reason: decision.reason, until: decision.until });
  }
  if (holds.length === 0) return;
  // Each row moves to where its hold ends (or is looked at again in a minute), so that it does not fill the next batch.
  await sql`
    update deliveries d set hold_reason = held.reason,
      next_attempt_at = greatest(d.next_attempt_at,
        coalesce(to_timestamp(held.until / 1000), ledger_now() + interval '1 minute'))
    from json_to_recordset(${JSON.stringify(holds)}::text::json)
      as held (id uuid, producer_id uuid, reason text, until double precision)
    where d.id = held.id and d.producer_id = held.producer_id and d.state = 'pending'`.execute(tx);
}

async function end(
  tx: Transaction<Schema>,
  channel: string,
  due: Due,
  decision: Exclude<Decision, { act: "claim" | "hold" }>,
): Promise<void> {
  if (decision.act === "attention") {
    await moveTo(tx, due, "needs_attention", { reason: decision.reason });
    await sql`
      insert into attention_items (id, delivery_id, producer_id, channel, reason)
      values (${uuidv7()}, ${due.id}, ${due.producerId}, ${channel}, ${decision.reason})
      on conflict do nothing`.execute(tx);
  } else {
    await moveTo(tx, due, decision.state, {});
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
        d.ladder_key, d.in_doubt, d.hold_reason, d.next_attempt_at, d.expires_at, false as suppressed, null as request,
        null as frozen_body, null as history, null as quiet_hours, ledger_now() as now
      from deliveries d
      where d.state = 'pending' and d.expires_at <= ledger_now()
      order by d.expires_at limit ${limit} for update skip locked`.execute(tx);
    for (const row of rows) {
      const due = dueFrom(row);
      const decision = decide(due, row.now.getTime());
      if (decision.act === "claim") throw new Error("the gate opened for an expired delivery");
      await setAside(tx, row.channel, [{ due, decision }]);
    }
    return rows.length;
  });
}
