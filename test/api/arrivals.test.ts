import { expect, test } from "vitest";
import { createArrivals } from "../../src/api/arrivals.ts";
import type { ProducerId } from "../../src/ledger/delivery.ts";
import type { News } from "../../src/store/feed.ts";
import { until } from "../support/pipeline.ts";

const LONG_MS = 20_000;
const shop = "01990000-0000-7000-8000-000000000001" as ProducerId;
const bank = "01990000-0000-7000-8000-000000000002" as ProducerId;
const never = new AbortController().signal;
const all = { producerId: null, types: null, horizon: 1n } as const;

/** A feed that is told what is new; every look takes what there is. */
function feed(stopping = never) {
  const looks: bigint[] = [];
  const news: (News["events"] | Error)[] = [];
  let horizon = 1n;
  const arrivals = createArrivals(
    async (since) => {
      looks.push(since);
      horizon += 1n;
      const events = news.shift() ?? [];
      if (events instanceof Error) throw events;
      return { horizon, events: news.length === 0 && events === ALL ? null : events };
    },
    stopping,
    1,
  );
  const looked = (times: number) =>
    until(
      () => looks.length,
      (n) => n >= times,
    );
  return { arrivals, looks, news, looked, horizon: () => horizon };
}
const ALL: News["events"] = [];

test("one look serves everybody who waits, and nobody looks when nobody waits", async () => {
  const { arrivals, looks, news, looked } = feed();
  const waiting = Array.from({ length: 200 }, () => arrivals.wait(all, LONG_MS, never));
  await looked(5);
  news.push([{ producerId: shop, type: "delivery.sent" }]);
  expect(await Promise.all(waiting)).toEqual(waiting.map(() => true));
  const made = looks.length;
  expect(made).toBeLessThan(150);
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(looks).toHaveLength(made);
  // Each look goes on where the one before has ended.
  expect(looks).toEqual(looks.map((_, n) => BigInt(n + 1)));
});

test("only those whom the news concern are woken", async () => {
  const { arrivals, news, looked } = feed();
  const woken: string[] = [];
  const leave = new AbortController();
  const wait = (name: string, sought: object) =>
    arrivals.wait({ ...all, ...sought }, LONG_MS, leave.signal).then((told) => told && woken.push(name));
  const waits = [
    wait("everything", {}),
    wait("the shop's", { producerId: shop }),
    wait("the bank's", { producerId: bank }),
    wait("receipts", { types: /^receipt\./ }),
    wait("the shop's receipts", { producerId: shop, types: /^receipt\./ }),
  ];
  news.push([
    { producerId: shop, type: "delivery.sent" },
    { producerId: bank, type: "receipt.opened" },
  ]);
  await looked(3);
  expect(woken.toSorted()).toEqual(["everything", "receipts", "the bank's", "the shop's"]);
  leave.abort();
  await Promise.all(waits);
});

test("more news than are told one by one wake everybody", async () => {
  const { arrivals, news } = feed();
  news.push(ALL);
  expect(await arrivals.wait({ ...all, producerId: shop }, LONG_MS, never)).toBe(true);
});

test("whoever read before the last look is told to read again: that look's news are in nobody's hands", async () => {
  const { arrivals, looked } = feed();
  const leave = new AbortController();
  const first = arrivals.wait(all, LONG_MS, leave.signal);
  await looked(3);
  expect(await arrivals.wait(all, LONG_MS, never)).toBe(true);
  leave.abort();
  expect(await first).toBe(false);
});

test("a wait ends without news when its time is over, its client has gone, or the process stops", async () => {
  const stopping = new AbortController();
  const { arrivals } = feed(stopping.signal);
  expect(await arrivals.wait(all, 5, never)).toBe(false);
  expect(await arrivals.wait(all, LONG_MS, AbortSignal.abort())).toBe(false);
  const waiting = arrivals.wait({ ...all, horizon: 1_000n }, LONG_MS, never);
  stopping.abort();
  expect(await waiting).toBe(false);
  expect(await arrivals.wait(all, LONG_MS, never)).toBe(false);
});

test("a look that fails wakes everybody: their own reading says what is wrong", async () => {
  const { arrivals, news } = feed();
  news.push(new Error("away"));
  expect(await arrivals.wait(all, LONG_MS, never)).toBe(true);
});
