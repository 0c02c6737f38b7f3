import { sql } from "kysely";
import { uuidv7 } from "uuidv7";
import type { DeliveryId } from "../../src/ledger/delivery.ts";
import type { Db } from "../../src/store/schema.ts";
import { insertAttempt, take } from "./builders.ts";

/** Puts an accepted delivery where a doubtful attempt leaves it; returns its attention item's id. */
export async function putInDoubt(
  db: Db,
  id: DeliveryId,
  more: { readonly reason?: string; readonly agoMs?: number; readonly attempt?: Record<string, unknown> } = {},
): Promise<string> {
  const { reason = "timeout", agoMs = 0 } = more;
  const at = new Date(Date.now() - agoMs);
  await insertAttempt(db, id, {
    claimed_at: at,
    settled_at: at,
    lease_expires_at: new Date(at.getTime() + 60_000),
    verdict: "unknown",
    reason: "timeout",
    phase: "sent",
    error_code: "TIMEOUT",
    error_message: "no complete answer within 30000 ms",
    ...more.attempt,
  });
  await sql`
    update deliveries set state = 'needs_attention', next_attempt_at = null, settled_at = ${at}, in_doubt = true,
      attempt_count = 1 where id = ${id}`.execute(db);
  const item = uuidv7();
  await sql`
    insert into attention_items (id, delivery_id, producer_id, channel, reason, opened_at)
    select ${item}, id, producer_id, channel, ${reason}, ${at} from deliveries where id = ${id}`.execute(db);
  return item;
}

/** Many deliveries of the channel telegram in doubt, the oldest first, in a few statements. */
export async function manyInDoubt(db: Db, count: number): Promise<void> {
  const requests = Array.from({ length: count }, (_, n) => ({
    channel: "telegram",
    recipient: String(6_000_000_000 + n),
  }));
  for (let from = 0; from < count; from += 1_000) {
    await take(
      db,
      ...requests.slice(from, from + 1_000).map((one) => ({ ...one, deliverAt: new Date(Date.now() + 3_600_000) })),
    );
  }
  await db.transaction().execute(async (tx) => {
    const made = sql`select * from deliveries where state = 'pending' and channel = 'telegram'`;
    await sql`
      insert into attempts (delivery_id, producer_id, number, ladder, generation, idempotency_key, recipient, claimed_by,
        claimed_at, lease_expires_at, settled_at, verdict, reason, phase, error_code)
      select id, producer_id, 1, 1, 1, id || '.1', recipient, 'test', now() - interval '1 hour', now(), now() - interval '1 hour',
        'unknown', 'timeout', 'sent', 'TIMEOUT' from (${made}) as made`.execute(tx);
    await sql`
      insert into attention_items (id, delivery_id, producer_id, channel, reason, opened_at)
      select gen_random_uuid(), id, producer_id, channel, 'timeout', now() - interval '1 hour' + row_number() over (order by id) * interval '1 millisecond'
      from (${made}) as made`.execute(tx);
    await sql`
      update deliveries set state = 'needs_attention', next_attempt_at = null, settled_at = now(), in_doubt = true, attempt_count = 1
      where state = 'pending' and channel = 'telegram'`.execute(tx);
  });
}
