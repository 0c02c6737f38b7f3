import { beginning } from "../fields.ts";
import type { Provider } from "../provider.ts";
import { capability } from "./capability.ts";
import { address, message } from "./message.ts";
import { webhooks } from "./webhook.ts";

export const resend: Provider = {
  name: "resend",
  capability,
  recipient: address,
  message,
  preview: (posted) => beginning((posted as { subject?: unknown }).subject),
  webhooks,
};
