/** A bot token is part of Telegram's URLs, and so of many error texts. */
const BOT_TOKEN = /bot\d+:[A-Za-z0-9_-]+/g;
/** Our own API keys, and Resend's. */
const API_KEY = /\b(dl|re)_[A-Za-z0-9_-]{16,}/g;

/** Replaces the given secrets, and whatever looks like one, in a text. */
export function redactor(secrets: readonly string[]): (text: string) => string {
  const known = secrets.filter((secret) => secret.length >= 6).toSorted((a, b) => b.length - a.length);
  return (text) => {
    let clean = text;
    for (const secret of known) clean = clean.replaceAll(secret, "[secret]");
    return clean.replace(BOT_TOKEN, "bot[secret]").replace(API_KEY, "$1_[secret]");
  };
}
