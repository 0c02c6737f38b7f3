import { describe, expect, test } from "vitest";
import type { DeliveryId } from "../../src/ledger/delivery.ts";
import { capabilityOf } from "../../src/providers/index.ts";
import { settleAttempts } from "../../src/store/settlements.ts";
import { moveInTime, take } from "../support/builders.ts";
import { type Account, attemptsOf, onRung, openItem, settles, stateOf, work } from "../support/pipeline.ts";

import { accepted, claimAndDie, counting, database, post, sweepOnce, useDatabase } from "./rig.ts";

useDatabase();

describe("leases", () => {
  test("a claim whose worker died is settled as unknown when its lease has run out, once, and never called again", async () => {
    const id = await post();
    await claimAndDie();
    expect(await sweepOnce()).toMatchObject({ leases: 0 });
    expect(await stateOf(database.db, id)).toMatchObject({ state: "claimed" });
    await moveInTime(database.db, id, 60_000);
    const swept = await Promise.all([sweepOnce(), sweepOnce(), sweepOnce()]);
    expect(swept.reduce((sum, { leases }) => sum + leases, 0)).toBe(1);
    expect(await stateOf(database.db, id)).toMatchObject({ state: "needs_attention", in_doubt: true });
    expect(await openItem(database.db, id)).toMatchObject({ reason: "lease_expired" });
    expect(await sweepOnce()).toMatchObject({ leases: 0 });
  });

  test("a sweep that comes after the settlement changes nothing", async () => {
    const id = await post();
    const claim = await claimAndDie();
    await settleAttempts(database.db, [accepted(claim)], capabilityOf);
    await moveInTime(database.db, id, 60_000);
    expect(await sweepOnce()).toMatchObject({ leases: 0 });
    expect(await stateOf(database.db, id)).toMatchObject({ state: "sent" });
  });

  test("an answer that comes after the sweep is evidence: sent, and the item closes itself", async () => {
    const id = await post();
    const claim = await claimAndDie();
    await moveInTime(database.db, id, 60_000);
    await sweepOnce();
    const [settled] = await settleAttempts(database.db, [accepted(claim)], capabilityOf);
    expect(settled?.state).toBe("sent");
    expect(await stateOf(database.db, id)).toMatchObject({ state: "sent", in_doubt: false });
    expect(await openItem(database.db, id)).toMatchObject({ resolution: "evidence" });
    const [attempt] = await attemptsOf(database.db, id);
    expect(attempt).toMatchObject({ verdict: "accepted", evidence: "answer" });
  });

  test("sweep and settlement at the same moment: one wins, the delivery ends as sent either way", async () => {
    for (let round = 0; round < 15; round += 1) {
      const id = await post();
      const claim = await claimAndDie();
      await moveInTime(database.db, id, 60_000);
      await Promise.all([sweepOnce(), settleAttempts(database.db, [accepted(claim)], capabilityOf)]);
      expect(await stateOf(database.db, id)).toMatchObject({ state: "sent" });
    }
  });

  test("a worker that finds its lease used up does not call: it gives the claim back, and no attempt counts", async () => {
    const { account, calls } = counting();
    const slow: Account = {
      ...account,
      wrap: (adapter) => ({
        ...(account.wrap?.(adapter) ?? adapter),
        render: async (input) => {
          await new Promise((resolve) => setTimeout(resolve, 60));
          return await adapter.render(input);
        },
      }),
    };
    const worker = await work(database.db, [slow], { leaseMs: 350, providerTimeoutMs: 300 });
    const id = await post();
    await onRung(database.db, id, 1);
    await worker.stop(1_000);
    expect(calls.size).toBe(0);
    expect((await attemptsOf(database.db, id))[0]).toMatchObject({
      reason: "never_called",
      verdict: "deferred",
      counted: false,
    });
  });

  test("a delivery whose processing kills its worker each time ends after four attempts; its neighbours are sent", async () => {
    // on_unknown: resend is what would go on for ever, were crashes not counted.
    const [poison] = (await take(database.db, { onUnknown: "resend" })) as [DeliveryId];
    for (let crash = 0; crash < 4; crash += 1) {
      const state = await stateOf(database.db, poison);
      if (state.state !== "pending") break;
      await claimAndDie();
      await moveInTime(database.db, poison, 60_000);
      await sweepOnce();
      await moveInTime(database.db, poison, 60_000);
    }
    const worker = await work(database.db, [counting().account]);
    await settles(database.db, await post(), "sent");
    expect(await stateOf(database.db, poison)).toMatchObject({ state: "needs_attention" });
    await worker.stop(3_000);
  });
});
