import { Kysely } from "kysely";
import { PostgresJSDialect } from "kysely-postgres-js";
import postgres from "postgres";
import type { Db, Schema } from "./schema.ts";

export interface Database {
  readonly db: Db;
  /** The driver itself: for LISTEN, which needs a connection of its own. */
  readonly sql: postgres.Sql;
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
 * live ten minutes at most, and go only to a server that can be written to: after a failover none stays on the old primary.
 */
export function openDatabase(options: DatabaseOptions): Database {
  const sql = postgres(options.url, {
    max: options.poolSize,
    prepare: false,
    connect_timeout: 5,
    max_lifetime: 600,
    idle_timeout: 60,
    target_session_attrs: "read-write",
    connection: { application_name: options.applicationName },
    onnotice: () => {},
  });
  const db = new Kysely<Schema>({ dialect: new PostgresJSDialect({ postgres: sql }) });
  return { db, sql, close: () => sql.end({ timeout: 5 }) };
}
