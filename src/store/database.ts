import { Kysely } from "kysely";
import postgres from "postgres";
import { postgresDialect } from "./driver.ts";
import type { Db, Schema } from "./schema.ts";

export interface Database {
  readonly db: Db;
  /** The driver itself: for NOTIFY. */
  readonly sql: postgres.Sql;
  /** A connection of its own, outside the pool: for LISTEN. The caller ends it. */
  openListener(): postgres.Sql;
  close(): Promise<void>;
}

export interface DatabaseOptions {
  readonly url: string;
  /** Connections at most. */
  readonly poolSize: number;
  /** Shown in pg_stat_activity. */
  readonly applicationName: string;
}

/**
 * Opens a pool. Statements are not prepared by name, so that it works behind PgBouncer in transaction mode. Connections
 * live ten minutes at most, and one that finds itself read-only (a demoted primary) is not used again.
 */
export function openDatabase(options: DatabaseOptions): Database {
  const sql = connect(options, options.poolSize);
  const db = new Kysely<Schema>({ dialect: postgresDialect(sql) });
  return { db, sql, openListener: () => connect(options, 1), close: () => sql.end({ timeout: 1 }) };
}

function connect(options: DatabaseOptions, connections: number): postgres.Sql {
  return postgres(options.url, {
    max: connections,
    prepare: false,
    // The look-up of array types at each connect is a query of the driver's own, whose failure nobody would handle.
    fetch_types: false,
    connect_timeout: 5,
    max_lifetime: 600,
    // Seconds before a new try; the driver's own would grow to twenty.
    backoff: (retries: number) => Math.min(0.05 * 2 ** Math.min(retries, 10), 1),
    idle_timeout: 60,
    connection: { application_name: options.applicationName },
    onnotice: () => {},
  });
}

/**
 * SQLSTATEs that say that the server cannot do it now (PostgreSQL, appendix A): shutting down, starting, no room, read-only,
 * a statement or a lock that took too long, no such database or user (yet, or any more).
 */
const UNAVAILABLE = new Set(
  "57P01 57P02 57P03 57P05 57014 55P03 53000 53100 53200 53300 25006 3D000 28000 28P01".split(" "),
);
/** postgres.js and Node: the connection was lost or could not be made. */
const DISCONNECTED =
  /^(CONNECTION_(CLOSED|ENDED|DESTROYED)|CONNECT_TIMEOUT|ECONNREFUSED|ECONNRESET|EPIPE|ETIMEDOUT|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|08\w{3})$/;

/** The database is away, or cannot write: what failed may have been committed, and a later try may succeed. */
export function isConnectionError(error: unknown): boolean {
  for (let cause: unknown = error; cause instanceof Error; cause = cause.cause) {
    const { code } = cause as { code?: unknown };
    if (typeof code === "string" && (UNAVAILABLE.has(code) || DISCONNECTED.test(code))) return true;
    if (cause instanceof AggregateError && cause.errors.some(isConnectionError)) return true;
  }
  return false;
}

/** Two transactions were in each other's way; the loser changed nothing and may try again at once. */
export const isConflict = (error: unknown): boolean =>
  error instanceof Error && ["40001", "40P01"].includes((error as { code?: string }).code ?? "");
