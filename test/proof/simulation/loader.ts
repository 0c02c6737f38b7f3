/**
 * Import this first. Puts simulated time and ids in the place of Node's, for the product's sources alone; and, for the
 * mutation check, one deliberate bug into one of them (mutants.ts). The product itself knows of none of it.
 */
import { registerHooks } from "node:module";
import { MUTANTS } from "./mutants.ts";
import { sim } from "./state.ts";

const PRODUCT = new URL("../../../src/", import.meta.url).href;
const SUBSTITUTES: Readonly<Record<string, string>> = {
  "node:timers/promises": "timers.ts",
  uuidv7: "ids.ts",
};
/** Of node:crypto, only ids are made anew: hashes stay what they are. */
const MAKES_IDS = [`${PRODUCT}worker/worker.ts`];

const mutant = MUTANTS.find(({ name }) => name === process.env["SIMULATED_BUG"]);
if (process.env["SIMULATED_BUG"] && !mutant) throw new Error(`no such bug: ${process.env["SIMULATED_BUG"]}`);

registerHooks({
  resolve(specifier, context, nextResolve) {
    const from = context.parentURL ?? "";
    const file = specifier === "node:crypto" && MAKES_IDS.includes(from) ? "ids.ts" : SUBSTITUTES[specifier];
    if (file === undefined || !from.startsWith(PRODUCT)) return nextResolve(specifier, context);
    return nextResolve(new URL(`./substitutes/${file}`, import.meta.url).href, context);
  },
  load(url, context, nextLoad) {
    const loaded = nextLoad(url, context);
    if (!mutant || url !== `${PRODUCT}${mutant.file}`) return loaded;
    const source = String(loaded.source);
    if (source.split(mutant.replace).length !== 2)
      throw new Error(`${mutant.name}: its place is not found once in ${mutant.file}`);
    return { ...loaded, source: source.replace(mutant.replace, () => mutant.by) };
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
