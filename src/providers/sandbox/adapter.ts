import { setTimeout } from "node:timers/promises";
import { type Answer, saneRetryAfterS } from "../../ledger/verdict.ts";
import type { Adapter, Call } from "../provider.ts";

/** One call as the sandbox was given it. */
export type SandboxCall = Pick<Call, "deliveryId" | "to" | "body" | "idempotencyKey" | "attempt">;

export interface SandboxSettings {
  /** Given every call that is made, before it is played. Default: `recorded` keeps the latest thousand. */
  readonly record?: (call: SandboxCall) => void;
}

export interface SandboxAdapter extends Adapter {
  /** What was given to the sandbox, oldest first; empty when the settings have a `record` of their own. */
  readonly recorded: readonly SandboxCall[];
}

const MAX_RECORDED = 1_000;

const NOTHING: Answer = {
  phase: "sent",
  status: null,
  body: "none",
  code: null,
  message: null,
  ok: null,
  providerMessageId: null,
  retryAfterS: null,
  movedTo: null,
  limitPerSecond: null,
};

const says = (status: number, code: string, message: string, retryAfterS: number | null = null): Answer => ({
  ...NOTHING,
  status,
  body: "json",
  code,
  message,
  retryAfterS,
});

type Play = (call: Call, number: number | null) => Answer | Promise<Answer>;

/** What `behaviour@sandbox` plays. `defer-90`: seconds to wait; `slow-500`: milliseconds to take. A Map: `constructor@sandbox` is no behaviour. */
const PLAYS: ReadonlyMap<string, Play> = new Map<string, Play>([
  ["accept", accept],
  ["refuse", () => says(422, "validation_error", "the sandbox was told to refuse")],
  [
    "defer",
    (_call, seconds) => says(429, "rate_limit_exceeded", "the sandbox was told to defer", saneRetryAfterS(seconds)),
  ],
  ["error", () => says(500, "internal_server_error", "the sandbox was told to fail")],
  ["badkey", () => says(401, "invalid_api_key", "the sandbox was told to refuse the key")],
  ["lost", () => ({ ...NOTHING, status: 200, code: "ECONNRESET", message: "the body was lost" })],
  ["timeout", () => ({ ...NOTHING, code: "TIMEOUT", message: "no answer came" })],
  ["reset", () => ({ ...NOTHING, code: "ECONNRESET", message: "the connection was reset" })],
  [
    "unreachable",
    () => ({ ...NOTHING, phase: "not_sent", code: "ECONNREFUSED", message: "the connection was refused" }),
  ],
  ["down", () => ({ ...NOTHING, phase: "not_sent", code: "EHOSTDOWN", message: "the sandbox is down for everyone" })],
  ["slow", slow],
]);

function accept(call: Call): Answer {
  return { ...NOTHING, status: 200, body: "json", providerMessageId: `sandbox-${call.idempotencyKey}` };
}

async function slow(call: Call, ms: number | null): Promise<Answer> {
  const takesMs = Math.min(ms ?? 2_000, call.timeoutMs);
  const inTime = takesMs < call.timeoutMs;
  const cutOff = await setTimeout(takesMs, false, { signal: call.signal }).catch(() => true);
  if (cutOff) return { ...NOTHING, code: "ABORTED", message: "the call was cut off by the ledger" };
  return inTime ? accept(call) : { ...NOTHING, code: "TIMEOUT", message: "no answer came in time" };
}

/**
 * A channel that sends nowhere and plays any provider behaviour on request: `to` is `<behaviour>@sandbox`, or
 * `<behaviour>-then-accept@sandbox` (the first attempt alone). Any other address is accepted.
 */
export function openSandbox(settings: SandboxSettings = {}): SandboxAdapter {
  const recorded: SandboxCall[] = [];
  const record =
    settings.record ??
    ((call: SandboxCall) => {
      if (recorded.length >= MAX_RECORDED) recorded.shift();
      recorded.push(call);
    });
  return {
    recorded,
    lacks: () => null,
    render: async ({ message }) => JSON.stringify(message),
    async call(call) {
      const { deliveryId, to, body, idempotencyKey, attempt } = call;
      record({ deliveryId, to, body, idempotencyKey, attempt });
      const played = /^([a-z]+)(?:-(\d{1,9}))?(-then-accept)?@sandbox$/.exec(to);
      const [, behaviour = "accept", number, once] = played ?? [];
      const play = once !== undefined && attempt > 1 ? accept : (PLAYS.get(behaviour) ?? accept);
      return await play(call, number === undefined ? null : Number(number));
    },
    close: async () => {},
  };
}
