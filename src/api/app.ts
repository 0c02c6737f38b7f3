import { randomUUID } from "node:crypto";
import { Hono, type MiddlewareHandler } from "hono";
import { routePath } from "hono/route";
import { isConflict, isConnectionError } from "../store/database.ts";
import { attentionHandlers } from "./attention.ts";
import { createIdentify, type Identify, requireScope } from "./auth.ts";
import { callbackHandlers } from "./callbacks.ts";
import { channelHandlers } from "./channels.ts";
import { deliveryHandlers } from "./deliveries.ts";
import { mountDocs } from "./docs.ts";
import type { ApiContext, ApiDeps, ApiEnv, Handler, Readiness } from "./env.ts";
import { eventHandlers } from "./events.ts";
import { keyHandlers } from "./keys.ts";
import { boundPatience, inTime, unavailable } from "./patience.ts";
import { Problem } from "./problem.ts";
import { producerHandlers } from "./producers.ts";
import { getProviders } from "./providers.ts";
import { receiptHandlers } from "./receipts.ts";
import { createReceive } from "./receive.ts";
import { type OperationId, ROUTES } from "./routes/index.ts";
import type { Route } from "./routes/route.ts";
import { suppressionHandlers } from "./suppressions.ts";
import { webhookHandlers } from "./webhooks.ts";

/** For the HTTP server: a body or a head that does not arrive in time ends the connection. Milliseconds. */
export const SERVER_TIMEOUTS = { headersTimeout: 15_000, requestTimeout: 30_000, keepAliveTimeout: 65_000 } as const;

const READY_PATIENCE_MS = 3_000;
const NOT_READY: Readiness = { ok: false, faults: ["the database does not answer in time"] };

/** The HTTP API (design, section 6): the routes of the contract, each behind its scope, and nothing else. */
export function createApi(deps: ApiDeps): Hono<ApiEnv> {
  const app = new Hono<ApiEnv>();
  app.use(logRequests(deps));
  app.onError((error, context) => answerProblem(error, context, deps));
  app.notFound((context) => answerProblem(nothingAt(context), context, deps));

  const receive = createReceive(deps.db);
  const handlers: Record<OperationId, Handler> = {
    ...deliveryHandlers(deps),
    ...channelHandlers(deps),
    ...attentionHandlers(deps),
    ...receiptHandlers(deps, receive),
    ...webhookHandlers(deps, receive),
    ...suppressionHandlers(deps),
    ...eventHandlers(deps),
    ...producerHandlers(deps),
    ...callbackHandlers(deps),
    ...keyHandlers(deps),
    ...healthHandlers(deps),
    getProviders,
  };
  const identify = createIdentify(deps.db, deps.admin);
  for (const [operationId, { method, path, scope }] of Object.entries<Route>(ROUTES)) {
    const guards = guardsOf(scope, identify);
    app.on([method.toUpperCase()], [honoPath(path)], ...guards, handlers[operationId as OperationId]);
  }
  mountDocs(app);
  refuseOtherMethods(app);
  return app;
}

function guardsOf(scope: Route["scope"], identify: Identify): MiddlewareHandler<ApiEnv>[] {
  if (scope === "public") return [];
  return scope === "signature" ? [boundPatience] : [boundPatience, requireScope(identify, scope)];
}

/** Liveness and readiness alone: what a worker without an API answers. */
export function createHealthApi(deps: Pick<ApiDeps, "ready" | "log">): Hono<ApiEnv> {
  const app = new Hono<ApiEnv>();
  app.onError((error, context) => answerProblem(error, context, deps));
  app.notFound((context) => answerProblem(nothingAt(context), context, deps));
  const { getHealth, getReadiness } = healthHandlers(deps);
  app.get(ROUTES.getHealth.path, getHealth).get(ROUTES.getReadiness.path, getReadiness);
  return app;
}

const honoPath = (path: string): string => path.replaceAll(/\{(\w+)\}/g, ":$1");

function healthHandlers(deps: Pick<ApiDeps, "ready">) {
  const getHealth: Handler = (context) => context.json({ status: "ok" });
  const getReadiness: Handler = async (context) => {
    const readiness = await inTime(deps.ready(), READY_PATIENCE_MS).catch(() => NOT_READY);
    return readiness.ok
      ? context.json({ status: "ok" })
      : context.json({ status: "unavailable", faults: readiness.faults }, 503);
  };
  return { getHealth, getReadiness };
}

function refuseOtherMethods(app: Hono<ApiEnv>): void {
  const byPath = Map.groupBy(Object.values<Route>(ROUTES), ({ path }) => path);
  for (const [path, routes] of byPath) {
    const allow = routes.map(({ method }) => method.toUpperCase()).join(", ");
    app.all(honoPath(path), () => {
      throw new Problem("method-not-allowed", `allowed here: ${allow}`, { headers: { allow } });
    });
  }
}

/** One line a request: no query, no body, no recipient. */
function logRequests(deps: Pick<ApiDeps, "log">): MiddlewareHandler<ApiEnv> {
  return async (context, next) => {
    const startedAt = performance.now();
    const requestId = randomUUID();
    context.set("requestId", requestId);
    await next();
    context.header("x-request-id", requestId);
    context.header("x-content-type-options", "nosniff");
    const line = {
      event: "http.request",
      request_id: requestId,
      method: context.req.method,
      path: pathForLog(context),
      status: context.res.status,
      duration_ms: Math.round((performance.now() - startedAt) * 10) / 10,
      delivery_id: context.get("deliveryId"),
      key: context.get("principal")?.keyId,
    };
    if (context.res.status >= 500) deps.log.error(line);
    else if (isOfConsole(context)) deps.log.debug(line);
    else deps.log.info(line);
  };
}

/** What the console reads, and what it asks of the API for it: an open page asks every few seconds. */
const isOfConsole = (context: ApiContext): boolean =>
  context.env?.principal !== undefined || (context.req.method === "GET" && context.req.path.startsWith("/console"));

const UNKNOWN_SEGMENTS_SHOWN = 2;

/** A path may name a recipient: in a known place it is left out, and of an unknown path only the beginning is shown. */
function pathForLog(context: ApiContext): string {
  const segments = context.req.path.slice(0, 200).split("/");
  const pattern = routePath(context, -1).split("/");
  if (pattern.at(-1) === "*" && pattern.length === 2) {
    const shown = segments.slice(0, 1 + UNKNOWN_SEGMENTS_SHOWN);
    return (shown.length < segments.length ? [...shown, "…"] : shown).join("/");
  }
  return segments.map((segment, index) => (pattern[index] === ":recipient" ? ":recipient" : segment)).join("/");
}

function answerProblem(error: Error, context: ApiContext, deps: Pick<ApiDeps, "log">): Response {
  const requestId = context.get("requestId") ?? randomUUID();
  const problem = problemOf(error);
  if (problem.type === "internal" || problem.type === "unavailable") {
    deps.log.error({ event: "http.failed", request_id: requestId, err: error }, "a request failed");
  }
  return context.body(JSON.stringify(problem.body(`urn:uuid:${requestId}`)), problem.status as 500, {
    ...problem.headers,
    "content-type": "application/problem+json",
  });
}

const nothingAt = (context: ApiContext): Problem =>
  new Problem("not-found", `there is nothing at ${context.req.path.slice(0, 200)} in this process`);

function problemOf(error: Error): Problem {
  if (error instanceof Problem) return error;
  // A conflict comes this far only when its own second try met another one.
  if (isConnectionError(error) || isConflict(error)) {
    return unavailable("the ledger's database cannot take this now; a repeat under the same name is safe");
  }
  return new Problem("internal", "an unexpected error; it is in the log under this instance");
}
