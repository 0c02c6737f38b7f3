import { createHash, randomUUID } from "node:crypto";
import type { Desk, Fake, FakeOptions, Letter, Received } from "./desk.ts";
import { openFake } from "./fake.ts";
import { openLog, type RequestLog } from "./resend-log.ts";
import { jsonReply, type Reply, type Step } from "./step.ts";

const KEY_LIVES_MS = 24 * 3_600_000;

export interface FakeResendOptions extends FakeOptions {
  /** Whether an error is remembered under its key too. Resend does not say; default: no. */
  readonly storesErrors?: boolean;
  /** Keys that may read the request log and emails; default: all that are good for sending. */
  readonly fullAccess?: readonly string[];
}

export interface FakeResend extends Fake {
  readonly log: RequestLog;
}

interface Remembered {
  readonly hash: string;
  readonly until: number;
  /** Null while the first request under the key runs. */
  reply: Reply | null;
}

/** Resend's error body: `{ statusCode, message, name }`. */
export const resendError = (
  status: number,
  name: string,
  message = name,
  headers: Readonly<Record<string, string>> = {},
): Extract<Step, { do: "answer" }> => ({
  do: "answer",
  status,
  json: { statusCode: status, message, name },
  headers,
});

export const RATE_LIMITED = (retryAfter?: string | number): Step =>
  resendError(429, "rate_limit_exceeded", "Too many requests", {
    ...(retryAfter !== undefined && { "retry-after": String(retryAfter) }),
  });
export const DAILY_QUOTA: Step = resendError(429, "daily_quota_exceeded", "You have reached your daily email quota.");
export const MONTHLY_QUOTA: Step = resendError(429, "monthly_quota_exceeded", "You have reached your monthly quota.");

const error = (status: number, name: string, message: string): Reply =>
  jsonReply(status, { statusCode: status, message, name });

/**
 * `POST /emails` with Resend's idempotency: 24 h, by key and body; the same key and body answer the same id, without effect.
 * `GET /logs`, `GET /logs/:id` and `GET /emails/:id` tell what it did.
 */
export async function openFakeResend(options: FakeResendOptions = {}): Promise<FakeResend> {
  const log = openLog();
  const fake = await openFake(resendDesk(options, log), options);
  return Object.assign(fake, { log });
}

function resendDesk({ storesErrors = false, fullAccess }: FakeResendOptions, log: RequestLog): Desk {
  const keys = new Map<string, Remembered>();
  let good: readonly string[] | null = null;

  const remember = (letter: Letter, now: number, reply: Reply | null): void => {
    if (letter.key === null) return;
    const held = keys.get(letter.key);
    if (held && held.until > now) held.reply = reply;
    else keys.set(letter.key, { hash: hashOf(letter), until: now + KEY_LIVES_MS, reply });
  };

  return {
    read: (received) => refusal(received, good) ?? letterOf(received),
    lookUp(received) {
      const found = log.read(received.path);
      if (!found) return null;
      const refused = unauthorized(received, good) ?? restricted(received, fullAccess);
      return { name: found.name, reply: refused ?? found.reply };
    },
    record: ({ content }, reply, at) => log.record(content, reply, at),
    admit(letter, now) {
      const held = letter.key === null ? undefined : keys.get(letter.key);
      if (!held || held.until <= now) {
        remember(letter, now, null);
        return null;
      }
      if (held.hash !== hashOf(letter)) {
        return error(409, "invalid_idempotent_request", "this key was used on a request with a different payload");
      }
      return held.reply ?? error(409, "concurrent_idempotent_requests", "a request with this key is in progress");
    },
    accepted(letter, now) {
      const reply = jsonReply(200, { id: randomUUID() });
      remember(letter, now, reply);
      return reply;
    },
    refused(letter, reply, now) {
      if (storesErrors) remember(letter, now, reply);
    },
    reset: () => {
      keys.clear();
      log.clear();
    },
    accept: (credentials) => {
      good = credentials;
    },
  };
}

const tokenOf = ({ headers }: Received): string | undefined => /^Bearer (.+)$/.exec(headers.authorization ?? "")?.[1];

function unauthorized(received: Received, good: readonly string[] | null): Reply | null {
  const token = tokenOf(received);
  if (received.headers["user-agent"] === undefined) return error(403, "validation_error", "a User-Agent is required");
  if (token === undefined) return error(401, "missing_api_key", "Missing API key in the authorization header");
  return good && !good.includes(token) ? error(401, "validation_error", "API key is invalid") : null;
}

const restricted = (received: Received, fullAccess: readonly string[] | undefined): Reply | null =>
  fullAccess && !fullAccess.includes(tokenOf(received) ?? "")
    ? error(401, "restricted_api_key", "This API key is restricted to only send emails")
    : null;

function refusal(received: Received, good: readonly string[] | null): Reply | null {
  const key = received.headers["idempotency-key"];
  if (received.path !== "/emails") return error(404, "not_found", "The requested endpoint does not exist");
  const refused = unauthorized(received, good);
  if (refused) return refused;
  return key !== undefined && (key === "" || key.length > 256)
    ? error(400, "invalid_idempotency_key", "must have between 1 and 256 characters")
    : null;
}

function letterOf({ headers, body }: Received): Letter | Reply {
  try {
    const content = JSON.parse(body) as { to?: string | string[] };
    const recipient = Array.isArray(content.to) ? content.to.join(",") : content.to;
    if (recipient === undefined) return error(422, "missing_required_field", "Missing `to` field.");
    const key = headers["idempotency-key"];
    return { recipient, content, key: typeof key === "string" ? key : null };
  } catch {
    return error(400, "validation_error", "the body is not JSON");
  }
}

const hashes = new WeakMap<object, string>();
/** Of the body as posted: whether Resend normalises it is not known, so the fake does not. */
function hashOf({ content }: Letter): string {
  const known = hashes.get(content as object);
  if (known !== undefined) return known;
  const hash = createHash("sha256").update(JSON.stringify(content)).digest("base64");
  hashes.set(content as object, hash);
  return hash;
}
