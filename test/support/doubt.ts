import { sql } from "kysely";
import { uuidv7 } from "uuidv7";
import type { DeliveryId } from "../../src/ledger/delivery.ts";
import type { Db } from "../../src/store/schema.ts";
import { insertAttempt } from "./builders.ts";

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
