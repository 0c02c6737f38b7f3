import { createHash, timingSafeEqual } from "node:crypto";
import type { Millis } from "../../ledger/delivery.ts";
import type { WebhookEvent, WebhookReader } from "../provider.ts";

const HEADER = "x-telegram-bot-api-secret-token";
const A_DAY_MS = 86_400_000;

const hashOf = (text: string): Buffer => createHash("sha256").update(text, "utf8").digest();

/**
 * Telegram's updates carry the secret token that `setWebhook` was given (https://core.telegram.org/bots/api#setwebhook).
 * Only what they say of recipients is read; what users write is nobody's business here.
 */
export const webhooks: WebhookReader = {
  secretFault: (secret) =>
    /^[A-Za-z0-9_-]{1,256}$/.test(secret) ? null : "must be 1 to 256 of A-Z, a-z, 0-9, _ and -, as setWebhook takes it",

  isSigned: (headers) => headers.has(HEADER),

  verify({ headers }, secrets) {
    const given = hashOf(headers.get(HEADER) ?? "");
    // Every secret is compared, and hashes have one length: the time tells nothing.
    return secrets.map((secret) => timingSafeEqual(given, hashOf(secret))).includes(true);
  },

  read({ body }, receivedAt) {
    try {
      return readUpdate(JSON.parse(new TextDecoder().decode(body)), receivedAt);
    } catch {
      return null;
    }
  },
};

const fieldsOf = (value: unknown): Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};

function readUpdate(value: unknown, receivedAt: Millis): WebhookEvent | null {
  const update = fieldsOf(value);
  const id = update["update_id"];
  if (!Number.isSafeInteger(id)) return null;
  const member = fieldsOf(update["my_chat_member"]);
  const message = fieldsOf(update["message"]);
  const [type, about, change] =
    update["my_chat_member"] === undefined
      ? (["message", message, movedBy(message)] as const)
      : (["my_chat_member", member, changedBy(member)] as const);
  const chat = fieldsOf(about["chat"])["id"];
  if (change === null || !Number.isSafeInteger(chat)) return null;
  const occurredAt = timeOf(about["date"], receivedAt);
  return { kind: "recipient", eventId: `update:${id}`, type, occurredAt, recipient: String(chat), change };
}

type Change = Extract<WebhookEvent, { kind: "recipient" }>["change"];

/** The bot's own membership: who blocks it, throws it out, or lets it in again. */
function changedBy(member: Readonly<Record<string, unknown>>): Change | null {
  const { status, is_member } = fieldsOf(member["new_chat_member"]) as { status?: unknown; is_member?: unknown };
  if (status === "kicked" || status === "left") return { to: "blocked" };
  if (status === "member" || status === "administrator" || status === "creator") return { to: "unblocked" };
  return status === "restricted" ? { to: is_member === false ? "blocked" : "unblocked" } : null;
}

/** The old group's last message says what it became. */
function movedBy({ migrate_to_chat_id: to }: Readonly<Record<string, unknown>>): Change | null {
  return Number.isSafeInteger(to) ? { to: "moved", movedTo: String(to) } : null;
}

function timeOf(seconds: unknown, receivedAt: Millis): Millis {
  const at = typeof seconds === "number" ? seconds * 1000 : Number.NaN;
  return at > 0 && at <= receivedAt + A_DAY_MS ? at : receivedAt;
}
