import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { groupRequests, PATIENCE_MS } from "../../src/api/patience.ts";

beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] }));
afterEach(() => void vi.useRealTimers());

const turn = () => new Promise((resolve) => setImmediate(resolve));

test("a lane whose statement hangs is given up: later requests do not queue behind a dead connection", async () => {
  let hangs = true;
  const ask = groupRequests(async (items: readonly string[]) => {
    if (hangs) await new Promise(() => {});
    return items;
  });
  const lost = [ask("a")];
  await turn();
  lost.push(ask("b"));
  await turn();
  hangs = false;
  const queued = ask("c");
  const settled = Promise.allSettled(lost);
  await turn();
  vi.advanceTimersByTime(PATIENCE_MS);
  expect((await settled).map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  expect(await queued).toBe("c");
});

test("callers beyond the bound of the queue are turned away at once", async () => {
  const ask = groupRequests(() => new Promise<never>(() => {}));
  for (let i = 0; i < 10_000; i += 1) ask(i).catch(() => {});
  await expect(ask(0)).rejects.toMatchObject({ type: "unavailable" });
});
