import type { Logger } from "pino";
import { ownOutcome } from "../ledger/verdict.ts";
import { capabilityOf } from "../providers/index.ts";
import { forgetCounts } from "../store/call-counts.ts";
import type { Settlement } from "../store/held.ts";
import { type ExpiredLease, expiredLeases } from "../store/leases.ts";
import { forgetPaces } from "../store/pacing.ts";
import { rematchReceipts } from "../store/receipts.ts";
import type { Db } from "../store/schema.ts";
import { closeExpired } from "../store/set-aside.ts";
import { settleAttempts } from "../store/settlements.ts";
import { decideExpired } from "./claim.ts";

const BATCH = 200;

const presumedDead = ({ deliveryId, producerId, number }: ExpiredLease): Settlement => ({
  deliveryId,
  producerId,
  number,
  outcome: ownOutcome("unknown", "lease_expired"),
  witness: { source: "lease" },
  credentials: null,
  answer: null,
});

/**
 * One pass of the sweeper: attempts whose lease ran out become `unknown`, deliveries whose time has passed are closed,
 * receipts that matched nothing are looked at again, and what was counted long ago is forgotten.
 * It never sends. Any number of sweepers may run; of two that find the same row, the second changes nothing.
 */
export async function sweep(db: Db, log: Logger, signal: AbortSignal): Promise<{ leases: number; expired: number }> {
  const swept = { leases: 0, expired: 0 };
  for (let more = true; more && !signal.aborted; ) {
    const found = await expiredLeases(db, BATCH);
    const settled = found.length === 0 ? [] : await settleAttempts(db, found.map(presumedDead), capabilityOf);
    for (const [index, result] of settled.entries()) {
      const lease = found[index];
      if (!result || !lease) continue;
      swept.leases += 1;
      log.warn(
        { event: "lease.expired", delivery_id: lease.deliveryId, attempt: lease.number, state: result.state },
        "an attempt's holder is presumed dead",
      );
    }
    more = found.length === BATCH && settled.some((result) => result !== null);
  }
  for (let more = true; more && !signal.aborted; ) {
    const closed = await closeExpired(db, BATCH, decideExpired);
    swept.expired += closed;
    more = closed === BATCH;
  }
  while (!signal.aborted && (await rematchReceipts(db, BATCH, capabilityOf)) === BATCH);
  while (!signal.aborted && (await forgetPaces(db, BATCH)) === BATCH);
  await forgetCounts(db);
  if (swept.expired > 0)
    log.info({ event: "delivery.expired", count: swept.expired }, "deliveries expired while they waited");
  return swept;
}
