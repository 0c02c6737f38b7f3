import type { Limits, RecipientLimit } from "./capability.ts";
import type { Millis } from "./delivery.ts";

/** How a channel is paced. */
export interface Pacing {
  /** Calls a second; `learned`: as the provider's answers say, once one has said it; null: no limit. */
  readonly perSecond: number | "learned" | null;
  readonly perRecipient: readonly RecipientLimit[];
  /** Who says so: the installation's own setting, or the provider's table. */
  readonly source: "setting" | "provider";
}

/** The table's limits, unless the installation sets its own. `off`: none at all, for recipients neither. */
export function pacingOf(limits: Limits, setting: number | "off" | null): Pacing {
  if (setting === "off") return { perSecond: null, perRecipient: [], source: "setting" };
  const { perSecond, perRecipient } = limits;
  return setting === null
    ? { perSecond, perRecipient, source: "provider" }
    : { perSecond: setting, perRecipient, source: "setting" };
}

/** A rate as a bucket: how many calls may come at once, and how often the next one may. */
export interface Rate {
  readonly burst: number;
  /** Milliseconds, fractions included. */
  readonly everyMs: number;
}

/** A bucket that lets no second see more than `perSecond` calls: what comes at once is taken off what comes after. */
export function rateOf(perSecond: number): Rate {
  const burst = Math.max(1, Math.floor(perSecond / 10));
  return { burst, everyMs: 1000 / (perSecond > 10 ? perSecond - burst : perSecond) };
}

/** How many calls the rate allows now. `tat`: GCRA's theoretical arrival time, null before the first call. */
export function callsLeft({ burst, everyMs }: Rate, tat: Millis | null, now: Millis): number {
  const ahead = Math.max(0, (tat ?? now) - now);
  return Math.max(0, Math.floor(burst - ahead / everyMs));
}

/** The theoretical arrival time after so many calls. */
export const afterCalls = ({ everyMs }: Rate, tat: Millis | null, calls: number, now: Millis): Millis =>
  Math.max(tat ?? now, now) + calls * everyMs;

/** When the rate allows a call: at the earliest now. */
export const nextCallAt = ({ burst, everyMs }: Rate, tat: Millis | null, now: Millis): Millis =>
  Math.max(now, (tat ?? now) - (burst - 1) * everyMs);

/** The limits that hold for a recipient. */
export const limitsOf = (limits: readonly RecipientLimit[], recipient: string): readonly RecipientLimit[] =>
  limits.filter(({ matching }) => matching === undefined || new RegExp(matching).test(recipient));

/** What is kept of a recipient: no more than its limits look back on. Ascending times in epoch milliseconds. */
export interface Pace {
  /** The latest claims. */
  readonly calls: readonly Millis[];
  /** The latest turns that were given away; deliveries are held until theirs. */
  readonly turns: readonly Millis[];
  /** A delivery whose turn had come was put off for a moment. Within one batch. */
  readonly putOff?: boolean;
}

/** When a delivery for a recipient may be called. */
export interface Turn {
  readonly at: Millis;
  /** The pace once that is used: called now, or held until then. */
  readonly pace: Pace;
}

/** The first moment, from `from` on, at which one more call breaks no limit. */
function free(limits: readonly RecipientLimit[], calls: readonly Millis[], from: Millis): Millis {
  return limits.reduce((at, limit) => {
    const oldest = calls.at(-limit.calls);
    return oldest === undefined || calls.length < limit.calls ? at : Math.max(at, oldest + limit.perMs);
  }, from);
}

const longest = (limits: readonly RecipientLimit[]): number => Math.max(1, ...limits.map(({ calls }) => calls));

/**
 * The turn of a delivery that is due. Every delivery that has to wait gets a turn of its own, so that of thousands for one
 * recipient each is held once, and not all until the same moment. `hasTurn`: its turn was given to it, and has come. No
 * window of a limit ever sees more claims than it allows, however late the turns are taken.
 */
export function turnOf(limits: readonly RecipientLimit[], pace: Pace, hasTurn: boolean, now: Millis): Turn {
  const kept = longest(limits);
  const callable = free(limits, pace.calls, now);
  const turns = (at: Millis) => [...pace.turns, at].slice(-kept);
  const called = { ...pace, calls: [...pace.calls, now].slice(-kept) };
  if (hasTurn && callable <= now) return { at: now, pace: called };
  // The turn before was taken late: this one keeps its place. Only one a batch, for the others are late altogether.
  if (hasTurn && !pace.putOff) return { at: callable, pace: { ...pace, putOff: true } };
  const at = Math.max(callable, free(limits, pace.turns, now));
  return at <= now ? { at: now, pace: { ...called, turns: turns(now) } } : { at, pace: { ...pace, turns: turns(at) } };
}

/** When a pace limits nothing any more, and can be forgotten. */
export function forgettableAt(limits: readonly RecipientLimit[], { calls, turns }: Pace): Millis {
  const window = Math.max(0, ...limits.map(({ perMs }) => perMs));
  return Math.max(calls.at(-1) ?? 0, turns.at(-1) ?? 0) + window;
}
