import { expect } from "vitest";
import type { z } from "zod";
import { createApi } from "../../src/api/app.ts";
import type { ApiDeps } from "../../src/api/env.ts";
import { ROUTES } from "../../src/api/routes/index.ts";
import type { Route } from "../../src/api/routes/route.ts";
import * as schemas from "../../src/api/schemas.ts";
import { pacingOf } from "../../src/ledger/pacing.ts";
import { createLog } from "../../src/log.ts";
import { type AdapterSettings, openAdapter, PROVIDERS } from "../../src/providers/index.ts";
import { registerChannels } from "../../src/store/channels.ts";
import { ADMIN_PRODUCER, createKey, ensureProducer, type Scope } from "../../src/store/keys.ts";
import type { Db } from "../../src/store/schema.ts";

export const ADMIN_KEY = "an-admin-key-of-the-tests";

const ACCOUNTS: readonly (readonly [id: string, settings: AdapterSettings])[] = [
  ["sandbox", { provider: "sandbox" }],
  ["email", { provider: "resend", apiKey: "re_a_key_that_is_never_used", from: "Shop <shop@example.com>" }],
  ["telegram", { provider: "telegram", botToken: "123456:a-token-that-is-never-used" }],
];

export const RESEND_SECRET = "whsec_dGhlIHNlY3JldCBvZiB0aGUgdGVzdHM=";
export const TELEGRAM_SECRET = "the-secret-of-the-tests";
const WEBHOOK_SECRETS: ReadonlyMap<string, readonly string[]> = new Map([
  ["email", [RESEND_SECRET]],
  ["telegram", [TELEGRAM_SECRET]],
]);

interface Asked {
  readonly method?: string;
  readonly key?: string | null;
  readonly json?: unknown;
  /** Sent as it stands, as application/json. */
  readonly body?: string | Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array>;
  readonly headers?: Record<string, string>;
}

export interface Answered {
  readonly status: number;
  readonly headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: tests read the shapes that the contract check has just checked
  readonly body: any;
  readonly text: string;
}

/** The API on a test database. Every answer is held against the contract before the test sees it. */
export async function openApp(db: Db, more: Partial<ApiDeps> = {}) {
  await registerChannels(
    db,
    ACCOUNTS.map(([id, { provider }]) => ({ id, provider, fingerprint: "f" })),
  );
  const producerId = await ensureProducer(db, ADMIN_PRODUCER);
  return appOn({ db, admin: { key: ADMIN_KEY, producerId }, ...more });
}

/** Likewise, without touching the database first. */
export function appOn(more: Pick<ApiDeps, "db" | "admin"> & Partial<ApiDeps>) {
  const woken: string[] = [];
  const logged: string[] = [];
  const seen = new Set<string>();
  const app = createApi({
    channels: new Map(
      ACCOUNTS.map(([id, settings]) => {
        const provider = PROVIDERS[settings.provider];
        if (!provider) throw new Error(`no provider ${settings.provider}`);
        const webhookSecrets = WEBHOOK_SECRETS.get(id) ?? [];
        const pacing = pacingOf(provider.capability.limits, null);
        return [id, { provider, adapter: openAdapter(settings), webhookSecrets, canLookUp: false, pacing }];
      }),
    ),
    maxBodyBytes: 1_048_576,
    allowPrivateCallbacks: false,
    wake: (channels) => void woken.push(...channels),
    ready: async () => ({ ok: true }),
    stopping: new AbortController().signal,
    log: createLog("info", [], { write: (line) => void logged.push(line) }),
    ...more,
  });

  async function ask(path: string, asked: Asked = {}): Promise<Answered> {
    const { key = ADMIN_KEY, json, body = json === undefined ? undefined : JSON.stringify(json) } = asked;
    const method = asked.method ?? (body === undefined ? "GET" : "POST");
    const response = await app.request(path, {
      method,
      headers: {
        ...(key !== null && { authorization: `Bearer ${key}` }),
        ...(body !== undefined && { "content-type": "application/json" }),
        ...asked.headers,
      },
      ...(body !== undefined && { body, duplex: "half" }),
    } as RequestInit);
    const text = await response.text();
    const isJson = (response.headers.get("content-type") ?? "").includes("json");
    const answered = {
      status: response.status,
      headers: response.headers,
      text,
      body: isJson ? JSON.parse(text) : undefined,
    };
    checkContract(method, path, answered, seen);
    return answered;
  }

  const post = (json: unknown, more: Asked = {}) => ask("/v1/deliveries", { json, ...more });
  const keyFor = async (producer: string | null, ...scopes: Scope[]) =>
    (await createKey(more.db, { name: `key of ${producer}`, producer, scopes })).key;
  return { app, ask, post, keyFor, woken, logged, seen };
}

export type App = Awaited<ReturnType<typeof openApp>>;

const PATTERNS = Object.entries<Route>(ROUTES).map(([id, route]) => ({
  id,
  route,
  // Fixed paths before those with parameters: `/v1/deliveries/batch` is no delivery.
  pattern: new RegExp(`^${route.path.replaceAll(/\{\w+\}/g, "[^/]+")}$`),
}));

const routeOf = (method: string, path: string) =>
  PATTERNS.find(
    ({ route, pattern }) => route.method.toUpperCase() === method && pattern.test(path.split("?")[0] ?? ""),
  );

/** The answer is one that the contract has for this endpoint, and has that shape and nothing else. */
function checkContract(method: string, path: string, { status, headers, body }: Answered, seen: Set<string>): void {
  expect(headers.get("x-request-id"), "every answer has a request id").toMatch(/^[0-9a-f-]{36}$/);
  const found = routeOf(method, path);
  if ((headers.get("content-type") ?? "").startsWith("application/problem+json")) {
    const problem = schemas.problem.parse(body);
    expect(problem.status).toBe(status);
    expect(problem.instance).toBe(`urn:uuid:${headers.get("x-request-id")}`);
    const type = problem.type.replace("/problems/", "");
    if (status === 405) for (const { id, pattern } of PATTERNS) if (pattern.test(path)) seen.add(`${id} ${type}`);
    if (!found) return;
    const always = ["public", "signature"].includes(found.route.scope ?? "")
      ? []
      : ["unauthorized", "forbidden", "unavailable", "internal"];
    expect([...found.route.problems, ...always], `${method} ${path} answers ${type}`).toContain(type);
    seen.add(`${found.id} ${type}`);
    return;
  }
  if (!found) return;
  const answer = found.route.answers[status];
  expect(answer, `${method} ${path} answers ${status}: ${JSON.stringify(body)}`).toBeDefined();
  if (answer?.schema) (answer.schema as z.ZodType).parse(body);
  for (const name of Object.keys(answer?.headers ?? {})) expect(headers.has(name), `${name} of ${path}`).toBe(true);
  seen.add(`${found.id} ${status}`);
}

let counter = 0;
/** A name that no other delivery of this process has. */
export const fresh = (stem = "order"): string => `${stem}/${++counter}`;

/** A delivery with good defaults. */
export const email = (more: Record<string, unknown> = {}) => ({
  name: fresh(),
  channel: "email",
  to: "ada@example.com",
  message: { subject: "Your order", text: "It is on its way." },
  ...more,
});
export const chat = (more: Record<string, unknown> = {}) => ({
  name: fresh(),
  channel: "telegram",
  to: "-100123",
  message: { text: "It is on its way." },
  ...more,
});
/** Where the faults are; a place with two faults once. */
export const pointers = ({ body }: Answered): string[] => [
  ...new Set<string>((body.errors ?? []).map(({ pointer }: { pointer: string }) => pointer)),
];
