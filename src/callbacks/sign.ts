import { randomBytes } from "node:crypto";
import { Webhook } from "standardwebhooks";

/** A new secret, in the form of Standard Webhooks. */
export const newSecret = (): string => `whsec_${randomBytes(32).toString("base64")}`;

const SECRET = /^whsec_(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;

/** `whsec_` and 24 to 64 bytes in Base64 (standard-webhooks.md, Symmetric signatures). */
export function isSecret(text: string): boolean {
  const { length } = Buffer.from(text.slice(6), "base64");
  return SECRET.test(text) && length >= 24 && length <= 64;
}

/** The headers of a message (standard-webhooks.md): one signature for each secret, for one may be on its way out. */
export function signedHeaders(
  message: { readonly id: string; readonly body: string },
  secrets: readonly string[],
  now: Date,
): Record<string, string> {
  return {
    "content-type": "application/json",
    "user-agent": "delivery-ledger",
    "webhook-id": message.id,
    "webhook-timestamp": String(Math.floor(now.getTime() / 1000)),
    "webhook-signature": secrets.map((secret) => new Webhook(secret).sign(message.id, now, message.body)).join(" "),
  };
}
