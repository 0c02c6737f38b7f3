import { setTimeout } from "node:timers/promises";

/** Waits, or until the signal aborts; never rejects. */
export async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await setTimeout(ms, undefined, { signal, ref: true }).catch(() => {});
}
