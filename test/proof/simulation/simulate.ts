import { check, type Violation } from "../checker/check.ts";
import type { History } from "../checker/history.ts";
import type { Fault } from "./faults.ts";
import { Front, People } from "./people.ts";
import type { Process } from "./process.ts";
import { Workers } from "./workers.ts";
import { RESEND_WINDOW_MS, type Scope, WHOLE, World } from "./world.ts";

export interface Simulated {
  readonly violations: readonly Violation[];
  readonly history: History;
  readonly faults: readonly { readonly number: number; readonly fault: Fault }[];
  /** Things that happened. */
  readonly events: number;
}

export interface SimulateOptions {
  readonly scope?: Scope;
  readonly trace?: (line: string) => void;
}

/** With all faults over, what is still to be done is done within this time: four rungs, their longest waits, and what they waited for. */
const CALM_MS = 60 * 60_000;
/** Resend's margin is an hour: as far as that, clocks may differ. */
const MOST_SKEW_MS = 20 * 60_000;

/** One history, from its seed: what happened in it, and what is wrong with that. */
export async function simulate(seed: number, { scope = WHOLE, trace }: SimulateOptions = {}): Promise<Simulated> {
  const world = new World(seed, scope, trace ?? null);
  const { scheduler, plan, faults, providers, network } = world;
  const workers = new Workers(world, trace !== undefined);
  const people = new People(world, new Front(world), (channel) => workers.wake(channel));
  scheduler.beforeEvent = (owner) => strike(world, workers, owner as Process);
  if (plan.deployAt !== null) scheduler.at(world.beginning + plan.deployAt, null, () => workers.deploy());
  scheduler.at(world.beginning + plan.troubleMs, null, () => {
    world.trace("all faults are over");
    faults.isOver = true;
    tidyUp(world, people);
  });
  const isOver = () =>
    world.outstanding === 0 &&
    Object.values(providers).every(({ underWay }) => underWay === 0) &&
    network.server.model.deliveries.rows(null).every(({ state }) => state !== "pending" && state !== "claimed") &&
    network.server.model.attempts.rows(null).every((attempt) => attempt.settled_at !== null) &&
    workers.areDone;
  const calm = CALM_MS + 10 * (plan.pollMs + plan.sweepMs);
  await scheduler.run(Math.max(world.beginning + plan.troubleMs, endOfPause(world)) + calm, isOver);
  // A night may have come in between.
  if (!isOver()) await scheduler.run(scheduler.now + RESEND_WINDOW_MS + 3 * calm, isOver);
  const history = historyOf(world, people);
  return { violations: check(history), history, faults: faults.happened, events: scheduler.events };
}

const endOfPause = ({ beginning, plan }: World): number => beginning + (plan.pause?.until ?? 0);

/** With the faults over, an operator looks every minute whether a channel is held, and resumes it. */
function tidyUp(world: World, people: People): void {
  const held = [...world.network.server.model.channels.rows(null)].filter(({ paused_at: at }) => at !== null);
  for (const { id } of held) if (world.scheduler.now > endOfPause(world)) people.resume(id);
  world.scheduler.after(60_000, null, () => tidyUp(world, people));
}

/** The faults of a process, and of the world, between two steps of it. */
function strike(world: World, workers: Workers, process: Process): boolean {
  const { faults, random, plan, network, scheduler } = world;
  if (faults.isOver) return true;
  if (faults.strikes("death")) {
    process.kill();
    return false;
  }
  if (faults.strikes("stop")) process.freeze(random.between(100, 3 * plan.leaseMs), false);
  if (faults.strikes("suspend")) process.freeze(random.between(1_000, 3 * plan.leaseMs), true);
  if (faults.strikes("clockJump")) {
    network.server.skew = random.between(-MOST_SKEW_MS, MOST_SKEW_MS);
    world.trace(`the database's clock is ${network.server.skew} ms ahead`);
  }
  if (faults.strikes("outage")) {
    network.outageUntil = scheduler.now + random.between(100, 60_000);
    for (const connection of [...network.connections]) scheduler.after(0, null, () => connection.lose("57P01"));
  }
  if (faults.strikes("night")) {
    world.trace("all workers are down");
    workers.night();
    return false;
  }
  return true;
}

function historyOf({ network, providers }: World, { posts, decisions, notices }: People): History {
  const { model } = network.server;
  return {
    channels: { email: { deduplicates: { windowMs: RESEND_WINDOW_MS } }, telegram: { deduplicates: null } },
    posts,
    calls: Object.values(providers).flatMap(({ calls }) => calls),
    decisions,
    notices,
    tables: {
      deliveries: [...model.deliveries.rows(null)],
      messages: [...model.messages.rows(null)],
      attempts: [...model.attempts.rows(null)],
      attention_items: [...model.items.rows(null)],
      receipts: [...model.receipts.rows(null)],
      events: [...model.events.rows(null)],
    },
  };
}
