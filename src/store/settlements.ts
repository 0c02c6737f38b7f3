import type { CapabilityOf } from "../ledger/capability.ts";
import { attachWaiting } from "./evidence.ts";
import type { Settlement } from "./held.ts";
import type { Db } from "./schema.ts";
import { type Settled, settleWithin } from "./verdicts.ts";

/**
 * Writes verdicts, moves their deliveries on, and applies the receipts that waited for them: all in one commit. Answers one
 * result a settlement, in order.
 */
export async function settleAttempts(
  db: Db,
  settlements: readonly Settlement[],
  capabilityOf: CapabilityOf,
): Promise<readonly Settled[]> {
  return await db.transaction().execute(async (tx) => {
    const { results, writes } = await settleWithin(tx, settlements, capabilityOf);
    await attachWaiting(tx, writes, capabilityOf);
    return results;
  });
}
