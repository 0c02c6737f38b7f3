import type { Logger } from "pino";
import { capabilityOf } from "../providers/index.ts";
import { isConnectionError } from "../store/database.ts";
import { groupCommit } from "../store/group-commit.ts";
import type { Settlement } from "../store/held.ts";
import type { Db } from "../store/schema.ts";
import { settleAttempts } from "../store/settlements.ts";
import type { Settled } from "../store/verdicts.ts";
import { pause } from "./pause.ts";
import type { Spool } from "./spool.ts";

const LONGEST_PAUSE_MS = 5_000;

export interface Settler {
  /**
   * Writes a verdict, however long it takes: an answer that was received is never thrown away. Resolves with what became
   * of it; null when somebody else was first, or when the process ended before it could be written (it is in the spool).
   */
  settle(settlement: Settlement): Promise<Settled>;
  /** Waits for what is held, until `deadline` aborts; what cannot be written by then goes into the spool. */
  close(deadline: AbortSignal): Promise<void>;
}

/** Settlements of one process: grouped into few commits, kept in memory and in the spool while the database is away. */
export function createSettler(db: Db, spool: Spool, log: Logger): Settler {
  const write = groupCommit((group: readonly Settlement[]) => settleAttempts(db, group, capabilityOf), {
    maxItems: 200,
    lanes: 2,
  });
  const held = new Set<Settlement>();
  const spooled = new Set<Settlement>();
  const giveUp = new AbortController();
  const gaveUp = new Promise<null>((resolve) => {
    giveUp.signal.addEventListener("abort", () => resolve(null), { once: true });
  });
  let emptied: (() => void) | null = null;

  async function keep(settlement: Settlement): Promise<void> {
    if (spooled.has(settlement)) return;
    spooled.add(settlement);
    await spool.keep([settlement]).catch((error: unknown) => {
      spooled.delete(settlement);
      log.error(
        { event: "spool.failed", delivery_id: settlement.deliveryId, err: error },
        "a verdict could not be spooled",
      );
    });
  }

  async function forget(settlement: Settlement): Promise<void> {
    held.delete(settlement);
    if (held.size > 0) return;
    emptied?.();
    if (spooled.size === 0 || giveUp.signal.aborted) return;
    spooled.clear();
    await spool.clear().catch((error: unknown) => log.warn({ event: "spool.failed", err: error }, "spool not cleared"));
  }

  async function settle(settlement: Settlement): Promise<Settled> {
    held.add(settlement);
    if (giveUp.signal.aborted) {
      await keep(settlement);
      return null;
    }
    let alone = false;
    for (let failures = 0; ; failures += 1) {
      try {
        const written = alone ? settleAttempts(db, [settlement], capabilityOf).then(([one]) => one) : write(settlement);
        // A database that is away keeps a statement waiting until it is back, which may be after the end.
        const settled = await Promise.race([written, gaveUp]);
        if (giveUp.signal.aborted) return settled ?? null;
        await forget(settlement);
        return settled ?? null;
      } catch (error) {
        // One settlement that the database refuses must not take its whole group with it.
        alone = !isConnectionError(error);
        const about = { event: "settle.failed", delivery_id: settlement.deliveryId, attempt: settlement.number };
        log.error({ ...about, failures: failures + 1, err: error }, "a verdict is held: it could not be written yet");
        await keep(settlement);
        await pause(Math.min(100 * 2 ** Math.min(failures, 6), LONGEST_PAUSE_MS), giveUp.signal);
        if (giveUp.signal.aborted) return null;
      }
    }
  }

  return {
    settle,
    async close(deadline) {
      const empty = new Promise<void>((resolve) => {
        emptied = resolve;
        if (held.size === 0) resolve();
        deadline.addEventListener("abort", () => resolve(), { once: true });
        if (deadline.aborted) resolve();
      });
      await empty;
      giveUp.abort();
      const left = [...held].filter((settlement) => !spooled.has(settlement));
      await spool.keep(left);
      if (held.size > 0)
        log.warn({ event: "spool.kept", count: held.size }, "verdicts wait in the spool for the next start");
    },
  };
}
