import { mkdtemp, readdir } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { sql } from "kysely";
import { describe, expect, test } from "vitest";
import { openDatabase } from "../../src/store/database.ts";
import { createSettler } from "../../src/worker/settle.ts";
import { openSpool } from "../../src/worker/spool.ts";
import { moveInTime } from "../support/builders.ts";
import { attemptsOf, onRung, settles, silent, stateOf, until, work } from "../support/pipeline.ts";
import { openProxy } from "../support/proxy.ts";

import { accepted, claimAndDie, counting, database, post, sweepOnce, useDatabase } from "./rig.ts";

useDatabase();

describe("the database goes away", () => {
  test("a verdict that cannot be written is kept, and written when the database is back", async () => {
    const proxy = await openProxy(database.url);
    const through = openDatabase({ url: proxy.url, poolSize: 4, applicationName: "test" });
    const account = counting().account;
    const worker = await work(through.db, [
      {
        ...account,
        wrap: (adapter) => ({
          ...adapter,
          async call(call) {
            proxy.away(true);
            return await adapter.call(call);
          },
        }),
      },
    ]);
    const id = await post();
    await until(
      () => stateOf(database.db, id),
      ({ state }) => state === "claimed",
    );
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(await stateOf(database.db, id)).toMatchObject({ state: "claimed" });
    proxy.away(false);
    await settles(database.db, id, "sent");
    await worker.stop(3_000);
    await through.close();
    await proxy.close();
  });

  test("what cannot be written before the process must go lies in the spool, and the next start writes it", async () => {
    const folder = await mkdtemp(join(tmpdir(), "ledger-spool-"));
    const proxy = await openProxy(database.url);
    const through = openDatabase({ url: proxy.url, poolSize: 2, applicationName: "test" });
    const settler = createSettler(through.db, openSpool(folder), silent);
    const id = await post();
    const claim = await claimAndDie();
    proxy.away(true);
    const pending = settler.settle(accepted(claim));
    await settler.close(AbortSignal.timeout(200));
    expect(await pending).toBeNull();
    expect(await readdir(join(folder, "spool"))).toHaveLength(1);
    await moveInTime(database.db, id, 60_000);
    await sweepOnce();
    const worker = await work(database.db, [], { spool: openSpool(folder) });
    expect(await stateOf(database.db, id)).toMatchObject({ state: "sent", provider_message_id: "m-1" });
    expect(await readdir(join(folder, "spool"))).toHaveLength(0);
    await worker.stop(1_000);
    await through.close();
    await proxy.close();
  });

  test.each(["cut before", "cut after"] as const)(
    "the commit of a claim in doubt (%s the server had it): no call under it, and the delivery goes on",
    async (treatment) => {
      const proxy = await openProxy(database.url);
      const through = openDatabase({ url: proxy.url, poolSize: 4, applicationName: "test" });
      const { account, calls } = counting();
      const broken = proxy.breakCommitOf(/insert into attempts/, treatment);
      const id = await post();
      const worker = await work(through.db, [account]);
      await broken;
      if (treatment === "cut after") {
        await onRung(database.db, id, 1);
        expect(calls.size).toBe(0);
        expect((await attemptsOf(database.db, id))[0]).toMatchObject({ reason: "never_called", counted: false });
        await moveInTime(database.db, id, 60_000);
      }
      await settles(database.db, id, "sent");
      expect(calls.get(id)).toBe(1);
      await worker.stop(3_000);
      await through.close();
      await proxy.close();
    },
  );

  test("the commit of a settlement whose answer was lost is not written twice", async () => {
    const proxy = await openProxy(database.url);
    const through = openDatabase({ url: proxy.url, poolSize: 2, applicationName: "test" });
    const settler = createSettler(through.db, openSpool(await mkdtemp(join(tmpdir(), "ledger-spool-"))), silent);
    const id = await post();
    const claim = await claimAndDie();
    void proxy.breakCommitOf(/update attempts/, "cut after");
    await settler.settle(accepted(claim));
    expect(await stateOf(database.db, id)).toMatchObject({ state: "sent" });
    const events = await database.db.selectFrom("events").select("type").where("delivery_id", "=", id).execute();
    expect(events.filter(({ type }) => type === "delivery.sent")).toHaveLength(1);
    await through.close();
    await proxy.close();
  });

  test("while the database cannot be written to, nothing is called", async () => {
    const { account, calls } = counting();
    await post();
    const name = new URL(database.url).pathname.slice(1);
    await sql.raw(`alter database ${name} set default_transaction_read_only = on`).execute(database.db);
    const readOnly = openDatabase({ url: database.url, poolSize: 2, applicationName: "test" });
    const worker = await work(readOnly.db, [account]).catch(() => null);
    await new Promise((resolve) => setTimeout(resolve, 150));
    expect(calls.size).toBe(0);
    await sql`set default_transaction_read_only = off`.execute(database.db);
    await sql.raw(`alter database ${name} reset default_transaction_read_only`).execute(database.db);
    await worker?.stop(200);
    await readOnly.close();
  });
});
