import type { Desk, Fake, FakeOptions, Letter, Received } from "./desk.ts";
import { openFake } from "./fake.ts";
import { jsonReply, type Reply, type Step } from "./step.ts";

export type FakeTelegramOptions = FakeOptions;

interface Parameters {
  readonly retry_after?: unknown;
  readonly migrate_to_chat_id?: unknown;
}

/** The Bot API's error body, with its code as the HTTP status, as the Bot API does. */
export const telegramError = (code: number, description: string, parameters?: Parameters): Step => ({
  do: "answer",
  status: code,
  json: { ok: false, error_code: code, description, ...(parameters && { parameters }) },
  headers: {
    ...(typeof parameters?.retry_after === "number" && { "retry-after": String(parameters.retry_after) }),
  },
});

export const FLOOD = (retryAfter: unknown): Step =>
  telegramError(429, `Too Many Requests: retry after ${retryAfter}`, { retry_after: retryAfter });
export const MIGRATED = (to: number): Step =>
  telegramError(400, "Bad Request: group chat was upgraded to a supergroup chat", { migrate_to_chat_id: to });
export const BLOCKED: Step = telegramError(403, "Forbidden: bot was blocked by the user");

const error = (code: number, description: string): Reply =>
  jsonReply(code, { ok: false, error_code: code, description });

/** `sendMessage`, `sendPhoto` and `sendDocument`, without any memory: the same message twice is two messages. */
export function openFakeTelegram(options: FakeTelegramOptions = {}): Promise<Fake> {
  return openFake(telegramDesk(), options);
}

function telegramDesk(): Desk {
  let good: readonly string[] | null = null;
  let lastMessageId = 0;
  return {
    read(received) {
      const { token, method } = /^\/bot(?<token>[^/]+)\/(?<method>\w+)$/.exec(received.path)?.groups ?? {};
      if (token === undefined || method === undefined) return error(404, "Not Found");
      if (good && !good.includes(token)) return error(401, "Unauthorized");
      if (!["sendMessage", "sendPhoto", "sendDocument"].includes(method))
        return error(404, "Not Found: method not found");
      return letterOf(received);
    },
    admit: () => null,
    accepted({ recipient, content }, now) {
      lastMessageId += 1;
      const { text, caption, message_thread_id } = content as Record<string, unknown>;
      const chat = recipient.startsWith("@")
        ? { id: -1_001_000_000_000, username: recipient.slice(1), type: "channel" }
        : { id: Number(recipient), type: recipient.startsWith("-") ? "group" : "private" };
      const message = {
        message_id: lastMessageId,
        date: Math.floor(now / 1000),
        chat,
        text,
        caption,
        message_thread_id,
      };
      return jsonReply(200, { ok: true, result: message });
    },
    refused: () => {},
    reset: () => {},
    accept: (credentials) => {
      good = credentials;
    },
  };
}

function letterOf({ body }: Received): Letter | Reply {
  try {
    const content = JSON.parse(body) as { chat_id?: number | string; text?: string };
    if (content.chat_id === undefined) return error(400, "Bad Request: chat_id is empty");
    if (content.text?.trim() === "") return error(400, "Bad Request: message text is empty");
    return { recipient: String(content.chat_id), content, key: null };
  } catch {
    return error(400, "Bad Request: can't parse JSON");
  }
}
