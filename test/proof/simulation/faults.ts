import { Random } from "./random.ts";

/**
 * What can go wrong where a process waits for something, or something is done for it, and how likely it is where that is
 * asked: a history has some of them often, some seldom, some not at all.
 */
export const RATES = {
  /** The process is killed at this await. */
  death: [0, 0.002, 0.01],
  /** It is stopped for a while; its clock goes on. */
  stop: [0, 0.001, 0.005],
  /** Its whole machine is: its clock stands, too. */
  suspend: [0, 0, 0.002],
  /** The connection is lost, and the statement was never executed. */
  lostBefore: [0, 0.002, 0.01],
  /** The connection is lost after the statement was executed: of a commit, the answer alone. */
  lostAfter: [0, 0.002, 0.01],
  /** The server refuses the commit: nothing of the transaction stays. */
  commitRefused: [0, 0.01, 0.05],
  /** A statement takes seconds. */
  slowStatement: [0, 0, 0.005],
  /** The server goes away for a while, and all connections with it. */
  outage: [0, 0, 0.002],
  /** The database's clock jumps. */
  clockJump: [0, 0, 0.002],
  /** What the provider answers is not plain success. */
  provider: [0.1, 0.4, 0.8],
  /** Webhooks come late, twice, in another order, or never. */
  webhook: [0, 0.3, 0.8],
  /** A NOTIFY is lost: the worker finds out at its next poll. */
  lostWake: [0, 0.2],
  /** All workers are down for about a day. */
  night: [0, 0, 0.001],
} as const;
export type Fault = keyof typeof RATES;

/**
 * Decides where faults happen. Every question has a number; a replay may allow only some of them (`only`), or no fault of
 * some kinds (`without`): that is how a failing history is made smaller.
 */
export class Faults {
  /** The numbers of the faults that happened. */
  readonly happened: { readonly number: number; readonly fault: Fault }[] = [];
  /** No faults any more. */
  isOver = false;
  #asked = 0;
  readonly #random: Random;
  readonly #rates: Readonly<Record<Fault, number>>;
  readonly #only: ReadonlySet<number> | null;
  readonly #trace: (what: string) => void;

  constructor(
    seed: number,
    rates: Readonly<Record<Fault, number>>,
    only: ReadonlySet<number> | null,
    trace: (what: string) => void,
  ) {
    this.#random = new Random(seed, 2);
    this.#rates = rates;
    this.#only = only;
    this.#trace = trace;
  }

  /** Does it happen here? `factor` makes it likelier where it matters more. */
  strikes(fault: Fault, factor = 1): boolean {
    this.#asked += 1;
    const happens = this.#random.next() < this.#rates[fault] * factor;
    if (!happens || this.isOver || (this.#only && !this.#only.has(this.#asked))) return false;
    this.happened.push({ number: this.#asked, fault });
    this.#trace(`fault ${this.#asked}: ${fault}`);
    return true;
  }
}
