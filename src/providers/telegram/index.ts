import { beginning } from "../fields.ts";
import type { Provider } from "../provider.ts";
import { capability } from "./capability.ts";
import { chat, message } from "./message.ts";
import { webhooks } from "./webhook.ts";

export const telegram: Provider = {
  name: "telegram",
  capability,
  recipient: chat,
  message,
  preview(posted) {
    const { text, caption, photo, document } = posted as Record<string, unknown>;
    return beginning(text ?? caption ?? photo ?? document);
  },
  webhooks,
};
