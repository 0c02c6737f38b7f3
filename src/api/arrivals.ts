import type { ProducerId } from "../ledger/delivery.ts";
import type { News } from "../store/feed.ts";
import { unavailable } from "./patience.ts";

/** Requests that wait at once in this process; what is more is turned away, so that memory stays bounded. */
const MAX_WAITING = 5_000;

/** What somebody waits for. */
export interface Sought {
  /** Null: everybody's events. */
  readonly producerId: ProducerId | null;
  /** Null: all types. */
  readonly types: RegExp | null;
  /** Up to where it was looked when nothing was there. */
  readonly horizon: bigint;
}

export interface Arrivals {
  /** True: such events may be readable now. False: the time is over, nobody waits for the answer any more, or we stop. */
  wait(sought: Sought, ms: number, gone: AbortSignal): Promise<boolean>;
}

interface Waiter {
  readonly sought: Sought;
  end(news: boolean): void;
}

/**
 * For requests that wait for events: one look at the feed for all of them, every `everyMs`, and only while somebody waits.
 * Whom the news concern reads for itself. A look that fails wakes everybody: their own reading tells them why.
 */
export function createArrivals(look: (since: bigint) => Promise<News>, stopping: AbortSignal, everyMs = 100): Arrivals {
  const waiting = new Set<Waiter>();
  /** Up to where the looks have gone; null: nobody looks. */
  let seen: bigint | null = null;

  stopping.addEventListener("abort", () => {
    for (const waiter of waiting) waiter.end(false);
  });

  async function watch(from: bigint): Promise<void> {
    let since = from;
    for (seen = since; ; seen = since) {
      await pause(everyMs);
      if (waiting.size === 0) break;
      const news = await look(since).catch(() => null);
      since = news?.horizon ?? since;
      for (const waiter of waiting) if (concerns(news, waiter.sought)) waiter.end(true);
    }
    seen = null;
  }

  function wait(sought: Sought, ms: number, gone: AbortSignal): Promise<boolean> {
    if (stopping.aborted || gone.aborted) return Promise.resolve(false);
    // A look went by between this one's reading and now: nobody would tell it what that look has seen.
    if (seen !== null && sought.horizon < seen) return Promise.resolve(true);
    if (waiting.size >= MAX_WAITING) throw unavailable("too many requests wait for events");
    return new Promise((resolve) => {
      const leave = () => waiter.end(false);
      const timer = setTimeout(leave, ms);
      const waiter: Waiter = {
        sought,
        end(news) {
          waiting.delete(waiter);
          clearTimeout(timer);
          gone.removeEventListener("abort", leave);
          resolve(news);
        },
      };
      gone.addEventListener("abort", leave);
      waiting.add(waiter);
      if (seen === null) void watch(sought.horizon);
    });
  }

  return { wait };
}

function concerns(news: News | null, { producerId, types }: Sought): boolean {
  if (news === null || news.events === null) return true;
  return news.events.some(
    (event) => (producerId === null || event.producerId === producerId) && (types === null || types.test(event.type)),
  );
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms).unref());
