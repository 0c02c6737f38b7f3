import { mkdtemp, readdir } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { DeliveryId } from "../../src/ledger/delivery.ts";
import { openDatabase } from "../../src/store/database.ts";
import { openSpool } from "../../src/worker/spool.ts";
import { take } from "../support/builders.ts";
import { type Account, openItem, stateOf, tally, until, work } from "../support/pipeline.ts";
import { openProxy } from "../support/proxy.ts";

import { counting, database, post, useDatabase } from "./rig.ts";

useDatabase();

describe("shutdown", () => {
  test("calls under way are waited for and settled; one that takes too long is cut off and in needs-attention", async () => {
    const worker = await work(database.db, [{ id: "sandbox", settings: { provider: "sandbox" } }], {
      providerTimeoutMs: 20_000,
    });
    const quick = await post("slow-200@sandbox");
    const slow = await post("slow-15000@sandbox");
    await until(
      () => tally(database.db),
      (states) => states["claimed"] === 2,
    );
    await worker.stop(3_800);
    expect(await stateOf(database.db, quick)).toMatchObject({ state: "sent" });
    expect(await stateOf(database.db, slow)).toMatchObject({ state: "needs_attention" });
    expect(await openItem(database.db, slow)).toMatchObject({ reason: "cut_off" });
  });

  test("with a database that hangs, the worker still ends in time, and the answers it holds are in the spool", async () => {
    const folder = await mkdtemp(join(tmpdir(), "ledger-spool-"));
    const proxy = await openProxy(database.url);
    const through = openDatabase({ url: proxy.url, poolSize: 4, applicationName: "test" });
    const { account } = counting();
    const hanging: Account = {
      ...account,
      wrap: (adapter) => ({
        ...adapter,
        async call(call) {
          proxy.stall(true);
          return await adapter.call(call);
        },
      }),
    };
    const worker = await work(through.db, [hanging], { spool: openSpool(folder) });
    const id = await post();
    await until(
      () => stateOf(database.db, id),
      ({ state }) => state === "claimed",
    );
    await new Promise((resolve) => setTimeout(resolve, 100));
    await worker.stop(2_500);
    expect(await readdir(join(folder, "spool"))).toHaveLength(1);
    const next = await work(database.db, [], { spool: openSpool(folder) });
    expect(await stateOf(database.db, id)).toMatchObject({ state: "sent" });
    await next.stop(1_000);
    await proxy.close();
    await through.close();
  });

  test("with the database down, calls under way on one channel are waited for while another holds its verdicts", async () => {
    const folder = await mkdtemp(join(tmpdir(), "ledger-spool-"));
    const proxy = await openProxy(database.url);
    const through = openDatabase({ url: proxy.url, poolSize: 4, applicationName: "test" });
    const quick: Account = { id: "sandbox", settings: { provider: "sandbox" } };
    const slow: Account = { id: "slow", settings: { provider: "sandbox" } };
    const worker = await work(through.db, [quick, slow], { spool: openSpool(folder), providerTimeoutMs: 10_000 });
    await take(database.db, ...Array.from({ length: 4 }, (_, i) => ({ name: `q${i}`, recipient: "slow-150@sandbox" })));
    const [late] = (await take(database.db, { channel: "slow", recipient: "slow-900@sandbox" })) as [DeliveryId];
    await until(
      () => tally(database.db),
      (states) => states["claimed"] === 5,
    );
    proxy.away(true);
    await new Promise((resolve) => setTimeout(resolve, 300));
    await worker.stop(6_000);
    const next = await work(database.db, [], { spool: openSpool(folder) });
    expect(await tally(database.db)).toEqual({ sent: 5 });
    expect(await stateOf(database.db, late)).toMatchObject({ state: "sent" });
    await next.stop(1_000);
    await proxy.close();
    await through.close();
  });

  test("a stopped worker claims nothing more", async () => {
    const { account, calls } = counting();
    const worker = await work(database.db, [account]);
    await worker.stop(1_000);
    await post();
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(calls.size).toBe(0);
  });
});
