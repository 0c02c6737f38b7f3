import type { Logger } from "pino";
import { PROVIDERS } from "../../../src/providers/index.ts";
import type { Settlement } from "../../../src/store/held.ts";
import { startReconciler } from "../../../src/worker/reconcile.ts";
import type { Spool } from "../../../src/worker/spool.ts";
import { startWorker, type Worker } from "../../../src/worker/worker.ts";
import type { Process } from "./process.ts";
import { CHANNELS, type World } from "./world.ts";

/** A log for nobody; where a history is traced, for whoever reads that. */
function logOf(world: World, name: string, isTraced: boolean): Logger {
  const write = (level: string) => (fields: { event?: string; err?: unknown }, text: string) => {
    if (isTraced) world.trace(`${name} ${level} ${fields.event ?? ""} ${text} ${fields.err ? String(fields.err) : ""}`);
  };
  const log = {
    info: write("info"),
    warn: write("warn"),
    error: write("error"),
    child: () => log,
  } as unknown as Logger;
  return log;
}

/** The disk of a worker's machine: it outlives the process. */
class Disk {
  readonly #files = new Map<string, readonly string[]>();

  get isEmpty(): boolean {
    return this.#files.size === 0;
  }

  spoolFor(process: Process, world: World): Spool {
    const own = process.name;
    /** A write that is under way when the process dies may be there or not. */
    const written = (write: () => void): Promise<void> =>
      new Promise((resolve) => {
        world.scheduler.after(world.random.between(1, 20), null, () => {
          if (!process.alive && world.random.chance(0.5)) return;
          write();
          world.scheduler.after(0, process, resolve);
        });
      });
    return {
      keep: (settlements) =>
        settlements.length === 0
          ? Promise.resolve()
          : written(() =>
              this.#files.set(own, [...(this.#files.get(own) ?? []), ...settlements.map((one) => JSON.stringify(one))]),
            ),
      clear: () => written(() => this.#files.delete(own)),
      take: async () => {
        const names = [...this.#files.keys()].filter((name) => name !== own);
        const lines = names.flatMap((name) => this.#files.get(name) ?? []);
        const settlements = lines.map((line) => JSON.parse(line) as Settlement);
        return {
          settlements,
          unreadable: 0,
          done: () =>
            written(() => {
              for (const name of names) this.#files.delete(name);
            }),
        };
      },
    };
  }
}

/** Rates are not simulated. */
const NO_PACE = { perSecond: null, perRecipient: [], source: "setting" } as const;

/** Places where a worker runs: each is started anew when it has died. */
export class Workers {
  readonly #world: World;
  readonly #isTraced: boolean;
  readonly #places: { readonly disk: Disk; process: Process | null; worker: Worker | null }[];
  /** Until then none is started. */
  #nightUntil = 0;

  constructor(world: World, isTraced: boolean) {
    this.#world = world;
    this.#isTraced = isTraced;
    this.#places = Array.from({ length: world.plan.workers }, () => ({
      disk: new Disk(),
      process: null,
      worker: null,
    }));
    for (const place of this.#places.keys()) this.#start(place);
  }

  /** Verdicts that wait for the next start. */
  get areDone(): boolean {
    return this.#places.every(({ disk }) => disk.isEmpty);
  }

  /** What a NOTIFY does. */
  wake(channel: string): void {
    const { scheduler, faults } = this.#world;
    for (const { process, worker } of this.#places) {
      if (!process || !worker || faults.strikes("lostWake")) continue;
      scheduler.after(1, process, () => worker.wake([channel]));
    }
  }

  /** All of them down, for about a day. */
  night(): void {
    const { scheduler, random } = this.#world;
    this.#nightUntil = scheduler.now + random.between(22 * 60, 26 * 60) * 60_000;
    for (const { process } of this.#places) process?.kill();
  }

  /** Each is stopped in order, and started anew. */
  deploy(): void {
    const { scheduler, random } = this.#world;
    for (const [index, place] of this.#places.entries()) {
      const { process, worker } = place;
      if (!process || !worker) continue;
      scheduler.after(index * 2_000, process, () => {
        void worker.stop(random.between(3_500, 35_000)).finally(() => process.kill());
      });
    }
  }

  #start(index: number): void {
    const { scheduler, random, plan, providers } = this.#world;
    const place = this.#places[index];
    if (!place || scheduler.now < this.#nightUntil) {
      scheduler.at(this.#nightUntil, null, () => this.#start(index));
      return;
    }
    const { process, db } = this.#world.spawn(`worker${index}`);
    place.process = process;
    process.whenKilled(() => {
      this.#world.trace(`${process.name} is dead`);
      place.process = null;
      place.worker = null;
      scheduler.after(random.between(100, 30_000), null, () => this.#start(index));
    });
    const log = logOf(this.#world, process.name, this.#isTraced);
    const channels = Object.entries(CHANNELS).map(([id, name]) => {
      const provider = PROVIDERS[name];
      if (!provider) throw new Error(`no provider ${name}`);
      const adapter = providers[id as keyof typeof CHANNELS].adapterFor(process);
      return { id, provider, adapter, credentials: "credentials", pacing: NO_PACE };
    });
    scheduler.after(0, process, () => {
      const deps = { db, channels, wake: null, spool: place.disk.spoolFor(process, this.#world), log, concurrency: 4 };
      const times = { leaseMs: plan.leaseMs, providerTimeoutMs: plan.providerTimeoutMs };
      const intervals = { pollIntervalMs: plan.pollMs, sweepIntervalMs: plan.sweepMs };
      void startWorker({ ...deps, ...times, ...intervals }).then(
        (worker) => {
          place.worker = worker;
        },
        () => process.kill(),
      );
      if (plan.lookupMs === null) return;
      const clients = new Map([["email", providers.email.lookupFor(process)]]);
      startReconciler({ db, log, intervalMs: plan.lookupMs }, clients);
    });
  }
}
