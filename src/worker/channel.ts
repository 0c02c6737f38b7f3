import type { Logger } from "pino";
import type { Pacing } from "../ledger/pacing.ts";
import { NEVER_CALLED, type Outcome, ownOutcome } from "../ledger/verdict.ts";
import type { Adapter, Provider } from "../providers/provider.ts";
import { type Claim, type Claimed, ClaimInDoubtError, claimDue, freezeBodies } from "../store/claims.ts";
import type { Settlement } from "../store/held.ts";
import type { Db } from "../store/schema.ts";
import { type Called, createCaller, type Ready } from "./call.ts";
import { decideDue } from "./claim.ts";
import { aborted, pause } from "./pause.ts";
import type { Settler } from "./settle.ts";
import { createWakeUp } from "./wake-up.ts";

export interface ChannelSettings {
  readonly id: string;
  readonly provider: Provider;
  readonly adapter: Adapter;
  /** Fingerprint of the account's credentials. */
  readonly credentials: string;
  readonly pacing: Pacing;
}

export interface ChannelWorkerDeps {
  readonly db: Db;
  readonly settler: Settler;
  readonly log: Logger;
  /** Random per boot. */
  readonly workerId: string;
  readonly leaseMs: number;
  readonly providerTimeoutMs: number;
  readonly pollIntervalMs: number;
  /** Provider calls under way at once; never more claims are held than can be called. */
  readonly concurrency: number;
  /** Monotonic milliseconds. */
  readonly clock: () => number;
}

export interface ChannelWorker {
  /** Something may be due. */
  wake(): void;
  readonly inFlight: number;
  /** Stops claiming, waits for the calls under way; aborts them when `deadline` does. */
  stop(deadline: AbortSignal): Promise<void>;
}

const NEVER = new AbortController().signal;
/** Within this time a call that was cut off has said so. */
const CUT_OFF_MS = 500;

/** Deliveries that are due within so short a time of each other are claimed together. */
const NEAREST_MS = 20;

const NOT_CALLED: Called = { outcome: ownOutcome("deferred", NEVER_CALLED), answer: null, latencyMs: null };

/** gate → claim → call → settle, for one channel: claims as many as it has free slots for, again and again. */
export function startChannelWorker(channel: ChannelSettings, deps: ChannelWorkerDeps): ChannelWorker {
  const { capability } = channel.provider;
  const call = createCaller(channel.adapter, capability, deps.clock);
  const log = deps.log.child({ channel: channel.id });
  const stopping = new AbortController();
  const cutOff = new AbortController();
  const due = createWakeUp();
  const slots = createWakeUp();
  /** Claims held: slots that are taken until their attempt is settled. */
  let busy = 0;
  /** Of those, the ones whose outcome is not known yet. */
  let unanswered = 0;
  let crowded = false;
  let batches = 0;
  const loop = run();

  async function run(): Promise<void> {
    let failures = 0;
    while (!stopping.signal.aborted) {
      if (busy >= deps.concurrency) {
        await slots.wait(deps.pollIntervalMs, stopping.signal);
        continue;
      }
      try {
        const { more, tokenInMs, dueInMs } = await claimAndCall(deps.concurrency - busy);
        failures = 0;
        // Whatever else becomes due, nothing may be claimed before the next token comes.
        if (tokenInMs > 0) await pause(Math.min(deps.pollIntervalMs, Math.ceil(tokenInMs)), stopping.signal);
        else if (!more) await due.wait(untilDue(dueInMs), stopping.signal);
      } catch (error) {
        failures += 1;
        log.error({ event: "claim.failed", failures, err: error }, "nothing was called: the claim could not be made");
        await pause(Math.min(100 * 2 ** Math.min(failures, 6), 5_000), stopping.signal);
      }
    }
  }

  const untilDue = (ms: number | null): number =>
    Math.min(deps.pollIntervalMs, Math.max(NEAREST_MS, Math.ceil(ms ?? Infinity)));

  async function claimAndCall(limit: number): Promise<Claimed> {
    const leaseHoldsUntil = deps.clock() + deps.leaseMs;
    const claimed = await claim(limit);
    const { claims } = claimed;
    crowded = claimed.crowded;
    busy += claims.length;
    unanswered += claims.length;
    const ready = await renderAll(claims);
    await freeze(ready);
    for (const one of ready) void deliver(one, leaseHoldsUntil);
    return claimed;
  }

  async function claim(limit: number): Promise<Claimed> {
    batches += 1;
    const claimedBy = `${deps.workerId}/${channel.id}/${batches}`;
    const { leaseMs } = deps;
    const request = { channel: channel.id, limit, claimedBy, leaseMs, pacing: channel.pacing, crowded };
    try {
      return await claimDue(deps.db, request, (delivery, now) => decideDue(delivery, capability, now));
    } catch (error) {
      // The claims may stand. Nothing was called under them, and their worker is the one who can say so.
      if (error instanceof ClaimInDoubtError) for (const doubtful of error.claims) void settle(doubtful, NOT_CALLED);
      throw error;
    }
  }

  /** After the claim, so that a message whose rendering kills the process has used up an attempt. */
  async function renderAll(claims: readonly Claim[]): Promise<readonly Ready[]> {
    const ready: Ready[] = [];
    for (const one of claims) {
      const { deliveryId, to, message, frozenBody } = one;
      try {
        ready.push({ claim: one, body: frozenBody ?? (await channel.adapter.render({ deliveryId, to, message })) });
      } catch {
        void conclude(one, { outcome: ownOutcome("refused", "unrenderable"), answer: null, latencyMs: null });
      }
    }
    return ready;
  }

  /** Freezes the bodies where the provider compares bodies: before the call, so that a repeat is the same bytes. */
  async function freeze(ready: readonly Ready[]): Promise<void> {
    if (capability.idempotency.by !== "key" || !capability.idempotency.payloadBound) return;
    const fresh = ready.filter((one) => one.claim.frozenBody === null);
    if (fresh.length === 0) return;
    try {
      await freezeBodies(deps.db, fresh);
    } catch (error) {
      for (const one of ready) void conclude(one.claim, NOT_CALLED);
      throw error;
    }
  }

  async function deliver(ready: Ready, leaseHoldsUntil: number): Promise<void> {
    const limits = { timeoutMs: deps.providerTimeoutMs, leaseHoldsUntil };
    const called = await call(ready, limits, cutOff.signal);
    await conclude(ready.claim, called);
  }

  /** A claim of ours has its outcome; its slot is free when that is written. */
  async function conclude(claim: Claim, called: Called): Promise<void> {
    unanswered -= 1;
    await settle(claim, called);
    busy -= 1;
    slots.wake();
  }

  async function settle(claim: Claim, { outcome, answer, latencyMs }: Called): Promise<void> {
    const source = outcome.reason === NEVER_CALLED ? "never_called" : "answer";
    const { deliveryId, producerId, number } = claim;
    const settlement: Settlement = {
      deliveryId,
      producerId,
      number,
      outcome,
      witness: { source, by: claim.claimedBy },
      credentials: channel.credentials,
      answer: answer && { phase: answer.phase, status: answer.status, code: answer.code, message: answer.message },
      ...(answer && latencyMs !== null && { call: { latencyMs, limitPerSecond: answer.limitPerSecond } }),
    };
    const settled = await deps.settler.settle(settlement);
    logSettled(claim, outcome, answer?.status ?? null, settled?.state ?? null);
  }

  function logSettled(claim: Claim, outcome: Outcome, status: number | null, state: string | null): void {
    const line = {
      event: "attempt.settled",
      delivery_id: claim.deliveryId,
      attempt: claim.number,
      verdict: outcome.verdict,
      reason: outcome.reason,
      status_code: status,
      state,
    };
    if (outcome.alarm) log.error(line, "an answer that should not occur");
    else if (state === "needs_attention") log.warn(line, "a person must decide");
    else log.info(line);
  }

  async function allAnswered(): Promise<void> {
    while (unanswered > 0) await pause(20, NEVER);
  }

  return {
    wake: due.wake,
    get inFlight() {
      return busy;
    },
    async stop(deadline) {
      stopping.abort();
      const late = aborted(deadline);
      // A claim that waits for a database that is away must not hold up the rest.
      await Promise.race([loop, late]);
      void late.then(() => cutOff.abort());
      // Calls that were cut off end at once; claims that wait to be frozen are left to their lease.
      const patience = late.then(() => pause(CUT_OFF_MS, NEVER));
      await Promise.race([allAnswered(), patience]);
    },
  };
}
