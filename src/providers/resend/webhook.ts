import { Webhook } from "standardwebhooks";
import type { Millis, ReceiptStatus } from "../../ledger/delivery.ts";
import type { WebhookEvent, WebhookReader, WebhookRequest } from "../provider.ts";
import { storable } from "../transport.ts";
import { receipts } from "./receipts.ts";
import { deliveryTag, fieldsOf } from "./tag.ts";

const SECRET = /^whsec_(?=[A-Za-z0-9+/])(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;
const A_DAY_MS = 86_400_000;
const MAX_DETAIL = 4_096;

/** What each is called in the header: Svix's names, which Resend sends, and those of Standard Webhooks. */
const HEADERS = ["id", "timestamp", "signature"] as const;
const headerOf = (headers: Headers, name: (typeof HEADERS)[number]): string =>
  headers.get(`svix-${name}`) ?? headers.get(`webhook-${name}`) ?? "";

const verifiers = new Map<string, Webhook>();
function verifierOf(secret: string): Webhook {
  const verifier = verifiers.get(secret) ?? new Webhook(secret);
  verifiers.set(secret, verifier);
  return verifier;
}

/**
 * Resend's webhooks are signed as Standard Webhooks are (HMAC-SHA256 over id, time and the raw body; five minutes of
 * tolerance): https://resend.com/docs/dashboard/webhooks/verify-webhooks-requests, standard-webhooks.md.
 */
export const webhooks: WebhookReader = {
  secretFault(secret) {
    if (!secret.startsWith("whsec_")) return "must begin with whsec_, as Resend shows it";
    const bytes = SECRET.test(secret) ? Buffer.from(secret.slice(6), "base64").length : 0;
    return bytes >= 16 && bytes <= 128
      ? null
      : "must be whsec_ and 16 to 128 bytes in Base64, without spaces or line breaks";
  },

  isSigned: (headers) => HEADERS.every((name) => headerOf(headers, name) !== ""),

  verify({ headers, body }, secrets) {
    const payload = textOf(body);
    if (payload === null) return false;
    const named = Object.fromEntries(HEADERS.map((name) => [`webhook-${name}`, headerOf(headers, name)]));
    return secrets.some((secret) => {
      try {
        verifierOf(secret).verify(payload, named, { jsonParse: false });
        return true;
      } catch {
        return false;
      }
    });
  },

  read: readEvent,
};

/** Null for bytes that are not UTF-8: what the library would verify is not what was signed. */
function textOf(body: Uint8Array): string | null {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body);
  } catch {
    return null;
  }
}

const wordOf = (value: unknown): string | null =>
  typeof value === "string" && value !== "" ? storable(value).slice(0, 255).toWellFormed() : null;

function parse(body: Uint8Array): Readonly<Record<string, unknown>> | null {
  try {
    const value: unknown = JSON.parse(textOf(body) ?? "");
    return typeof value === "object" && value !== null && !Array.isArray(value) ? fieldsOf(value) : null;
  } catch {
    return null;
  }
}

function readEvent({ headers, body }: WebhookRequest, receivedAt: Millis): WebhookEvent | null {
  const envelope = parse(body);
  if (!envelope) return null;
  const type = wordOf(envelope["type"])?.slice(0, 100).toWellFormed() ?? "unknown";
  const means = Object.hasOwn(receipts, type) ? receipts[type] : undefined;
  const isOurs = means !== undefined && means !== "ignored";
  const data = fieldsOf(envelope["data"]);
  const status: ReceiptStatus | null =
    means === undefined || means === "evidence" || means === "ignored" ? null : means;
  return {
    kind: "receipt",
    eventId: (wordOf(headerOf(headers, "id")) ?? "").slice(0, 255),
    type,
    status,
    provesAcceptance: isOurs,
    occurredAt: timeOf(envelope["created_at"], receivedAt),
    deliveryId: isOurs ? deliveryTag(data["tags"]) : null,
    providerMessageId: isOurs ? (wordOf(data["email_id"]) ?? wordOf(data["id"])) : null,
    suppresses: suppressionOf(type, data),
    recipients: isOurs ? recipientsOf(data["to"]) : null,
    detail: isOurs ? detailOf(data) : null,
  };
}

function timeOf(value: unknown, receivedAt: Millis): Millis {
  const at = typeof value === "string" ? Date.parse(value) : Number.NaN;
  return at > 0 && at <= receivedAt + A_DAY_MS ? at : receivedAt;
}

function recipientsOf(to: unknown): readonly string[] | null {
  const all = (Array.isArray(to) ? to : [to]).map(wordOf).filter((one) => one !== null);
  return all.length > 0 ? all.slice(0, 50) : null;
}

/** A bounce without a type is taken for a hard one: Resend calls only permanent rejections bounces. */
function suppressionOf(type: string, data: Readonly<Record<string, unknown>>): string | null {
  if (type === "email.complained") return "complaint";
  if (type === "email.suppressed") return "provider_suppressed";
  if (type !== "email.bounced") return null;
  const kind = wordOf(fieldsOf(data["bounce"])["type"])?.toLowerCase();
  return kind === "transient" || kind === "undetermined" ? null : "hard_bounce";
}

/** What an operator wants to know: no contents, no IP addresses, no user agents. */
const KEPT: Readonly<Record<string, readonly string[]>> = {
  bounce: ["type", "subType", "message", "diagnosticCode"],
  failed: ["reason"],
  suppressed: ["type", "message", "reason"],
  click: ["link"],
};

function detailOf(data: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> | null {
  const kept = Object.entries(KEPT).flatMap(([name, fields]) => {
    const about = fieldsOf(data[name]);
    const some = fields.flatMap((field) => {
      const value = Array.isArray(about[field])
        ? about[field].filter((one) => typeof one === "string").join("; ")
        : about[field];
      return typeof value === "string" ? [[field, storable(value).toWellFormed()]] : [];
    });
    return some.length > 0 ? [[name, Object.fromEntries(some)]] : [];
  });
  // What is escaped in JSON may be longer there than it is.
  while (Buffer.byteLength(JSON.stringify(Object.fromEntries(kept))) > MAX_DETAIL) kept.pop();
  return kept.length === 0 ? null : Object.fromEntries(kept);
}
