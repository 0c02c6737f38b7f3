import { Random } from "./random.ts";
import { Scheduler } from "./scheduler.ts";

/** The one history that is being simulated: what stands in for timers, ids and clocks reads it here. */
export const sim: {
  scheduler: Scheduler;
  /** For ids. */
  ids: Random;
  /** Milliseconds that the process whose event is happening has lived through, by its own clock. */
  monotonic: () => number;
} = { scheduler: new Scheduler(0), ids: new Random(0, 0), monotonic: () => 0 };
