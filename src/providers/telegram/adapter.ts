import { AsyncLocalStorage } from "node:async_hooks";
import { Api } from "grammy";
import { redactor } from "../../ledger/redact.ts";
import { type Answer, saneRetryAfterS } from "../../ledger/verdict.ts";
import type { Adapter, Call, Renderable } from "../provider.ts";
import { type Exchange, header, neverMade, openTransport, readBody, storable } from "../transport.ts";
import { METHODS, type Method, methodOf, type TelegramMessage } from "./message.ts";

export interface TelegramSettings {
  readonly botToken: string;
  /** Without a slash at the end; default `https://api.telegram.org`. */
  readonly apiRoot?: string;
}

interface UnderWay {
  readonly call: Call;
  exchange: Exchange | null;
}

/** grammY has a time-out of its own, 500 s by default. Ours ends every call; this one must never come first. */
const NEVER_S = 86_400;

/**
 * Sends through grammY, with our transport underneath: grammY makes the request, the transport tells what became of it.
 * grammY's own account of a failure is not used: it forgets the HTTP status, and its errors quote the token.
 */
export function openTelegram(settings: TelegramSettings): Adapter {
  const redact = redactor([settings.botToken]);
  const transport = openTransport(redact);
  const underWay = new AsyncLocalStorage<UnderWay>();
  const api = new Api(settings.botToken, {
    apiRoot: settings.apiRoot ?? "https://api.telegram.org",
    timeoutSeconds: NEVER_S,
    fetch: fetchThrough as unknown as typeof fetch,
  });

  async function fetchThrough(url: string, init: { body: string }): Promise<Pick<Response, "json">> {
    const current = underWay.getStore();
    if (!current) throw new TypeError("a request outside of a call");
    const exchange = await transport.post({
      url: new URL(url),
      headers: { "content-type": "application/json" },
      body: init.body,
      timeoutMs: current.call.timeoutMs,
      signal: current.call.signal,
    });
    current.exchange = exchange;
    return { json: async () => readBody(exchange).value };
  }

  return {
    lacks: () => null,

    render: async ({ to, message }: Renderable) => {
      const posted = message as TelegramMessage;
      const chat_id = to.startsWith("@") ? to : Number(to);
      return JSON.stringify({ method: methodOf(posted), payload: { chat_id, ...posted } });
    },

    async call(call: Call) {
      const request = requestOf(call.body);
      if (!request) return answerOf(neverMade("the rendered request cannot be read"), redact);
      const current: UnderWay = { call, exchange: null };
      // What grammY makes of the answer, or of its absence, is of no interest; the exchange is.
      await underWay.run(current, () => api.raw[request.method](request.payload)).catch(() => {});
      return answerOf(current.exchange ?? neverMade("grammY made no request"), redact);
    },

    close: () => transport.close(),
  };
}

interface Request {
  readonly method: Method;
  readonly payload: never;
}

/** The request that `render` wrote. Null for anything else: the method is part of the URL. */
function requestOf(body: string): Request | null {
  try {
    const request = objectOf(JSON.parse(body)) as unknown as Request;
    return Object.values(METHODS).includes(request.method) ? request : null;
  } catch {
    return null;
  }
}

/** `{ ok, result }`, or `{ ok, error_code, description, parameters }`; anything else is kept as what it is. */
function answerOf(exchange: Exchange, redact: (text: string) => string): Answer {
  const { kind, value } = readBody(exchange);
  const { ok, result, error_code, description, parameters } = objectOf(value);
  const messageId = objectOf(result)["message_id"];
  const { retry_after, migrate_to_chat_id } = objectOf(parameters);
  const said =
    typeof description === "string" ? description : kind === "text" ? exchange.body : exchange.error?.message;
  return {
    phase: exchange.phase,
    status: exchange.status,
    body: kind,
    code: typeof error_code === "number" ? String(error_code) : (exchange.error?.code ?? null),
    message: ok === true || said === null || said === undefined ? null : storable(redact(said)),
    ok: typeof ok === "boolean" ? ok : null,
    providerMessageId: ok === true && isMessageId(messageId) ? String(messageId) : null,
    retryAfterS: saneRetryAfterS(retry_after) ?? saneRetryAfterS(header(exchange, "retry-after")),
    movedTo: Number.isSafeInteger(migrate_to_chat_id) ? String(migrate_to_chat_id) : null,
    limitPerSecond: null,
  };
}

/** 0 stands for a message that Telegram has accepted and will number later (Bot API: Message.message_id). */
const isMessageId = (value: unknown): value is number => Number.isSafeInteger(value) && Number(value) > 0;

const objectOf = (value: unknown): Record<string, unknown> =>
  (typeof value === "object" && value !== null ? value : {}) as Record<string, unknown>;
