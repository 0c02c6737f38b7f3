import type { DeliveryId } from "../ledger/delivery.ts";
import { isConflict } from "../store/database.ts";
import { type DeliveryRow, findDeliveries } from "../store/deliveries.ts";
import { intake, type Posted, type Taken } from "../store/intake.ts";
import type { Db } from "../store/schema.ts";
import { groupRequests } from "./patience.ts";

/** What became of a posted delivery, and the delivery as it stands; the row is null when there is none, or no more. */
export interface Accepted {
  readonly taken: Taken;
  readonly row: DeliveryRow | null;
}

export interface Accept {
  /** Shares a commit with other single requests of the same moment. */
  one(posted: Posted): Promise<Accepted>;
  /** In one commit, answered in order. */
  many(posted: readonly Posted[]): Promise<readonly Accepted[]>;
}

/** Takes deliveries in. Resolves only after the commit. When it rejects, nobody knows; names make the repeat safe. */
export function createAccept(db: Db): Accept {
  async function many(posted: readonly Posted[]): Promise<readonly Accepted[]> {
    const taken = await intake(db, posted).catch((error: unknown) => {
      // A circle of waits was broken at our cost. Nothing was written.
      if (isConflict(error)) return intake(db, posted);
      throw error;
    });
    const ids = taken.flatMap(({ kind, id }) => (kind === "accepted" || kind === "known" ? [id as DeliveryId] : []));
    const rows = ids.length === 0 ? new Map<DeliveryId, DeliveryRow>() : await findDeliveries(db, ids);
    return taken.map((one) => ({ taken: one, row: (one.id && rows.get(one.id)) ?? null }));
  }
  return { one: groupRequests(many), many };
}
