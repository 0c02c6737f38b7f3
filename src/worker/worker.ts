import { randomUUID } from "node:crypto";
import type { Logger } from "pino";
import type { Db } from "../store/schema.ts";
import type { Wake } from "../store/wake.ts";
import { type ChannelSettings, type ChannelWorkerDeps, startChannelWorker } from "./channel.ts";
import { pause } from "./pause.ts";
import { createSettler, type Settler } from "./settle.ts";
import type { Spool } from "./spool.ts";
import { sweep } from "./sweep.ts";

export interface WorkerDeps
  extends Pick<ChannelWorkerDeps, "leaseMs" | "providerTimeoutMs" | "pollIntervalMs" | "concurrency"> {
  readonly db: Db;
  readonly channels: readonly ChannelSettings[];
  readonly wake: Wake | null;
  readonly spool: Spool;
  readonly log: Logger;
  readonly sweepIntervalMs: number;
}

export interface Worker {
  /** Random per boot: an identity that no restarted process shares. */
  readonly id: string;
  wake(channels: Iterable<string>): void;
  /** Milliseconds since the sweeper last finished a pass: how the readiness check knows that the worker lives. */
  idleMs(): number;
  /** Stops claiming, settles what is under way, and leaves before `graceMs` have passed. */
  stop(graceMs: number): Promise<void>;
}

/** Of the grace period, this much is kept for writing the verdicts of the calls that were cut off. */
const LAST_WRITES_MS = 3_000;
/** The longest that those writes may take. */
const LAST_SETTLEMENTS_MS = 1_500;
/** The longest wait for the statement that the sweeper has under way; a database that hangs may not hold the process. */
const LAST_SWEEP_MS = 1_000;

/** Starts one worker: a pipeline per channel and a sweeper. Any number of workers share one database without a leader. */
export async function startWorker(deps: WorkerDeps): Promise<Worker> {
  const id = randomUUID();
  const clock = () => performance.now();
  const log = deps.log.child({ worker: id });
  const settler = createSettler(deps.db, deps.spool, log);
  const stopping = new AbortController();
  const stopped = new AbortController();
  let sweptAt = clock();

  await replay(deps.spool, settler, log);
  const channels = new Map(
    deps.channels.map((channel) => [
      channel.id,
      startChannelWorker(channel, { ...deps, settler, log, clock, workerId: id }),
    ]),
  );
  const wake = (ids: Iterable<string>) => {
    for (const channel of ids) channels.get(channel)?.wake();
  };
  const sweeping = sweepLoop();
  const unlisten = deps.wake?.listen((channel) => wake([channel]));

  async function sweepLoop(): Promise<void> {
    while (!stopping.signal.aborted) {
      try {
        await sweep(deps.db, log, stopping.signal);
        sweptAt = clock();
      } catch (error) {
        log.error({ event: "sweep.failed", err: error }, "the sweeper could not finish its pass");
      }
      await pause(deps.sweepIntervalMs, stopping.signal);
    }
  }

  return {
    id,
    wake,
    idleMs: () => clock() - sweptAt,
    async stop(graceMs) {
      stopping.abort();
      const cutOff = AbortSignal.timeout(Math.max(0, graceMs - LAST_WRITES_MS));
      await Promise.all([...channels.values()].map((channel) => channel.stop(cutOff)));
      await settler.close(AbortSignal.timeout(LAST_SETTLEMENTS_MS));
      await Promise.race([sweeping, pause(LAST_SWEEP_MS, stopped.signal)]);
      stopped.abort();
      await unlisten?.();
    },
  };
}

/** Writes what an earlier process received and could not write. */
async function replay(spool: Spool, settler: Settler, log: Logger): Promise<void> {
  const left = await spool.take();
  if (left.unreadable > 0)
    log.error({ event: "spool.unreadable", count: left.unreadable }, "lines of the spool were cut off");
  const settled = await Promise.all(left.settlements.map((settlement) => settler.settle(settlement)));
  await left.done();
  const count = settled.filter((result) => result !== null).length;
  if (settled.length > 0)
    log.warn({ event: "spool.replayed", read: settled.length, count }, "verdicts written from the spool");
}
