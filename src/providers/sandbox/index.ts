import { z } from "zod";
import { beginning, line, text } from "../fields.ts";
import type { Provider } from "../provider.ts";
import { capability } from "./capability.ts";

export const sandbox: Provider = {
  name: "sandbox",
  capability,
  recipient: line(320).min(1, "must not be empty").meta({ description: "any text; accept@sandbox, refuse@sandbox, …" }),
  message: z
    .strictObject({ subject: line(200_000).optional(), text: text(1_000_000), html: text(1_000_000).optional() })
    .meta({ id: "SandboxMessage" }),
  preview(posted) {
    const { subject, text: body } = posted as { subject?: unknown; text?: unknown };
    return beginning(subject ?? body);
  },
  webhooks: null,
};
