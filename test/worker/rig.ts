import { afterAll, beforeAll, beforeEach } from "vitest";
import type { DeliveryId } from "../../src/ledger/delivery.ts";
import { ownOutcome } from "../../src/ledger/verdict.ts";
import { PROVIDERS } from "../../src/providers/index.ts";
import type { Adapter } from "../../src/providers/provider.ts";
import { type Claim, claimDue } from "../../src/store/claims.ts";
import type { Settlement } from "../../src/store/held.ts";
import { decideDue } from "../../src/worker/claim.ts";
import { sweep } from "../../src/worker/sweep.ts";
import { channel, take } from "../support/builders.ts";
import { empty, type TestDatabase, testDatabase } from "../support/database.ts";
import { type Account, silent } from "../support/pipeline.ts";

/** One database a test file, emptied before each test. */
export let database: TestDatabase;

export function useDatabase(): void {
  beforeAll(async () => {
    database = await testDatabase(20);
  });
  afterAll(() => database.close());
  beforeEach(async () => {
    await empty(database.db, "deliveries", "channels", "suppressions", "events");
    await channel(database.db, "sandbox", "sandbox");
  });
}

export const table = () => {
  const sandbox = PROVIDERS["sandbox"];
  if (!sandbox) throw new Error("no sandbox");
  return sandbox.capability;
};
const NEVER = new AbortController().signal;
export const sweepOnce = () => sweep(database.db, silent, NEVER);

export async function post(to = "accept@sandbox"): Promise<DeliveryId> {
  const [id] = await take(database.db, { recipient: to });
  return id as DeliveryId;
}

/** A claim as a worker makes it, and then nothing more: the worker dies. */
export async function claimAndDie(leaseMs = 60_000, claimedBy = "dead"): Promise<Claim> {
  const { claims } = await claimDue(database.db, { channel: "sandbox", limit: 1, claimedBy, leaseMs }, (due, now) =>
    decideDue(due, table(), now),
  );
  const [claim] = claims;
  if (!claim) throw new Error("nothing was claimed");
  return claim;
}

export const accepted = (claim: Claim, messageId = "m-1"): Settlement => ({
  deliveryId: claim.deliveryId,
  producerId: claim.producerId,
  number: claim.number,
  outcome: { ...ownOutcome("unknown", "accepted"), verdict: "accepted", providerMessageId: messageId },
  witness: { source: "answer", by: "dead" },
  credentials: null,
  answer: { phase: "sent", status: 200, code: null, message: null },
});

/** Counts how often each delivery was called, and how many calls ran at once. */
export function counting(delayMs = 0) {
  const calls = new Map<string, number>();
  let running = 0;
  const seen = { most: 0 };
  const wrap = (adapter: Adapter): Adapter => ({
    ...adapter,
    async call(call) {
      calls.set(call.deliveryId, (calls.get(call.deliveryId) ?? 0) + 1);
      running += 1;
      seen.most = Math.max(seen.most, running);
      if (delayMs > 0) await new Promise((resolve) => setTimeout(resolve, delayMs));
      running -= 1;
      return await adapter.call(call);
    },
  });
  const account: Account = { id: "sandbox", settings: { provider: "sandbox" }, wrap };
  return { calls, seen, account };
}
