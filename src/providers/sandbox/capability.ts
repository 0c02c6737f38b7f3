import type { Capability } from "../../ledger/capability.ts";

const OURS = "src/providers/sandbox/adapter.ts";

/**
 * The sandbox sends nowhere and recognises no repeat, so that a doubtful answer goes to needs-attention at once. What it plays
 * is each recipient's own affair, and so no fault speaks against it, but for the one that says so.
 */
export const capability: Capability = {
  provider: "sandbox",
  idempotency: { by: "none", source: OURS },
  answers: [
    {
      when: { phase: "not_sent", code: ["EHOSTDOWN"] },
      verdict: "deferred",
      reason: "not_sent",
      failing: true,
      means: "down@sandbox: unreachable for everyone; ten of these in a row open the breaker",
      source: OURS,
    },
    {
      when: { phase: "not_sent" },
      verdict: "deferred",
      reason: "not_sent",
      means: "unreachable@sandbox: no byte of the request was written",
      source: OURS,
    },
    {
      when: { status: [200], hasMessageId: true },
      verdict: "accepted",
      reason: "accepted",
      means: "accept@sandbox, slow@sandbox, and every other address",
      source: OURS,
    },
    {
      when: { status: [200] },
      verdict: "accepted",
      reason: "accepted_without_id",
      means: "lost@sandbox: accepted, and the body with the id was lost",
      source: OURS,
    },
    {
      when: { status: [401] },
      verdict: "refused",
      reason: "credentials_refused",
      scope: "channel",
      means: "badkey@sandbox: the whole channel is held",
      source: OURS,
    },
    {
      when: { status: [422] },
      verdict: "refused",
      reason: "invalid_request",
      means: "refuse@sandbox",
      source: OURS,
    },
    {
      when: { status: [429] },
      verdict: "deferred",
      reason: "rate_limited",
      means: "defer@sandbox, defer-90@sandbox (seconds to wait)",
      source: OURS,
    },
    {
      when: { status: [500] },
      verdict: "unknown",
      reason: "server_error",
      means: "error@sandbox",
      source: OURS,
    },
    {
      when: { phase: "sent", code: ["TIMEOUT"] },
      verdict: "unknown",
      reason: "timeout",
      means: "timeout@sandbox: the request was written, and no answer came in time",
      source: OURS,
    },
    {
      when: { phase: "sent", code: ["ABORTED"] },
      verdict: "unknown",
      reason: "cut_off",
      means: "slow@sandbox, when the ledger had to stop waiting",
      source: OURS,
    },
    {
      when: { phase: "sent", body: ["none"] },
      verdict: "unknown",
      reason: "connection_lost",
      means: "reset@sandbox: the request was written, and the connection was lost",
      source: OURS,
    },
  ],
  lookup: [{ by: "none", note: "nothing to look up", source: OURS }],
  receipts: {},
  limits: { perSecond: null, perRecipient: [], maxRecipients: 1, maxBatch: null, sizes: "none", source: OURS },
};
