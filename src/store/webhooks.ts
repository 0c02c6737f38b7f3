import { sql } from "kysely";
import type { Db } from "./schema.ts";

const EVERY_MS = 1_000;

/** Notes that a channel's webhooks arrive: their absence is what nobody would notice. At most once a second a channel. */
export function createTouch(db: Db): (channel: string) => Promise<void> {
  const touchedAt = new Map<string, number>();
  return async (channel) => {
    const now = performance.now();
    if (now - (touchedAt.get(channel) ?? Number.NEGATIVE_INFINITY) < EVERY_MS) return;
    touchedAt.set(channel, now);
    await sql`update channels set last_webhook_at = ledger_now() where id = ${channel}`.execute(db);
  };
}
