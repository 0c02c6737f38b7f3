import { createIdentify } from "../../src/api/auth.ts";
import type { ApiDeps } from "../../src/api/env.ts";
import { createSessions } from "../../src/api/sessions.ts";
import { mountConsole } from "../../src/console/app.tsx";
import { createLog } from "../../src/log.ts";
import { ADMIN_PRODUCER, ensureProducer } from "../../src/store/keys.ts";
import type { Db } from "../../src/store/schema.ts";
import { ADMIN_KEY, type App, openApp } from "../api/open-app.ts";

const ORIGIN = "http://ledger.test";

/** The console over the API of the tests. */
export async function openConsole(db: Db, more: Partial<ApiDeps> = {}): Promise<App & { visit: Visit }> {
  const app = await openApp(db, more);
  const admin = { key: ADMIN_KEY, producerId: await ensureProducer(db, ADMIN_PRODUCER) };
  const log = createLog("info", [], { write: (line) => void app.logged.push(line) });
  mountConsole({ api: app.app, sessions: createSessions(db, createIdentify(db, admin)), log });
  const visit: Visit = (path, { form, cookie, headers = {} } = {}) =>
    Promise.resolve(
      app.app.request(`${ORIGIN}${path}`, {
        redirect: "manual",
        headers: {
          host: "ledger.test",
          ...(cookie !== undefined && { cookie }),
          ...(form !== undefined && { origin: ORIGIN }),
          ...headers,
        },
        ...(form !== undefined && { method: "POST", body: new URLSearchParams(form as [string, string][]) }),
      }),
    );
  return { ...app, visit };
}

export interface Visited {
  readonly form?: Record<string, string> | string[][];
  readonly cookie?: string;
  readonly headers?: Record<string, string>;
}
export type Visit = (path: string, how?: Visited) => Promise<Response>;

/** A browser that is signed in: its cookie, and the token of its forms. */
export interface SignedIn {
  readonly cookie: string;
  readonly csrf: string;
  get(path: string): Promise<Response>;
  /** With the session's token. */
  post(path: string, form: Record<string, string> | string[][]): Promise<Response>;
}

export async function signIn(visit: Visit, key = ADMIN_KEY, operator = "Ada"): Promise<SignedIn> {
  const answered = await visit("/console/sign-in", { form: { key, operator } });
  if (answered.status !== 303) throw new Error(`${answered.status} ${await answered.text()}`);
  const cookie = (answered.headers.get("set-cookie") ?? "").split(";")[0] ?? "";
  const page = await (await visit("/console/session", { cookie })).text();
  const csrf = /name="csrf" value="([^"]+)"/.exec(page)?.[1] ?? "";
  const entries = (form: Record<string, string> | string[][]) => (Array.isArray(form) ? form : Object.entries(form));
  return {
    ...{ cookie, csrf },
    get: (path) => visit(path, { cookie }),
    post: (path, form) => visit(path, { cookie, form: [...entries(form), ["csrf", csrf]] }),
  };
}
