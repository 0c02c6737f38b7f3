import type { MiddlewareHandler } from "hono";
import { groupCommit } from "../store/group-commit.ts";
import type { ApiEnv, Clock } from "./env.ts";
import { Problem } from "./problem.ts";

/**
 * How long a request waits for the database, all its statements together. The contract: when the database cannot commit,
 * the answer is a 503 within ten seconds.
 */
export const PATIENCE_MS = 8_000;

/** Callers whose work waits for the same lanes: what is more is turned away at once, so that memory stays bounded. */
const MAX_WAITING = 10_000;

export const unavailable = (detail: string): Problem =>
  new Problem("unavailable", detail, { headers: { "retry-after": "5" } });

/** Rejects when the work is late. The work goes on: what it does to the ledger stands, and a repeat finds it. */
export async function inTime<T>(work: Promise<T>, ms: number): Promise<T> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => late.reject(unavailable("the database did not answer in time")), ms);
  try {
    return await Promise.race([work, late.promise]);
  } finally {
    clearTimeout(timer);
  }
}

function createClock(onLate: () => void): Clock {
  let leftMs = PATIENCE_MS;
  let startedAt = 0;
  let timer: NodeJS.Timeout | undefined;
  return {
    run() {
      startedAt = performance.now();
      timer = setTimeout(onLate, leftMs);
    },
    stand() {
      clearTimeout(timer);
      leftMs -= performance.now() - startedAt;
    },
  };
}

/** Answers 503 when the request waits too long for the database, wherever it waits. */
export const boundPatience: MiddlewareHandler<ApiEnv> = async (context, next) => {
  const late = Promise.withResolvers<never>();
  const clock = createClock(() =>
    late.reject(unavailable("the ledger did not answer in time; a repeat under the same name is safe")),
  );
  context.set("clock", clock);
  clock.run();
  try {
    await Promise.race([next(), late.promise]);
  } finally {
    clock.stand();
  }
};

/**
 * `groupCommit` for requests: a lane whose statement hangs is given up, so that later requests do not queue behind a dead
 * connection, and the queue is bounded.
 */
export function groupRequests<Item, Result>(
  write: (items: readonly Item[]) => Promise<readonly Result[]>,
): (item: Item) => Promise<Result> {
  const grouped = groupCommit((items: readonly Item[]) => inTime(write(items), PATIENCE_MS), {
    maxItems: 500,
    lanes: 2,
  });
  let waiting = 0;
  return async (item) => {
    if (waiting >= MAX_WAITING) throw unavailable("too many requests wait for the database");
    waiting += 1;
    try {
      return await grouped(item);
    } finally {
      waiting -= 1;
    }
  };
}
