import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { repeatMaySettle } from "../../src/ledger/capability.ts";
import { capability } from "../../src/providers/resend/capability.ts";
import { answer, decidingRow, proves, type Row } from "./build.ts";

const error = (status: number, code: string) => ({ status, body: "json", code }) as const;
const refused = { verdict: "refused", scope: "delivery" } as const;
const keyRefused = { verdict: "refused", reason: "credentials_refused", scope: "channel", holdS: null } as const;

const ROWS: readonly Row[] = [
  {
    rule: "a request of which no byte was written is deferred",
    seen: { phase: "not_sent", code: "ECONNREFUSED" },
    proves: { verdict: "deferred", scope: "delivery" },
  },
  {
    rule: "200 with an id is accepted",
    seen: { status: 200, body: "json", providerMessageId: "e1" },
    proves: { verdict: "accepted", providerMessageId: "e1" },
  },
  {
    rule: "201 with an id is accepted",
    seen: { status: 201, providerMessageId: "e1" },
    proves: { verdict: "accepted" },
  },
  {
    rule: "2xx whose body was lost is accepted, id unknown",
    seen: { status: 200, code: "UND_ERR_SOCKET" },
    proves: { verdict: "accepted", providerMessageId: null },
  },
  {
    rule: "2xx whose body never ended in time is accepted, id unknown",
    seen: { status: 200, code: "TIMEOUT" },
    proves: { verdict: "accepted", providerMessageId: null },
  },
  {
    rule: "2xx without an id is accepted, id unknown",
    seen: { status: 200, body: "json" },
    proves: { verdict: "accepted", providerMessageId: null },
  },
  { rule: "a redirect proves nothing", seen: { status: 302 }, proves: { verdict: "unknown", alarm: true } },
  ...[400, 404, 405, 413, 422].map((status) => ({
    rule: `${status} is refused`,
    seen: error(status, "validation_error"),
    proves: refused,
  })),
  { rule: "451 is refused", seen: error(451, "security_error"), proves: refused },
  {
    rule: "400 for the idempotency key is refused",
    seen: error(400, "invalid_idempotency_key"),
    proves: refused,
  },
  { rule: "401 holds the channel", seen: error(401, "validation_error"), proves: keyRefused },
  { rule: "401 without a name holds the channel", seen: { status: 401 }, proves: keyRefused },
  ...["invalid_api_key", "suspended_api_key", "restricted_api_key", "invalid_permission"].map((code) => ({
    rule: `403 ${code} holds the channel`,
    seen: error(403, code),
    proves: keyRefused,
  })),
  { rule: "403 for a domain or a recipient is refused", seen: error(403, "validation_error"), proves: refused },
  { rule: "403 as plain text is refused", seen: { status: 403, body: "text" }, proves: refused },
  {
    rule: "403 whose body was lost is deferred",
    seen: { status: 403, code: "ECONNRESET" },
    proves: { verdict: "deferred" },
  },
  ...[403, 413, 429].map((status) => ({
    rule: `${status} as a page of the edge is deferred`,
    seen: { status, body: "page" } as const,
    proves: { verdict: "deferred", scope: "delivery" } as const,
  })),
  {
    rule: "409 concurrent is unknown: the earlier attempt runs",
    seen: error(409, "concurrent_idempotent_requests"),
    proves: { verdict: "unknown", alarm: false },
  },
  {
    rule: "409 with another payload is unknown, and a fault of ours",
    seen: error(409, "invalid_idempotent_request"),
    proves: { verdict: "unknown", alarm: true },
  },
  { rule: "409 of another kind is unknown", seen: error(409, "resource_locked"), proves: { verdict: "unknown" } },
  {
    rule: "429 rate limit is deferred, not before retry-after, and slows the channel",
    seen: { ...error(429, "rate_limit_exceeded"), retryAfterS: 90 },
    proves: { verdict: "deferred", scope: "delivery", retryAfterS: 90, slowsChannel: true },
  },
  {
    rule: "429 daily quota is deferred by the channel",
    seen: error(429, "daily_quota_exceeded"),
    proves: { verdict: "deferred", scope: "channel", holdS: 3_600 },
  },
  {
    rule: "429 monthly quota is deferred by the channel",
    seen: error(429, "monthly_quota_exceeded"),
    proves: { verdict: "deferred", scope: "channel", holdS: 21_600 },
  },
  {
    rule: "a quota that says how long holds the channel that long",
    seen: { ...error(429, "daily_quota_exceeded"), retryAfterS: 7_200 },
    proves: { verdict: "deferred", scope: "channel", holdS: 7_200 },
  },
  ...[408, 425, 500, 502, 503, 504, 520, 524].flatMap((status) =>
    (["json", "page", "none"] as const).map((body) => ({
      rule: `${status} (${body}) is unknown`,
      seen: { status, body },
      proves: { verdict: "unknown" } as const,
    })),
  ),
  {
    rule: "a written request without an answer in time is unknown",
    seen: { code: "TIMEOUT" },
    proves: { verdict: "unknown", reason: "timeout" },
  },
  {
    rule: "a written request that we cut off is unknown",
    seen: { code: "ABORTED" },
    proves: { verdict: "unknown", reason: "cut_off" },
  },
  {
    rule: "a written request whose connection was lost is unknown",
    seen: { code: "ECONNRESET" },
    proves: { verdict: "unknown", reason: "connection_lost" },
  },
  {
    rule: "a status that the table does not know is unknown, with an alarm",
    seen: error(418, "teapot"),
    proves: { verdict: "unknown", reason: "unrecognised_answer", alarm: true },
  },
];

describe("resend", () => {
  test.each(ROWS)("$rule", (row) => {
    expect(proves(capability, answer(row.seen), row.acceptedMeanwhile)).toMatchObject(row.proves);
  });

  test("every row of the table is tested", () => {
    const decided = new Set(ROWS.map((row) => decidingRow(capability, row)));
    expect(capability.answers.filter((_, index) => !decided.has(index))).toEqual([]);
  });

  test("every row says what it means, and cites a source", () => {
    for (const row of capability.answers) {
      expect(row.means, row.reason).not.toBe("");
      expect(row.source, row.reason).not.toBe("");
    }
  });

  test("no row makes a refusal or a deferral of a 5xx, a time-out or a lost connection", () => {
    for (const seen of [
      { status: 500 },
      { status: 503, body: "page" as const },
      { code: "TIMEOUT" },
      { code: "EPIPE" },
    ]) {
      expect(proves(capability, answer(seen)).verdict).toBe("unknown");
    }
  });

  test("a repeat under the same key settles everything in doubt, except a payload mismatch", () => {
    const inDoubt = capability.answers.filter(({ verdict }) => verdict === "unknown").map(({ reason }) => reason);
    expect(inDoubt.filter((reason) => !repeatMaySettle(capability, reason))).toEqual(["payload_mismatch"]);
  });

  test("every webhook event about an email that was sent has a meaning", () => {
    const meant = Object.entries(capability.receipts).filter(([, meaning]) => meaning !== "ignored");
    expect(Object.fromEntries(meant)).toEqual({
      "email.sent": "evidence",
      "email.scheduled": "evidence",
      "email.delivered": "delivered",
      "email.delivery_delayed": "delayed",
      "email.bounced": "bounced",
      "email.complained": "complained",
      "email.failed": "failed",
      "email.suppressed": "suppressed",
      "email.opened": "opened",
      "email.clicked": "clicked",
    });
  });

  test("every webhook event that the SDK knows stands in the table", () => {
    const types = readFileSync(new URL("../../node_modules/resend/dist/index.d.mts", import.meta.url), "utf8");
    const union = /type WebhookEvent = ([^;]+);/.exec(types)?.[1] ?? "";
    const known = [...union.matchAll(/'([^']+)'/g)].map(([, event]) => event);
    expect(known).toContain("email.sent");
    expect(Object.keys(capability.receipts).toSorted()).toEqual(known.toSorted());
  });
});
