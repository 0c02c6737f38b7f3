import { setTimeout } from "node:timers/promises";
import type { Logger } from "pino";
import type { ProducerId } from "../ledger/delivery.ts";
import {
  type ClaimedMessage,
  claimMessages,
  fanOut,
  forgetMessages,
  type Outcome,
  settleMessage,
  type Told,
} from "../store/callback-messages.ts";
import type { Db } from "../store/schema.ts";
import { DISABLED_AFTER_DAYS, nextWaitS } from "./ladder.ts";
import { openPoster, type Poster, type PostResult } from "./post.ts";
import { signedHeaders } from "./sign.ts";

export interface CallbackDeps {
  readonly db: Db;
  readonly log: Logger;
  readonly allowPrivate: boolean;
  readonly pollIntervalMs: number;
  /** Posts under way at once. */
  readonly concurrency: number;
  /** For one post. */
  readonly timeoutMs?: number;
}

export interface Callbacks {
  /** Claims no more, and waits for the posts under way, which are bounded in time. */
  stop(): Promise<void>;
}

const EVENTS_AT_ONCE = 200;
/** Posts to one receiver under way at once. */
const PER_CALLBACK = 4;
const FORGET_EVERY_MS = 60_000;
const DAY_MS = 86_400_000;

/** The body of a message: what happened, and the delivery as it stands. No contents, no recipients. */
export function bodyOf(told: Told): string {
  const { type, at, data, delivery } = told;
  const event_id = `${told.tx}-${told.id}`;
  return JSON.stringify({ type, timestamp: at.toISOString(), data: { event_id, delivery, event: data } });
}

/** Stable over repeats and replays: by it a receiver knows a message that it has had. */
export const messageId = ({ tx, eventId }: Pick<ClaimedMessage, "tx" | "eventId">): string => `evt_${tx}_${eventId}`;

/** Tells producers what became of their deliveries. Any number of processes may do so side by side. */
export function startCallbacks(deps: CallbackDeps): Callbacks {
  const { db, log, concurrency } = deps;
  const timeoutMs = deps.timeoutMs ?? 15_000;
  const poster = openPoster({ allowPrivate: deps.allowPrivate, timeoutMs });
  const stopping = new AbortController();
  const busy = new Map<ProducerId, number>();
  const under = new Set<Promise<void>>();
  let forgotAt = performance.now();
  const loop = run();

  async function run(): Promise<void> {
    for (let failures = 0; !stopping.signal.aborted; ) {
      let found = 0;
      try {
        found = await pass();
        failures = 0;
      } catch (error) {
        failures += 1;
        log.error({ event: "callbacks.failed", failures, err: error }, "callbacks could not be read or claimed");
      }
      const wait = found > 0 ? 0 : Math.min(deps.pollIntervalMs * 2 ** failures, 30_000);
      if (wait > 0) await setTimeout(wait, null, { signal: stopping.signal }).catch(() => {});
    }
  }

  async function pass(): Promise<number> {
    const looked = await fanOut(db, EVENTS_AT_ONCE, bodyOf);
    const free = concurrency - under.size;
    const full = [...busy].filter(([, count]) => count >= PER_CALLBACK).map(([id]) => id);
    const claimed =
      free <= 0
        ? []
        : await claimMessages(db, {
            limit: free,
            perCallback: PER_CALLBACK,
            leaseS: timeoutMs / 1000 + 30,
            busy: full,
          });
    for (const message of claimed) {
      const work = deliver(message).finally(() => under.delete(work));
      under.add(work);
    }
    if (performance.now() - forgotAt > FORGET_EVERY_MS) {
      await forgetMessages(db, 1_000);
      forgotAt = performance.now();
    }
    if (free <= 0 && looked === 0) await Promise.race(under);
    return looked + claimed.length;
  }

  async function deliver(message: ClaimedMessage): Promise<void> {
    busy.set(message.producerId, (busy.get(message.producerId) ?? 0) + 1);
    try {
      const outcome = outcomeOf(message, await postMessage(poster, message, new Date()), Date.now());
      await settleMessage(db, message, outcome);
      logOutcome(message, outcome);
    } catch (error) {
      // It may have been posted. It is posted again when the lease runs out: under its old id.
      log.error(
        { event: "callback.unsettled", message: messageId(message), err: error },
        "a callback's end was not written",
      );
    } finally {
      const left = (busy.get(message.producerId) ?? 1) - 1;
      if (left === 0) busy.delete(message.producerId);
      else busy.set(message.producerId, left);
    }
  }

  function logOutcome(message: ClaimedMessage, outcome: Outcome): void {
    const about = {
      message: messageId(message),
      type: message.type,
      producer_id: message.producerId,
      attempt: message.attempt,
    };
    if (outcome.kind === "delivered") log.debug({ event: "callback.delivered", ...about }, "a callback was taken");
    else if (outcome.disables !== null) {
      log.error({ event: "callback.disabled", ...about, reason: outcome.disables }, "a callback is disabled");
    } else log.warn({ event: "callback.failed", ...about, error: outcome.error }, "a callback was not taken");
  }

  return {
    async stop() {
      stopping.abort();
      await loop;
      await Promise.all(under);
      await poster.close();
    },
  };
}

/** One signed post. */
export function postMessage(
  poster: Poster,
  message: Pick<ClaimedMessage, "tx" | "eventId" | "body" | "url" | "secrets">,
  now: Date,
): Promise<PostResult> {
  const { url, body, secrets } = message;
  return poster.post(url, signedHeaders({ id: messageId(message), body }, secrets, now), body);
}

/** What a post's result means for the message and its callback. 410: the receiver wants no more (standard-webhooks.md). */
export function outcomeOf(
  { attempt, failingSince }: Pick<ClaimedMessage, "attempt" | "failingSince">,
  { ok, status, error, retryAfterS }: PostResult,
  now: number,
): Outcome {
  if (ok && status !== null) return { kind: "delivered", status };
  const tooLong = failingSince !== null && now - failingSince.getTime() > DISABLED_AFTER_DAYS * DAY_MS;
  const disables = status === 410 ? "gone" : tooLong ? `failed for more than ${DISABLED_AFTER_DAYS} days` : null;
  return { kind: "failed", status, error: error ?? "no answer", waitS: nextWaitS(attempt, retryAfterS), disables };
}
