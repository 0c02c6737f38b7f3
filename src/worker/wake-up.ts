import { pause } from "./pause.ts";

/** One waiter, any number of wakers. A wake-up that comes while nobody waits is kept for the next wait. */
export interface WakeUp {
  wake(): void;
  /** Resolves when woken, when `ms` have passed, or when the signal aborts. */
  wait(ms: number, signal: AbortSignal): Promise<void>;
}

export function createWakeUp(): WakeUp {
  let woken = false;
  let stop: AbortController | null = null;
  return {
    wake() {
      woken = true;
      stop?.abort();
    },
    async wait(ms, signal) {
      if (!woken && !signal.aborted) {
        stop = new AbortController();
        await pause(ms, AbortSignal.any([signal, stop.signal]));
        stop = null;
      }
      woken = false;
    },
  };
}
