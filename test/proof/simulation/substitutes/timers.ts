import { sim } from "../state.ts";

/** Stands in for `setTimeout` of node:timers/promises. */
export function setTimeout<T>(ms: number, value: T, { signal }: { signal?: AbortSignal } = {}): Promise<T> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const { scheduler } = sim;
    const owner = scheduler.current;
    const onAbort = () => {
      event.run = null;
      scheduler.after(0, owner, () => reject(signal?.reason));
    };
    const event = scheduler.after(ms, owner, () => {
      signal?.removeEventListener("abort", onAbort);
      resolve(value);
    });
    signal?.addEventListener("abort", onAbort, { once: true });
  });
}
