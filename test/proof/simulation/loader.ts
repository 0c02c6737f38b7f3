/**
 * Import this first. Puts simulated time and ids in the place of Node's, for the product's sources alone. The product
 * itself knows of none of it.
 */
import { registerHooks } from "node:module";
import { sim } from "./state.ts";

const PRODUCT = new URL("../../../src/", import.meta.url).href;
const SUBSTITUTES: Readonly<Record<string, string>> = {
  "node:timers/promises": "timers.ts",
  uuidv7: "ids.ts",
};
/** Of node:crypto, only ids are made anew: hashes stay what they are. */
const MAKES_IDS = [`${PRODUCT}worker/worker.ts`];

registerHooks({
  resolve(specifier, context, nextResolve) {
    const from = context.parentURL ?? "";
    const file = specifier === "node:crypto" && MAKES_IDS.includes(from) ? "ids.ts" : SUBSTITUTES[specifier];
    if (file === undefined || !from.startsWith(PRODUCT)) return nextResolve(specifier, context);
    return nextResolve(new URL(`./substitutes/${file}`, import.meta.url).href, context);
  },
});

globalThis.performance = { now: () => sim.monotonic() } as typeof performance;
globalThis.setImmediate = ((run: () => void) =>
  sim.scheduler.after(0, sim.scheduler.current, run)) as unknown as typeof setImmediate;
AbortSignal.timeout = (ms) => {
  const controller = new AbortController();
  sim.scheduler.after(ms, sim.scheduler.current, () => controller.abort());
  return controller.signal;
};
