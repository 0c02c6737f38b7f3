import type { WebhookEvent } from "../providers/provider.ts";
import { CHANNEL_ID } from "../store/channels.ts";
import { applyRecipientEvent } from "../store/recipients.ts";
import { createTouch } from "../store/webhooks.ts";
import type { ApiContext, ApiDeps, Handler } from "./env.ts";
import { readBody } from "./json.ts";
import { Problem } from "./problem.ts";
import type { ReceiveReceipts } from "./receive.ts";

/** A webhook's body, at most: it is read before anybody has proved who he is. */
const MAX_WEBHOOK_BYTES = 1_048_576;

const unsigned = (detail: string) => new Problem("invalid-signature", detail);

/** Webhooks of the providers: verified on the raw bytes, answered after the commit. What is genuine and not ours is taken, too. */
export function webhookHandlers(deps: ApiDeps, receive: ReceiveReceipts) {
  const touch = createTouch(deps.db);

  function receiver(provider: string): Handler {
    return async (context) => {
      const { id, channel } = channelOf(context, provider);
      const event = await verified(context, channel);
      const result = event === null ? "ignored" : await apply(id, event);
      await touch(id);
      return context.json({ received: true, result });
    };
  }

  function channelOf(context: ApiContext, provider: string) {
    const id = context.req.param("channel") ?? "";
    const channel = CHANNEL_ID.test(id) ? deps.channels.get(id) : undefined;
    if (channel?.provider.name !== provider)
      throw new Problem("not-found", `there is no ${provider} channel of that name`);
    return { id, channel };
  }

  async function verified(
    context: ApiContext,
    { provider: { webhooks }, webhookSecrets }: ReturnType<typeof channelOf>["channel"],
  ): Promise<WebhookEvent | null> {
    const { headers } = context.req.raw;
    if (!webhooks || webhookSecrets.length === 0) throw unsigned("the channel has no webhook secret");
    if (!webhooks.isSigned(headers)) throw unsigned("the signature is missing");
    const request = { headers, body: await readBody(context, Math.min(MAX_WEBHOOK_BYTES, deps.maxBodyBytes)) };
    const now = Date.now();
    if (!webhooks.verify(request, webhookSecrets, now)) throw unsigned("the signature is wrong, or too old");
    return webhooks.read(request, now);
  }

  async function apply(channel: string, event: WebhookEvent): Promise<"applied" | "unmatched" | "duplicate"> {
    if (event.kind === "recipient") return await applyRecipientEvent(deps.db, channel, event);
    const { kind: _, ...receipt } = event;
    return (await receive.one({ ...receipt, channel, name: null, producerId: null })).result;
  }

  return { postResendWebhook: receiver("resend"), postTelegramWebhook: receiver("telegram") };
}
