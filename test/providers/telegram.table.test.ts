import { describe, expect, test } from "vitest";
import { repeatMaySettle } from "../../src/ledger/capability.ts";
import { capability } from "../../src/providers/telegram/capability.ts";
import { answer, decidingRow, proves, type Row } from "./build.ts";

const error = (code: number, message = "") =>
  ({ status: code, body: "json", ok: false, code: String(code), message }) as const;
const refused = { verdict: "refused", scope: "delivery", suppresses: false } as const;

const ROWS: readonly Row[] = [
  {
    rule: "a request of which no byte was written is deferred",
    seen: { phase: "not_sent", code: "ENOTFOUND" },
    proves: { verdict: "deferred" },
  },
  {
    rule: "ok with a message id is accepted",
    seen: { status: 200, body: "json", ok: true, providerMessageId: "7" },
    proves: { verdict: "accepted", providerMessageId: "7", alarm: false },
  },
  {
    rule: "ok with a message id is accepted whatever the HTTP status",
    seen: { status: 500, body: "json", ok: true, providerMessageId: "7" },
    proves: { verdict: "accepted", providerMessageId: "7" },
  },
  {
    rule: "ok without a message id is accepted, with an alarm",
    seen: { status: 200, body: "json", ok: true },
    proves: { verdict: "accepted", providerMessageId: null, alarm: true },
  },
  {
    rule: "2xx whose body was lost is accepted, with an alarm",
    seen: { status: 200, code: "UND_ERR_SOCKET" },
    proves: { verdict: "accepted", providerMessageId: null, alarm: true },
  },
  ...[
    "Bad Request: chat not found",
    "Bad Request: message text is empty",
    "Bad Request: can't parse entities: Character '.' is reserved",
    "Bad Request: message thread not found",
    "Bad Request: message is too long",
    "Bad Request: TOPIC_CLOSED",
    "Bad Request: not enough rights to send text messages to the chat",
  ].map((text) => ({
    rule: `400 "${text}" is refused`,
    seen: error(400, text),
    proves: { ...refused, reason: "invalid_request", alarm: false },
  })),
  {
    rule: "400 with a text that the table does not know is refused, with a reason of its own and an alarm",
    seen: error(400, "Bad Request: SOMETHING_NEW"),
    proves: { ...refused, reason: "invalid_request_unrecognised", alarm: true },
  },
  {
    rule: "400 with the chat's new id is deferred, to the new id",
    seen: { ...error(400, "Bad Request: group chat was upgraded to a supergroup chat"), movedTo: "-1009990001" },
    proves: { verdict: "deferred", movedTo: "-1009990001" },
  },
  {
    rule: "400 about part of an album is unknown",
    seen: error(400, 'Bad Request: Failed to send message #2 with the error message "WEBPAGE_CURL_FAILED"'),
    proves: { verdict: "unknown" },
  },
  {
    rule: "400 about a whole album is unknown",
    seen: error(400, "Bad Request: Group send failed"),
    proves: { verdict: "unknown" },
  },
  {
    rule: "401 holds the channel",
    seen: error(401, "Unauthorized"),
    proves: { verdict: "refused", scope: "channel", holdS: null },
  },
  {
    rule: '400 "Logged out" holds the channel',
    seen: error(400, "Logged out"),
    proves: { verdict: "refused", scope: "channel", holdS: null },
  },
  {
    rule: "401 to a call that was under way when others were accepted is unknown",
    seen: error(401, "Unauthorized"),
    acceptedMeanwhile: true,
    proves: { verdict: "unknown" },
  },
  {
    rule: '400 "Logged out" to a call that was under way when others were accepted is unknown',
    seen: error(400, "Logged out"),
    acceptedMeanwhile: true,
    proves: { verdict: "unknown" },
  },
  ...[
    "Forbidden: bot was blocked by the user",
    "Forbidden: user is deactivated",
    "Forbidden: bot was kicked from the supergroup chat",
    "Forbidden: bot is not a member of the channel chat",
    "Forbidden: the group chat was deleted",
  ].map((text) => ({
    rule: `403 "${text}" is refused, and suppresses the chat`,
    seen: error(403, text),
    proves: { verdict: "refused", scope: "delivery", suppresses: true } as const,
  })),
  {
    rule: "403 for another reason is refused, and does not suppress",
    seen: error(403, "Forbidden: bot can't initiate conversation with a user"),
    proves: refused,
  },
  ...[404, 413, 421].map((code) => ({ rule: `${code} is refused`, seen: error(code), proves: refused })),
  {
    rule: "429 is deferred, not before retry_after",
    seen: { ...error(429, "Too Many Requests: retry after 10072"), retryAfterS: 10_072 },
    proves: { verdict: "deferred", retryAfterS: 10_072, scope: "delivery" },
  },
  ...[500, 502, 503, 504].map((code) => ({
    rule: `${code} from the Bot API is unknown`,
    seen: error(code, "Internal Server Error: restart"),
    proves: { verdict: "unknown" } as const,
  })),
  ...[403, 404, 413].map((status) => ({
    rule: `${status} as a page is refused`,
    seen: { status, body: "page" } as const,
    proves: { ...refused, reason: "edge_refused" },
  })),
  { rule: "429 as a page is deferred", seen: { status: 429, body: "page" }, proves: { verdict: "deferred" } },
  ...[500, 502, 503, 504].map((status) => ({
    rule: `${status} as a page is unknown`,
    seen: { status, body: "page" } as const,
    proves: { verdict: "unknown" } as const,
  })),
  {
    rule: "a 502 code under another HTTP status is unknown",
    seen: { ...error(502, "Bad Gateway"), status: 200 },
    proves: { verdict: "unknown" },
  },
  {
    rule: "an answer without an error code is unknown, with an alarm",
    seen: { status: 400, body: "json", ok: false },
    proves: { verdict: "unknown", alarm: true },
  },
  {
    rule: "JSON that is not the Bot API's is unknown, with an alarm",
    seen: { status: 200, body: "json" },
    proves: { verdict: "unknown", alarm: true },
  },
  { rule: "a redirect is unknown", seen: { status: 301 }, proves: { verdict: "unknown", alarm: true } },
  {
    rule: "a time-out after the request was written is unknown",
    seen: { code: "TIMEOUT" },
    proves: { verdict: "unknown" },
  },
  { rule: "a call that we cut off is unknown", seen: { code: "ABORTED" }, proves: { verdict: "unknown" } },
  {
    rule: "a reset after the request was written is unknown",
    seen: { code: "ECONNRESET" },
    proves: { verdict: "unknown", reason: "connection_lost" },
  },
];

describe("telegram", () => {
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

  test("no repeat is ever safe: Telegram recognises none", () => {
    expect(capability.idempotency.by).toBe("none");
    expect(capability.answers.filter(({ reason }) => repeatMaySettle(capability, reason))).toEqual([]);
  });
});
