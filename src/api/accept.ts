import { setTimeout } from "node:timers/promises";
import type { DeliveryId } from "../ledger/delivery.ts";
import { isConflict, isConnectionError } from "../store/database.ts";
import { type DeliveryRow, findDeliveries } from "../store/deliveries.ts";
import { groupCommit } from "../store/group-commit.ts";
import { intake, type Posted, type Taken } from "../store/intake.ts";
import type { Db } from "../store/schema.ts";
import { RETRY_LATER } from "./auth.ts";
import { Problem } from "./problem.ts";

/** What became of a posted delivery, and the delivery as it stands; the row is null when only its name is remembered. */
export interface Accepted {
  readonly taken: Taken;
  readonly row: DeliveryRow | null;
}

/** The contract: when the database cannot commit, intake answers 503 within ten seconds. */
const PATIENCE_MS = 8_000;

export interface Accept {
  /** Shares a commit with other single requests of the same moment. */
  one(posted: Posted): Promise<Accepted>;
  /** In one commit, answered in order. */
  many(posted: readonly Posted[]): Promise<readonly Accepted[]>;
}

/** Takes deliveries in. Resolves only after the commit; rejects with the problem `unavailable` when there was none in time. */
export function createAccept(db: Db): Accept {
  async function take(posted: readonly Posted[]): Promise<readonly Accepted[]> {
    const taken = await intake(db, posted).catch((error: unknown) => {
      // A circle of waits was broken at our cost. Nothing was written; names make the repeat safe.
      if (isConflict(error)) return intake(db, posted);
      throw error;
    });
    const ids = taken.filter(({ kind }) => kind !== "remembered").map(({ id }) => id as DeliveryId);
    const rows = await findDeliveries(db, ids);
    return taken.map((one) => ({ taken: one, row: rows.get(one.id) ?? null }));
  }

  const grouped = groupCommit(take, { maxItems: 500, lanes: 2 });
  return {
    one: (posted) => inTime(grouped(posted)),
    many: (posted) => inTime(take(posted)),
  };
}

/** A repeat under the same name is safe, whatever became of the commit that did not answer. */
async function inTime<T>(work: Promise<T>): Promise<T> {
  const deadline = new AbortController();
  const late = setTimeout(PATIENCE_MS, null, { signal: deadline.signal }).then(() => {
    throw new Problem(
      "unavailable",
      "the database did not commit in time; repeat the request under the same name",
      RETRY_LATER,
    );
  });
  try {
    return await Promise.race([work, late]);
  } catch (error) {
    if (!isConnectionError(error)) throw error;
    throw new Problem(
      "unavailable",
      "the database cannot be reached; repeat the request under the same name",
      RETRY_LATER,
    );
  } finally {
    deadline.abort();
    late.catch(() => {});
    work.catch(() => {});
  }
}
