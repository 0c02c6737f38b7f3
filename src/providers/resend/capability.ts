import type { Capability } from "../../ledger/capability.ts";
import { receipts } from "./receipts.ts";

const ERRORS = "https://resend.com/docs/api-reference/errors";
const KEYS = "https://resend.com/docs/dashboard/emails/idempotency-keys";
const WEBHOOKS = "https://resend.com/docs/dashboard/webhooks/event-types";
const TRANSPORT = "undici client-h1: onRequestStart comes directly before the first byte is written";
const HTTP = "RFC 9110, section 15";
const HOUR_S = 3_600;

/** Names under which a 403 concerns the key. A wrong key must never turn a backlog into `failed`. */
const KEY_FAULTS = ["invalid_api_key", "suspended_api_key", "restricted_api_key", "invalid_permission"];

/**
 * What Resend guarantees for `POST /emails`. HTTP status first, error name second: the names have drifted, the statuses
 * have not (`validation_error` comes with 400, 401 and 403).
 */
export const capability: Capability = {
  provider: "resend",
  idempotency: {
    by: "key",
    header: "Idempotency-Key",
    maxLength: 256,
    windowMs: 24 * HOUR_S * 1000,
    marginMs: HOUR_S * 1000,
    payloadBound: true,
    source: `${KEYS}: "We keep idempotency keys in our system for 24 hours"`,
  },
  answers: [
    {
      when: { phase: "not_sent" },
      verdict: "deferred",
      reason: "not_sent",
      failing: true,
      means: "no byte of the request was written",
      source: TRANSPORT,
    },
    {
      when: { status: [[200, 299]], hasMessageId: true },
      verdict: "accepted",
      reason: "accepted",
      means: "accepted, also as a replay of an earlier acceptance",
      source: KEYS,
    },
    {
      when: { status: [[200, 299]] },
      verdict: "accepted",
      reason: "accepted_without_id",
      means: "accepted; the body with the id was lost or has none",
      source: `${HTTP}.3: 2xx says that the request was accepted`,
    },
    {
      when: { status: [[300, 399]] },
      verdict: "unknown",
      reason: "redirected",
      alarm: true,
      means: "not an answer of Resend's API; never followed",
      source: "resend 6.38: a followed 302 turns the POST into a GET",
    },
    {
      when: { status: [401] },
      verdict: "refused",
      reason: "credentials_refused",
      scope: "channel",
      means: "no API key, or a wrong one",
      source: `${ERRORS}: missing_api_key, restricted_api_key, validation_error 401`,
    },
    {
      when: { status: [403], code: KEY_FAULTS },
      verdict: "refused",
      reason: "credentials_refused",
      scope: "channel",
      means: "the API key is wrong, suspended or restricted",
      source: `${ERRORS}: invalid_api_key, suspended_api_key; resend-rs ErrorKind: invalid_permission`,
    },
    {
      when: { status: [403, 413, 429], body: ["page"] },
      verdict: "deferred",
      reason: "edge_refused",
      means: "a page of the network in front of Resend: the request did not get through",
      source: "resend-node recordings: `server: cloudflare`; the API itself answers JSON",
    },
    {
      when: { status: [403], body: ["none"] },
      verdict: "deferred",
      reason: "refused_unread",
      means: "refused, but whether it concerns the key or this email was lost with the body",
      source: `${ERRORS}: every 403 precedes the send`,
    },
    {
      when: { status: [403] },
      verdict: "refused",
      reason: "forbidden",
      means: "the domain is not verified, or the recipient is not allowed for testing",
      source: `${ERRORS}: validation_error 403`,
    },
    {
      when: { status: [409], code: ["concurrent_idempotent_requests"] },
      verdict: "unknown",
      reason: "concurrent_request",
      means: "an earlier attempt under this key is still running: its answer can be had later, under the same key",
      source: KEYS,
    },
    {
      when: { status: [409], code: ["invalid_idempotent_request"] },
      verdict: "unknown",
      reason: "payload_mismatch",
      repeat: "never",
      alarm: true,
      means: "an earlier request under this key had another body: a fault of the ledger's",
      source: `${KEYS}: "Retrying this request is useless"`,
    },
    {
      when: { status: [409] },
      verdict: "unknown",
      reason: "conflict",
      means: "a conflict that is not documented for sends",
      source: `${ERRORS}: resource_locked`,
    },
    {
      when: { status: [429], code: ["daily_quota_exceeded"] },
      verdict: "deferred",
      reason: "daily_quota_exceeded",
      scope: "channel",
      holdS: HOUR_S,
      means: "the day's quota is used up; asked again every hour",
      source: `${ERRORS}: daily_quota_exceeded`,
    },
    {
      when: { status: [429], code: ["monthly_quota_exceeded"] },
      verdict: "deferred",
      reason: "monthly_quota_exceeded",
      scope: "channel",
      holdS: 6 * HOUR_S,
      means: "the month's quota is used up; asked again every six hours",
      source: `${ERRORS}: monthly_quota_exceeded`,
    },
    {
      when: { status: [429] },
      verdict: "deferred",
      reason: "rate_limited",
      slowsChannel: true,
      means: "too many requests a second; refused before the send",
      source: `${ERRORS}: rate_limit_exceeded`,
    },
    {
      when: { status: [400, 404, 405, 413, 422] },
      verdict: "refused",
      reason: "invalid_request",
      means: "refused before the send, and would be again",
      source: `${ERRORS}: validation precedes the send`,
    },
    {
      when: { status: [451] },
      verdict: "refused",
      reason: "security_refused",
      means: "refused as a security issue",
      source: `${ERRORS}: security_error`,
    },
    {
      when: { status: [408, 425, [500, 599]] },
      verdict: "unknown",
      reason: "server_error",
      failing: true,
      means: "nothing is said about the effect",
      source: `${ERRORS}: application_error, internal_server_error`,
    },
    {
      when: { phase: "sent", code: ["TIMEOUT"] },
      verdict: "unknown",
      reason: "timeout",
      failing: true,
      means: "the request was written, and no answer came in time",
      source: "a server can finish a send after the client's time-out",
    },
    {
      when: { phase: "sent", code: ["ABORTED"] },
      verdict: "unknown",
      reason: "cut_off",
      means: "the request was written, and the ledger had to stop waiting",
      source: "as for a time-out",
    },
    {
      when: { phase: "sent", body: ["none"] },
      verdict: "unknown",
      reason: "connection_lost",
      failing: true,
      means: "the request was written, and the connection was lost",
      source: "a reset says nothing about what was read before it",
    },
  ],
  lookup: [
    {
      by: "provider_message_id",
      note: "GET /emails/:id tells the last event",
      source: "https://resend.com/docs/api-reference/emails/retrieve-email",
    },
    {
      by: "request_log",
      note: "GET /logs and /logs/:id show request and response bodies, for about 30 days; needs a full-access key",
      source: "resend 6.38: logs.get",
    },
  ],
  receipts,
  limits: {
    perSecond: "learned",
    perRecipient: [],
    maxRecipients: 50,
    maxBatch: 100,
    sizes: "40 MB an email, attachments after Base64; tags of A-Z a-z 0-9 _ -, 256 characters",
    source: `https://resend.com/docs/api-reference/rate-limit: ratelimit-limit, ratelimit-policy, by team; ${WEBHOOKS}`,
  },
};
