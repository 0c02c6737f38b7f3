import { type ServerType, serve } from "@hono/node-server";
import type { Hono } from "hono";
import type { Logger } from "pino";
import { createApi, createHealthApi, SERVER_TIMEOUTS } from "./api/app.ts";
import { createIdentify } from "./api/auth.ts";
import type { ApiChannel, ApiEnv, Readiness } from "./api/env.ts";
import { createSessions } from "./api/sessions.ts";
import { startCallbacks } from "./callbacks/callbacks.ts";
import { type Config, readConfig } from "./config.ts";
import { pacingOf } from "./ledger/pacing.ts";
import "./console/jsx.ts";
import { createLog } from "./log.ts";
import { openAdapter, openLookup, PROVIDERS } from "./providers/index.ts";
import type { LookupClient } from "./providers/provider.ts";
import { registerChannels } from "./store/channels.ts";
import { type Database, isConnectionError, openDatabase } from "./store/database.ts";
import { type Embedded, openEmbedded } from "./store/embedded.ts";
import { mendFeed } from "./store/feed.ts";
import { ADMIN_PRODUCER, ensureAdminKey, ensureProducer } from "./store/keys.ts";
import { migrate } from "./store/migrate.ts";
import { databaseFaults } from "./store/readiness.ts";
import { createWake, type Wake } from "./store/wake.ts";
import type { ChannelSettings } from "./worker/channel.ts";
import { startReconciler } from "./worker/reconcile.ts";
import { openSpool } from "./worker/spool.ts";
import { startWorker, type Worker } from "./worker/worker.ts";

type Channels = ReadonlyMap<string, ChannelSettings & ApiChannel & { readonly lookup: LookupClient | null }>;

/** A sweeper that has not finished a pass for this long is stuck. */
const WORKER_STUCK_MS = 60_000;
const LOOKUP_INTERVAL_MS = 5_000;
const CALLBACK_CONCURRENCY = 32;
/** After the grace period, what still hangs is left to the lease. */
const LAST_RESORT_MS = 10_000;

const read = readConfig(process.env);
if (read.ok) await run(read.config);
else {
  for (const fault of read.faults) process.stderr.write(`configuration: ${fault}\n`);
  process.exitCode = 1;
}

async function run(config: Config): Promise<void> {
  const log = createLog(config.logLevel, config.secrets);
  process.on("uncaughtException", (error) => {
    log.fatal({ event: "process.crashed", err: error }, "an error that nobody handled");
    process.exit(1);
  });
  // The driver re-subscribes by itself; its tries while the database is away belong to nobody.
  process.on("unhandledRejection", (error) => {
    if (!isConnectionError(error)) throw error;
    log.warn({ event: "database.away", err: error }, "the database is away");
  });
  const stop = await start(config, log).catch((error: unknown) => {
    log.fatal({ event: "start.failed", err: error }, "the service could not start");
    process.stderr.write(`start: ${error instanceof Error ? error.message : String(error)}\n`);
    process.exit(1);
  });
  let stopping = false;
  for (const signal of ["SIGTERM", "SIGINT"] as const) {
    process.on(signal, () => {
      if (stopping) return;
      stopping = true;
      log.info({ event: "process.stopping", signal }, "stopping: no new claims, what is under way is settled");
      setTimeout(() => process.exit(1), config.shutdownGraceMs + LAST_RESORT_MS).unref();
      stop().then(
        () => process.exit(0),
        (error: unknown) => {
          log.error({ event: "stop.failed", err: error }, "the service could not stop in order");
          process.exit(1);
        },
      );
    });
  }
}

/** The embedded database, if that is configured, and all that stands on it. Returns what stops it all, in order. */
async function start(config: Config, log: Logger): Promise<() => Promise<void>> {
  const embedded = config.databaseUrl === null ? await openEmbedded(config.dataDir) : null;
  try {
    return await startOn(embedded, config, log);
  } catch (error) {
    await embedded?.stop();
    throw error;
  }
}

/** Database → api, worker. */
async function startOn(embedded: Embedded | null, config: Config, log: Logger): Promise<() => Promise<void>> {
  const database = openDatabase({
    url: config.databaseUrl ?? (embedded as Embedded).url,
    poolSize: config.databasePoolSize,
    applicationName: `delivery-ledger ${config.role}`,
  });
  const applied = await migrate(database.db);
  if (applied.length > 0) log.info({ event: "migrated", applied }, "the schema was brought up to date");
  if (await mendFeed(database.db)) {
    log.warn({ event: "feed.mended" }, "the events come from another cluster: the feed goes on above them");
  }
  await registerChannels(
    database.db,
    config.channels.map(({ id, adapter, fingerprint }) => ({
      id,
      provider: adapter.provider,
      fingerprint: config.role === "api" ? null : fingerprint,
    })),
  );
  const channels = openChannels(config);
  const wake = createWake(database);
  const worker = config.role === "api" ? null : await startWorkerOf(config, database, channels, wake, log);
  const stopAside = config.role === "api" ? null : startAside(config, database, channels, log);
  const ready = readinessOf(database, worker);
  const stopping = new AbortController();
  const api =
    config.role === "worker"
      ? createHealthApi({ ready, log })
      : await createApiOf(config, database, channels, wake, worker, ready, stopping.signal, log);
  const server = await listen(api, config, log);
  return async () => {
    stopping.abort();
    const closed = close(server, config.shutdownGraceMs);
    await Promise.all([closed, worker?.stop(config.shutdownGraceMs), stopAside?.()]);
    await Promise.all([...channels.values()].flatMap(({ adapter, lookup }) => [adapter.close(), lookup?.close()]));
    await database.close();
    await embedded?.stop();
    log.info({ event: "process.stopped" }, "stopped");
  };
}

function openChannels(config: Config): Channels {
  return new Map(
    config.channels.map(({ id, adapter: settings, fingerprint, webhookSecrets, ratePerSecond }) => {
      const provider = PROVIDERS[settings.provider];
      if (!provider) throw new Error(`no provider ${settings.provider}`);
      const adapter = openAdapter(settings);
      const pacing = pacingOf(provider.capability.limits, ratePerSecond);
      const lookup = openLookup(settings);
      const canLookUp = lookup !== null;
      return [id, { id, provider, adapter, credentials: fingerprint, webhookSecrets, lookup, canLookUp, pacing }];
    }),
  );
}

function startWorkerOf(config: Config, { db }: Database, channels: Channels, wake: Wake, log: Logger): Promise<Worker> {
  return startWorker({
    db,
    channels: [...channels.values()],
    wake,
    spool: openSpool(config.dataDir),
    log,
    leaseMs: config.leaseMs,
    providerTimeoutMs: config.providerTimeoutMs,
    pollIntervalMs: config.pollIntervalMs,
    sweepIntervalMs: config.sweepIntervalMs,
    concurrency: config.workerConcurrency,
  });
}

/** Beside the pipeline: asking providers what became of messages, and telling producers. Neither ever sends a message. */
function startAside(config: Config, { db }: Database, channels: Channels, log: Logger): () => Promise<void> {
  const clients = new Map([...channels].flatMap(([id, { lookup }]) => (lookup ? [[id, lookup] as const] : [])));
  const reconciler = startReconciler({ db, log, intervalMs: LOOKUP_INTERVAL_MS }, clients);
  const callbacks = startCallbacks({
    ...{ db, log, allowPrivate: config.allowPrivateCallbacks },
    ...{ pollIntervalMs: config.pollIntervalMs, concurrency: CALLBACK_CONCURRENCY },
  });
  return async () => {
    await Promise.all([reconciler.stop(), callbacks.stop()]);
  };
}

async function createApiOf(
  config: Config,
  { db }: Database,
  channels: Channels,
  wake: Wake,
  worker: Worker | null,
  ready: () => Promise<Readiness>,
  stopping: AbortSignal,
  log: Logger,
): Promise<Hono<ApiEnv>> {
  const producerId = await ensureProducer(db, ADMIN_PRODUCER);
  if (config.adminKey === null) await announceAdminKey(db);
  const admin = config.adminKey === null ? null : { key: config.adminKey, producerId };
  const api = createApi({
    db,
    channels,
    admin,
    maxBodyBytes: config.maxBodyBytes,
    allowPrivateCallbacks: config.allowPrivateCallbacks,
    wake(ids) {
      worker?.wake(ids);
      wake.notify(ids);
    },
    ready,
    stopping,
    log,
  });
  const { mountConsole } = await import("./console/app.tsx");
  mountConsole({ api, sessions: createSessions(db, createIdentify(db, admin)), log });
  return api;
}

/** Printed once, apart from the log, which never holds a secret. */
async function announceAdminKey(db: Database["db"]): Promise<void> {
  const key = await ensureAdminKey(db);
  if (key === null) return;
  process.stdout.write(
    `\nThe admin key, shown this once: ${key}\n(Lost it? npm run keys -- create --name admin --producer admin --scopes all)\n\n`,
  );
}

function readinessOf({ db }: Database, worker: Worker | null): () => Promise<Readiness> {
  return async () => {
    const faults = [...(await databaseFaults(db))];
    if (worker && worker.idleMs() > WORKER_STUCK_MS) faults.push("the worker does not finish its passes");
    return faults.length === 0 ? { ok: true } : { ok: false, faults };
  };
}

function listen(app: Hono<ApiEnv>, config: Config, log: Logger): Promise<ServerType> {
  return new Promise((resolve, reject) => {
    const options = {
      fetch: app.fetch,
      hostname: config.host,
      port: config.port,
      serverOptions: { ...SERVER_TIMEOUTS },
    };
    const server = serve(options, ({ port }) => {
      const url = `http://${config.host.includes(":") ? `[${config.host}]` : config.host}:${port}`;
      log.info(
        { event: "process.started", url, role: config.role, channels: config.channels.map(({ id }) => id) },
        "listening",
      );
      resolve(server);
    });
    server.once("error", reject);
  });
}

/** Takes no new connection, lets the requests under way finish, and cuts what is left when the time is over. */
function close(server: ServerType, graceMs: number): Promise<void> {
  return new Promise((resolve) => {
    const cut = setTimeout(
      () => "closeAllConnections" in server && server.closeAllConnections(),
      Math.min(graceMs, 10_000),
    );
    server.close(() => {
      clearTimeout(cut);
      resolve();
    });
    if ("closeIdleConnections" in server) server.closeIdleConnections();
  });
}
