import { capabilityOf } from "../providers/index.ts";
import { isConflict } from "../store/database.ts";
import { applyReceipts, type Receipt, type Received } from "../store/receipts.ts";
import type { Db } from "../store/schema.ts";
import { groupRequests } from "./patience.ts";

export interface ReceiveReceipts {
  /** Shares a commit with other webhooks of the same moment. */
  one(receipt: Receipt): Promise<Received>;
  /** In one commit, answered in order. */
  many(receipts: readonly Receipt[]): Promise<readonly Received[]>;
}

/** Takes receipts in. Resolves only after the commit. When it rejects nothing is known, and a repeat is one with it. */
export function createReceive(db: Db): ReceiveReceipts {
  const many = async (receipts: readonly Receipt[]) =>
    await applyReceipts(db, receipts, capabilityOf).catch((error: unknown) => {
      // A circle of waits was broken at our cost. Nothing was written.
      if (isConflict(error)) return applyReceipts(db, receipts, capabilityOf);
      throw error;
    });
  return { one: groupRequests(many), many };
}
