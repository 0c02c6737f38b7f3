import type { Logger } from "pino";
import { capabilityOf } from "../providers/index.ts";
import type { Finding, LookupClient } from "../providers/provider.ts";
import { claimLookup, type DueLookup, recordLookup, releaseLookup } from "../store/lookups.ts";
import { applyReceipts, type Receipt } from "../store/receipts.ts";
import type { Db } from "../store/schema.ts";
import { pause } from "./pause.ts";

export interface ReconcileDeps {
  readonly db: Db;
  readonly log: Logger;
}

const MINUTE_MS = 60_000;
/** When to ask again after each look-up: a provider's record may lag. After the last, a person decides. */
const ASK_AGAIN_MS = [1, 5, 30, 120, 360].map((minutes) => minutes * MINUTE_MS);
const ANSWER_WITHIN_MS = 5 * MINUTE_MS;
/** A claim outlives the longest look-up, and the writing of what it found. */
const HOLD_MS = 2 * ANSWER_WITHIN_MS;

/**
 * Asks a channel's provider about every item that is due, one after the other: what proves an acceptance settles the attempt,
 * anything else is written down for whoever decides. It never sends. Any number of workers may run it at once.
 * Returns how many were asked about, and how many were found accepted.
 */
export async function reconcile(
  { db, log }: ReconcileDeps,
  channel: string,
  client: LookupClient,
  signal: AbortSignal,
): Promise<{ asked: number; accepted: number }> {
  const count = { asked: 0, accepted: 0 };
  while (!signal.aborted) {
    const due = await claimLookup(db, channel, HOLD_MS);
    if (due === null) break;
    const until = AbortSignal.any([signal, AbortSignal.timeout(ANSWER_WITHIN_MS)]);
    const finding = await client.find({ deliveryId: due.deliveryId, spans: due.spans }, until);
    if (signal.aborted && finding.found === "no_answer") {
      await releaseLookup(db, due);
      break;
    }
    await conclude(db, channel, due, finding);
    count.asked += 1;
    count.accepted += finding.found === "accepted" ? 1 : 0;
    log.info(
      { event: "lookup.answered", channel, delivery_id: due.deliveryId, found: finding.found, asked: due.asked + 1 },
      "a provider was asked what became of a message",
    );
  }
  return count;
}

async function conclude(db: Db, channel: string, due: DueLookup, finding: Finding): Promise<void> {
  const againInMs = ASK_AGAIN_MS[due.asked] ?? null;
  if (finding.found !== "accepted") {
    await recordLookup(db, due, finding, againInMs);
    return;
  }
  await applyReceipts(db, [receiptOf(channel, due, finding)], capabilityOf);
  // Where it settled the item, there is nothing left to write.
  const note = `accepted as ${finding.providerMessageId}`;
  await recordLookup(db, due, { found: finding.found, note }, againInMs);
}

/**
 * The provider's record as a receipt. It does not tell when an email got its status, only when it was accepted: that time
 * is the earliest possible one, so that the provider's own webhook, when it comes, stands.
 */
function receiptOf(channel: string, due: DueLookup, found: Extract<Finding, { found: "accepted" }>): Receipt {
  const { providerMessageId, acceptedAt, status, statusAt } = found;
  return {
    channel,
    eventId: `lookup:${providerMessageId}:${status ?? "accepted"}`,
    type: `lookup.${status ?? "accepted"}`,
    status,
    provesAcceptance: true,
    occurredAt: statusAt ?? acceptedAt,
    deliveryId: due.deliveryId,
    providerMessageId,
    name: null,
    producerId: due.producerId,
    suppresses: null,
    recipients: null,
    detail: { source: "lookup", accepted_at: new Date(acceptedAt).toISOString() },
  };
}

export interface Reconciler {
  /** Ends the look-ups under way, and gives their items back. */
  stop(): Promise<void>;
}

/** Asks about what is due on these channels, each in a loop of its own, for a look-up can take minutes. */
export function startReconciler(
  deps: ReconcileDeps & { readonly intervalMs: number },
  clients: ReadonlyMap<string, LookupClient>,
): Reconciler {
  const stopping = new AbortController();
  const { signal } = stopping;

  async function loop(channel: string, client: LookupClient): Promise<void> {
    while (!signal.aborted) {
      try {
        await reconcile(deps, channel, client, signal);
      } catch (error) {
        deps.log.error({ event: "lookup.failed", channel, err: error }, "a look-up could not be finished");
      }
      await pause(deps.intervalMs, signal);
    }
  }

  const loops = [...clients].map(([channel, client]) => loop(channel, client));
  return {
    async stop() {
      stopping.abort();
      await Promise.all(loops);
    },
  };
}
