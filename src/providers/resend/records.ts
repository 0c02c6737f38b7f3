import { setTimeout as pause } from "node:timers/promises";
import { z } from "zod";
import type { DeliveryId, Millis } from "../../ledger/delivery.ts";
import { redactor } from "../../ledger/redact.ts";
import { saneRetryAfterS } from "../../ledger/verdict.ts";
import { type Exchange, header, openTransport, readBody, storable } from "../transport.ts";
import { deliveryTag, fieldsOf } from "./tag.ts";

/** Time, as the pacing needs it. */
export interface Clock {
  /** Epoch milliseconds. */
  now(): Millis;
  /** Waits, or until the signal aborts; never rejects. */
  wait(ms: number, signal: AbortSignal): Promise<void>;
}

export interface RecordsSettings {
  /** A full-access key: one that may only send is refused. */
  readonly apiKey: string;
  /** Without a slash at the end; default `https://api.resend.com`. */
  readonly baseUrl?: string;
  /** From the beginning of one request to that of the next. Default 1 s: Resend's limit is the team's, for its sends too. */
  readonly minIntervalMs?: number;
  /** For one request. Default 30 s. */
  readonly timeoutMs?: number;
  readonly clock?: Clock;
}

/** One line of the request log. */
export interface LogEntry {
  readonly id: string;
  readonly at: Millis;
  /** It is a `POST /emails`. */
  readonly isEmail: boolean;
  readonly status: number;
  readonly userAgent: string | null;
}

export interface LogPage {
  /** The newest first. */
  readonly entries: readonly LogEntry[];
  readonly hasMore: boolean;
}

/** What a recorded `POST /emails` was about, and what was answered. */
export interface RecordedEmail {
  readonly deliveryId: DeliveryId | null;
  readonly emailId: string | null;
  /** The error's name. */
  readonly code: string | null;
}

/** Resend's own records, read one at a time and paced. What they hold of contents is not kept. */
export interface Records {
  /** Up to 100 entries of the request log that are older than the entry `after`; null: the newest. Throws NoAnswer. */
  page(after: string | null, signal: AbortSignal): Promise<LogPage>;
  /** Null: there is no such entry any more, or it cannot be read. Throws NoAnswer. */
  email(entryId: string, signal: AbortSignal): Promise<RecordedEmail | null>;
  /** The last event of an email: `delivered`, `bounced`, `sent`, … Throws NoAnswer. */
  lastEvent(emailId: string, signal: AbortSignal): Promise<string>;
  close(): Promise<void>;
}

/** Resend could not be asked, or did not answer the question. The message is for operators: secrets are removed. */
export class NoAnswer extends Error {}

const LONGEST_PAUSE_MS = 60_000;
/** A log entry holds the email's attachments, up to 40 MB in Base64: those time out more often than others. */
const LARGEST_RECORD = 64 * 1_048_576;

const id = z.string().regex(/^[\w-]{1,100}$/);
// resend 6.38, types ListLogsResponseSuccess, GetLogResponseSuccess, GetEmailResponseSuccess.
const logPage = z.object({
  has_more: z.boolean(),
  data: z.array(
    z.object({
      id,
      created_at: z.string().transform(timeOf).pipe(z.number()),
      endpoint: z.string(),
      method: z.string(),
      response_status: z.number(),
      user_agent: z.string().nullish(),
    }),
  ),
});
const logEntry = z.object({ request_body: z.unknown(), response_body: z.unknown() });
const storedEmail = z.object({ last_event: z.string().max(100) });

/** The log's times are PostgreSQL's: `2026-03-30 13:43:54.622865+00`. NaN for what is no time. */
export function timeOf(text: string): Millis {
  const iso = text.replace(" ", "T").replace(/([+-]\d\d)$/, "$1:00");
  return Date.parse(/(Z|[+-]\d\d:?\d\d)$/i.test(iso) ? iso : `${iso}Z`);
}

const SYSTEM: Clock = {
  now: Date.now,
  wait: (ms, signal) => pause(ms, undefined, { signal }).catch(() => {}),
};

/** Sources: https://resend.com/docs/api-reference/logs/list-logs, …/logs/retrieve-log, …/emails/retrieve-email, …/pagination. */
export function openRecords(settings: RecordsSettings): Records {
  const {
    apiKey,
    baseUrl = "https://api.resend.com",
    minIntervalMs = 1_000,
    timeoutMs = 30_000,
    clock = SYSTEM,
  } = settings;
  const redact = redactor([apiKey]);
  const transport = openTransport(redact);
  const headers = { authorization: `Bearer ${apiKey}`, "user-agent": "delivery-ledger" };
  let free: Millis = 0;

  /** Never two requests closer than the interval, whoever asks. */
  async function turn(signal: AbortSignal): Promise<void> {
    const now = clock.now();
    // A clock that was set back must not stop everything.
    const wait = Math.min(Math.max(0, free - now), LONGEST_PAUSE_MS);
    free = now + wait + minIntervalMs;
    if (wait > 0) await clock.wait(wait, signal);
  }

  async function get(path: string, signal: AbortSignal): Promise<Exchange> {
    await turn(signal);
    const url = new URL(`${baseUrl}${path}`);
    const exchange = await transport.get({ url, headers, timeoutMs, signal, largestAnswer: LARGEST_RECORD });
    if (exchange.status === 429) {
      const askedMs = (saneRetryAfterS(header(exchange, "retry-after")) ?? 0) * 1_000;
      free = Math.max(free, clock.now() + Math.min(askedMs, LONGEST_PAUSE_MS));
    }
    return exchange;
  }

  /** What was answered to `what`, if it has the shape; else why not. */
  function answered<T>(exchange: Exchange, shape: z.ZodType<T>, what: string): T {
    const parsed = exchange.status === 200 ? shape.safeParse(readBody(exchange).value) : null;
    if (parsed?.success) return parsed.data;
    throw new NoAnswer(storable(redact(`${what} ${insteadOf(exchange)}`)));
  }

  return {
    async page(after, signal) {
      const path = `/logs?limit=100${after === null ? "" : `&after=${encodeURIComponent(after)}`}`;
      const { data, has_more: hasMore } = answered(await get(path, signal), logPage, "GET /logs");
      return { entries: data.map(entryOf), hasMore };
    },
    async email(entryId, signal) {
      const exchange = await get(`/logs/${encodeURIComponent(entryId)}`, signal);
      if (exchange.status === 404 || exchange.error?.code === "BODY_TOO_LARGE") return null;
      return recordedEmail(answered(exchange, logEntry, "GET /logs/:id"), redact);
    },
    async lastEvent(emailId, signal) {
      const exchange = await get(`/emails/${encodeURIComponent(emailId)}`, signal);
      return answered(exchange, storedEmail, "GET /emails/:id").last_event;
    },
    close: () => transport.close(),
  };
}

const entryOf = (entry: z.infer<typeof logPage>["data"][number]): LogEntry => ({
  id: entry.id,
  at: entry.created_at,
  isEmail: entry.method.toUpperCase() === "POST" && entry.endpoint.replace(/\/$/, "") === "/emails",
  status: entry.response_status,
  userAgent: entry.user_agent ?? null,
});

/** The log's bodies are JSON values, or JSON as text. */
const bodyOf = (body: unknown): unknown => {
  if (typeof body !== "string") return body;
  try {
    return JSON.parse(body);
  } catch {
    return null;
  }
};

function recordedEmail(entry: z.infer<typeof logEntry>, redact: (text: string) => string): RecordedEmail | null {
  const request = bodyOf(entry.request_body);
  if (typeof request !== "object" || request === null) return null;
  const response = fieldsOf(bodyOf(entry.response_body));
  const emailId = id.safeParse(response["id"]);
  const { name } = response;
  return {
    deliveryId: deliveryTag(fieldsOf(request)["tags"]),
    emailId: emailId.success ? emailId.data : null,
    code: typeof name === "string" ? storable(redact(name)).slice(0, 100).toWellFormed() : null,
  };
}

/** What came instead of the answer, in words. */
function insteadOf(exchange: Exchange): string {
  const { status, error } = exchange;
  if (error)
    return `${status === null ? "was not answered" : `answered ${status}, and not to the end`}: ${error.message}`;
  const { kind, value } = readBody(exchange);
  const { name, message } = fieldsOf(value);
  if (status === 200) return "answered 200 with something else than its documentation says";
  if (typeof name === "string") return `answered ${status} ${name}${typeof message === "string" ? `: ${message}` : ""}`;
  return kind === "page" ? `answered ${status} with a page` : `answered ${status}`;
}
