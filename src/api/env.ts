import type { Context } from "hono";
import type { Logger } from "pino";
import type { Pacing } from "../ledger/pacing.ts";
import type { Adapter, Provider } from "../providers/provider.ts";
import type { Principal } from "../store/keys.ts";
import type { Db } from "../store/schema.ts";

/** Runs while the request waits for us, and stands while we wait for the request's body: that is the caller's time. */
export interface Clock {
  stand(): void;
  run(): void;
}

export interface ApiEnv {
  Bindings: {
    /** Set by callers within this process alone: who asks. */
    principal?: Principal;
  };
  Variables: {
    requestId: string;
    principal: Principal;
    /** How much longer the request may wait for the database. */
    clock: Clock;
    /** For the log. */
    deliveryId?: string;
  };
}

/** The key from LEDGER_ADMIN_KEY: every scope, without a row of its own. */
export interface AdminKey {
  readonly key: string;
  readonly producerId: NonNullable<Principal["producerId"]>;
}

export type ApiContext = Context<ApiEnv>;
export type Handler = (context: ApiContext) => Promise<Response> | Response;

export type Readiness = { readonly ok: true } | { readonly ok: false; readonly faults: readonly string[] };

export interface ApiChannel {
  readonly provider: Provider;
  readonly adapter: Adapter;
  /** Any of them signs the channel's webhooks; none: it takes no webhooks. */
  readonly webhookSecrets: readonly string[];
  /** The provider is asked what became of a doubtful message before a person is. */
  readonly canLookUp: boolean;
  readonly pacing: Pacing;
}

export interface ApiDeps {
  readonly db: Db;
  /** The channels for which this process has credentials. */
  readonly channels: ReadonlyMap<string, ApiChannel>;
  readonly admin: AdminKey | null;
  readonly maxBodyBytes: number;
  /** Callbacks may lead to loopback and private addresses, and go without TLS. */
  readonly allowPrivateCallbacks: boolean;
  /** Something may be due on these channels. */
  wake(channels: Iterable<string>): void;
  ready(): Promise<Readiness>;
  /** Aborted when the process begins to stop: whoever only waits is answered at once. */
  readonly stopping: AbortSignal;
  readonly log: Logger;
}
