import { Resend } from "resend";
import { redactor } from "../../ledger/redact.ts";
import { type Answer, saneLimitPerSecond, saneRetryAfterS } from "../../ledger/verdict.ts";
import type { Adapter, Call, Renderable } from "../provider.ts";
import { type Exchange, header, neverMade, openTransport, readBody, storable } from "../transport.ts";
import { type EmailMessage, mailbox } from "./message.ts";

export interface ResendSettings {
  readonly apiKey: string;
  /** Without a slash at the end; default `https://api.resend.com`. */
  readonly baseUrl?: string;
  /** The sender of emails that name none. */
  readonly from?: string;
  /** A full-access key: with it, the request log tells what became of doubtful emails. */
  readonly lookupApiKey?: string;
}

/** Resend takes 1 to 256 characters; printable ASCII is what every header can carry. */
const IDEMPOTENCY_KEY = /^[\x21-\x7e]{1,256}$/;

type Rendered<T> = ReturnType<typeof Resend.prototype.fetchRequest<T>>;

/**
 * The SDK, made to give away the body that it would send instead of sending it: the request's shape is the SDK's, the bytes
 * on the wire are the ones that were frozen.
 */
class Renderer extends Resend {
  override fetchRequest<T>(_path: string, options: { body?: unknown } = {}): Rendered<T> {
    return Promise.resolve({ data: { id: options.body } as T, error: null, headers: null });
  }
}

export function openResend(settings: ResendSettings): Adapter {
  const fault = settings.from === undefined ? undefined : mailbox.safeParse(settings.from).error?.issues[0]?.message;
  if (fault !== undefined) throw new TypeError(`the default sender ${fault}`);
  const redact = redactor([settings.apiKey]);
  const transport = openTransport(redact);
  const sdk = new Renderer(settings.apiKey);
  const url = new URL(`${settings.baseUrl ?? "https://api.resend.com"}/emails`);
  const headers = {
    authorization: `Bearer ${settings.apiKey}`,
    "content-type": "application/json",
    // Resend refuses requests without one.
    "user-agent": "delivery-ledger",
  };

  return {
    lacks: (message) =>
      (message as EmailMessage).from === undefined && settings.from === undefined
        ? { path: ["from"], fault: "is required: this channel has no default sender" }
        : null,

    async render({ deliveryId, to, message }: Renderable) {
      const rendered = await sdk.emails.send(sdkEmail(message as EmailMessage, deliveryId, to, settings.from));
      const body: unknown = rendered.data?.id;
      if (typeof body !== "string") throw new TypeError("the resend SDK rendered no body");
      return body;
    },

    async call(call: Call) {
      if (!IDEMPOTENCY_KEY.test(call.idempotencyKey)) {
        return answerOf(neverMade("an email is never sent without a usable idempotency key"), redact);
      }
      const exchange = await transport.post({
        url,
        headers: { ...headers, "idempotency-key": call.idempotencyKey },
        body: call.body,
        timeoutMs: call.timeoutMs,
        signal: call.signal,
      });
      return answerOf(exchange, redact);
    },

    close: () => transport.close(),
  };
}

/** The posted message in the SDK's own words. */
function sdkEmail(message: EmailMessage, deliveryId: string, to: string, defaultFrom: string | undefined) {
  const { reply_to: replyTo, attachments, from = defaultFrom, tags = [], ...rest } = message;
  if (from === undefined) throw new TypeError("no sender");
  const email = {
    ...rest,
    from,
    to,
    ...(replyTo !== undefined && { replyTo }),
    tags: [...tags, { name: "delivery_id", value: deliveryId }],
    ...(attachments && {
      attachments: attachments.map(({ content_type: contentType, content_id: contentId, ...file }) => ({
        ...file,
        ...(contentType !== undefined && { contentType }),
        ...(contentId !== undefined && { contentId }),
      })),
    }),
  };
  // The SDK's type wants exactly one of text, html, react; the message's schema has seen to it.
  return email as Parameters<Resend["emails"]["send"]>[0];
}

/** `{ id }`, or `{ statusCode, name, message }`; anything else is kept as what it is. */
function answerOf(exchange: Exchange, redact: (text: string) => string): Answer {
  const { kind, value } = readBody(exchange);
  const fields = (typeof value === "object" && value !== null ? value : {}) as Record<string, unknown>;
  const { id, name, message } = fields;
  const said =
    typeof message === "string" ? message : kind === "text" ? exchange.body : (exchange.error?.message ?? null);
  const accepted = exchange.status !== null && exchange.status >= 200 && exchange.status < 300;
  return {
    phase: exchange.phase,
    status: exchange.status,
    body: kind,
    code: typeof name === "string" ? storable(redact(name)) : (exchange.error?.code ?? null),
    message: accepted || said === null ? null : storable(redact(said)),
    ok: null,
    providerMessageId: accepted && typeof id === "string" && id !== "" ? storable(id) : null,
    retryAfterS: saneRetryAfterS(header(exchange, "retry-after")),
    movedTo: null,
    limitPerSecond: limitPerSecond(exchange),
  };
}

/**
 * Requests a second that the account may make: `ratelimit-policy: 100;w=1` (100 in a window of 1 s), or `ratelimit-limit`
 * alone, which is by the second (https://resend.com/docs/api-reference/rate-limit).
 */
function limitPerSecond(exchange: Exchange): number | null {
  const [, limit, window] = /^(\d{1,9});w=(\d{1,9})$/.exec(header(exchange, "ratelimit-policy")?.trim() ?? "") ?? [];
  if (limit !== undefined) return saneLimitPerSecond(Number(limit) / Number(window));
  const alone = header(exchange, "ratelimit-limit")?.trim() ?? "";
  return /^\d{1,9}$/.test(alone) ? saneLimitPerSecond(Number(alone)) : null;
}
