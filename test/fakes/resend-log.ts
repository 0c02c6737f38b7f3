import { randomUUID } from "node:crypto";
import type { LookedUp } from "./desk.ts";
import { jsonReply, type Reply } from "./step.ts";

/** An entry of Resend's request log, in its own words and in whole. */
export interface FakeLogEntry {
  readonly id: string;
  readonly created_at: string;
  readonly endpoint: string;
  readonly method: string;
  readonly response_status: number;
  readonly user_agent: string | null;
  readonly request_body: unknown;
  readonly response_body: unknown;
}

export interface RequestLog {
  /** Answers `GET /logs`, `GET /logs/:id` and `GET /emails/:id`; null for another path. */
  read(path: string): LookedUp | null;
  /** A `POST /emails`, as it was answered. */
  record(request: unknown, reply: Reply, at: number): void;
  /** Another entry at that time; by default somebody else's email. Its id. */
  add(at: number, more?: Partial<FakeLogEntry>): string;
  /** What became of an email, from now on. Until then: sent. */
  report(emailId: string, lastEvent: string): void;
  readonly entries: readonly FakeLogEntry[];
  clear(): void;
}

/** As PostgreSQL writes times, and so Resend's log: `2026-03-30 13:43:54.622865+00`. */
const written = (at: number): string => new Date(at).toISOString().replace("T", " ").replace("Z", "000+00");

const notFound = (what: string): Reply =>
  jsonReply(404, { statusCode: 404, message: `${what} not found`, name: "not_found" });

export function openLog(): RequestLog {
  const entries: FakeLogEntry[] = [];
  const emails = new Map<string, { request: Record<string, unknown>; lastEvent: string; at: number }>();

  const add = (at: number, more: Partial<FakeLogEntry> = {}): string => {
    const entry = {
      ...{ id: randomUUID(), created_at: written(at), endpoint: "/emails", method: "POST", response_status: 200 },
      ...{ user_agent: "resend-node:6.38.0", request_body: { to: "else@example.com" } },
      response_body: { id: randomUUID() },
      ...more,
    };
    entries.push(entry);
    return entry.id;
  };

  function list(query: URLSearchParams): Reply {
    const newestFirst = entries.toReversed().toSorted((a, b) => b.created_at.localeCompare(a.created_at));
    const limit = Number(query.get("limit") ?? "20");
    const after = query.get("after");
    const from = after === null ? 0 : newestFirst.findIndex(({ id }) => id === after) + 1;
    if (!(limit >= 1 && limit <= 100) || (after !== null && from === 0)) {
      return jsonReply(422, { statusCode: 422, message: "limit or after is invalid", name: "validation_error" });
    }
    const data = newestFirst.slice(from, from + limit).map(({ request_body, response_body, ...listed }) => listed);
    return jsonReply(200, { object: "list", has_more: from + limit < newestFirst.length, data });
  }

  function one(id: string): Reply {
    const entry = entries.find((held) => held.id === id);
    return entry ? jsonReply(200, { object: "log", ...entry }) : notFound("Log");
  }

  function email(id: string): Reply {
    const held = emails.get(id);
    if (!held) return notFound("Email");
    const { request, lastEvent, at } = held;
    const nothing = { bcc: null, cc: null, reply_to: null, html: null, text: null, scheduled_at: null };
    return jsonReply(200, {
      ...{ object: "email", id, message_id: `<${id}@resend.test>`, ...nothing, ...request },
      to: [request["to"]].flat(),
      ...{ created_at: written(at), last_event: lastEvent },
    });
  }

  return {
    entries,
    add,
    read(path) {
      const { pathname, searchParams } = new URL(path, "http://fake");
      const [room = "", id, ...rest] = pathname.slice(1).split("/");
      if (rest.length > 0) return null;
      if (room === "logs" && id === undefined) return { name: "GET /logs", reply: list(searchParams) };
      if (room === "logs" && id !== undefined) return { name: "GET /logs/:id", reply: one(id) };
      return room === "emails" && id !== undefined ? { name: "GET /emails/:id", reply: email(id) } : null;
    },
    record(request, { status, body }, at) {
      const response = JSON.parse(body) as { id?: string };
      add(at, {
        ...{ response_status: status, user_agent: "delivery-ledger" },
        ...{ request_body: request, response_body: response },
      });
      if (response.id !== undefined && !emails.has(response.id)) {
        emails.set(response.id, { request: request as Record<string, unknown>, lastEvent: "sent", at });
      }
    },
    report(emailId, lastEvent) {
      const held = emails.get(emailId);
      if (!held) throw new Error(`no email ${emailId}`);
      held.lastEvent = lastEvent;
    },
    clear: () => {
      entries.length = 0;
      emails.clear();
    },
  };
}
