import type { Db } from "../../../src/store/schema.ts";
import { type Network, openSimulated } from "./database/connection.ts";
import type { Model } from "./database/model.ts";
import { Server } from "./database/server.ts";
import { Tx } from "./database/tables.ts";
import { type Fault, Faults } from "./faults.ts";
import { type Plan, planOf } from "./plan.ts";
import { Process } from "./process.ts";
import { RESEND, SimulatedProvider, TELEGRAM } from "./provider.ts";
import { Random } from "./random.ts";
import { Scheduler } from "./scheduler.ts";
import { sim } from "./state.ts";

/** What may be left out of a history, to see whether it still fails. */
export interface Scope {
  /** Numbers of the faults that may happen; null: all. */
  readonly only: ReadonlySet<number> | null;
  readonly without: readonly Fault[];
  /** Places of the deliveries that are posted; null: all. */
  readonly deliveries: readonly number[] | null;
}

export const WHOLE: Scope = { only: null, without: [], deliveries: null };

/** 2026-01-01, for every history. */
const BEGINNING = Date.UTC(2026, 0, 1);
export const PRODUCER = "00000000-0000-4000-8000-000000000002";
export const CHANNELS = { email: "resend", telegram: "telegram" } as const;

/** One simulated world: its time, its network, its database, its providers; who lives in it is elsewhere. */
export class World {
  readonly plan: Plan;
  readonly scheduler = new Scheduler(BEGINNING);
  readonly random: Random;
  readonly faults: Faults;
  readonly network: Network;
  readonly providers: Readonly<Record<"email" | "telegram", SimulatedProvider>>;
  /** What somebody outside still wants to do: the history is not over before. */
  outstanding = 0;
  readonly trace: (what: string) => void;
  #processes = 0;

  constructor(seed: number, scope: Scope, trace: ((line: string) => void) | null) {
    const plan = planOf(seed);
    this.plan = {
      ...plan,
      deliveries: plan.deliveries.filter((_, place) => scope.deliveries?.includes(place) ?? true),
    };
    this.trace = trace
      ? (what) => trace(`${((this.scheduler.now - BEGINNING) / 1000).toFixed(3).padStart(10)} s  ${what}`)
      : () => {};
    const rates = Object.fromEntries(
      Object.entries(plan.rates).map(([fault, rate]) => [fault, scope.without.includes(fault as Fault) ? 0 : rate]),
    ) as Record<Fault, number>;
    this.random = new Random(seed, 3);
    this.faults = new Faults(seed, rates, scope.only, this.trace);
    const { faults, random, scheduler } = this;
    const server = new Server(scheduler);
    this.network = { server, faults, random, outageUntil: 0, connections: new Set() };
    this.providers = {
      email: new SimulatedProvider({ channel: "email", windowMs: RESEND_WINDOW_MS, answers: RESEND }, this),
      telegram: new SimulatedProvider({ channel: "telegram", windowMs: null, answers: TELEGRAM }, this),
    };
    sim.scheduler = scheduler;
    sim.ids = new Random(seed, 4);
    sim.monotonic = () => (scheduler.current instanceof Process ? scheduler.current.monotonic : scheduler.now);
    configure(server.model);
  }

  get beginning(): number {
    return BEGINNING;
  }

  /** A new process, with its own pool of connections. */
  spawn(name: string): { readonly process: Process; readonly db: Db } {
    this.#processes += 1;
    const process = new Process(this.scheduler, `${name}-${this.#processes}`);
    return { process, db: openSimulated(this.network, process) };
  }
}

/** "We keep idempotency keys in our system for 24 hours" (providers.md); written here again, and not taken from the product. */
export const RESEND_WINDOW_MS = 24 * 3_600_000;

function configure(model: Model): void {
  const tx = new Tx(BEGINNING);
  for (const [id, provider] of Object.entries(CHANNELS)) {
    model.channels.put(tx, id, {
      ...{ id, provider, paused_at: null, paused_until: null, pause_reason: null, pause_note: null, paused_by: null },
      ...{ breaker_opened_at: null, breaker_open_until: null, recent_calls: "", paced_until: null, learned_rate: null },
      credential_fingerprint: "credentials",
    });
  }
  tx.end(true);
}
