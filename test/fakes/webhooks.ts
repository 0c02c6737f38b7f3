import { randomUUID } from "node:crypto";
import { Webhook } from "standardwebhooks";

export interface SignedRequest {
  readonly headers: Record<string, string>;
  readonly body: string;
}

export interface ResendEvent {
  readonly type?: string;
  readonly emailId?: string;
  readonly deliveryId?: string;
  /** Resend's types say object, its documentation says array. */
  readonly tagsAs?: "object" | "array";
  readonly to?: string | readonly string[];
  readonly at?: Date;
  /** The event's id: `svix-id`. */
  readonly id?: string;
  /** When it was signed. */
  readonly signedAt?: Date;
  /** One signature each, as while a secret is rotated. */
  readonly secrets: readonly string[];
  /** More members of `data`. */
  readonly data?: Record<string, unknown>;
}

/** A webhook as Resend sends it, by Svix. */
export function resendWebhook(event: ResendEvent): SignedRequest {
  const { type = "email.delivered", at = new Date(), id = `msg_${randomUUID()}` } = event;
  const tags =
    event.deliveryId === undefined
      ? undefined
      : event.tagsAs === "array"
        ? [{ name: "delivery_id", value: event.deliveryId }]
        : { delivery_id: event.deliveryId };
  const body = JSON.stringify({
    created_at: at.toISOString(),
    data: {
      created_at: at.toISOString(),
      email_id: event.emailId ?? randomUUID(),
      from: "Shop <shop@example.com>",
      to: event.to ?? ["ada@example.com"],
      subject: "Your order",
      headers: [{ name: "X-Own", value: "1" }],
      ...(tags && { tags }),
      ...event.data,
    },
    type,
  });
  return sign(body, { id, signedAt: event.signedAt ?? new Date(), secrets: event.secrets });
}

/** Any body, signed as Resend signs. */
export function sign(
  body: string,
  { id, signedAt = new Date(), secrets }: { id: string; signedAt?: Date; secrets: readonly string[] },
): SignedRequest {
  const signature = secrets.map((secret) => new Webhook(secret).sign(id, signedAt, body)).join(" ");
  const timestamp = String(Math.floor(signedAt.getTime() / 1000));
  return {
    headers: {
      "content-type": "application/json",
      "svix-id": id,
      "svix-timestamp": timestamp,
      "svix-signature": signature,
    },
    body,
  };
}

let updates = 100;

/** An update as Telegram posts it to a webhook with a secret token. */
export function telegramUpdate(update: Record<string, unknown>, secret: string, id = ++updates): SignedRequest {
  return {
    headers: { "content-type": "application/json", "x-telegram-bot-api-secret-token": secret },
    body: JSON.stringify({ update_id: id, ...update }),
  };
}

/** The bot's membership in a chat changed. */
export const membership = (chat: number, status: string, at = new Date()) => ({
  my_chat_member: {
    chat: { id: chat, type: chat < 0 ? "group" : "private" },
    from: { id: Math.abs(chat), is_bot: false, first_name: "Ada" },
    date: Math.floor(at.getTime() / 1000),
    old_chat_member: { status: "member", user: { id: 1, is_bot: true, first_name: "Bot" } },
    new_chat_member: { status, user: { id: 1, is_bot: true, first_name: "Bot" }, until_date: 0 },
  },
});
