import {
  type CompiledQuery,
  type DatabaseConnection,
  type Dialect,
  type Driver,
  type Kysely,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
  type QueryResult,
  type TransactionSettings,
} from "kysely";
import type postgres from "postgres";

/** SQLSTATE read_only_sql_transaction. */
const READ_ONLY = "25006";

/**
 * Kysely over postgres.js. Ours, for the published dialect (kysely-postgres-js 5.0) hides the error of a lost connection
 * behind a TypeError of its own, and whether a commit is in doubt must be told apart from whether it failed.
 */
export function postgresDialect(sql: postgres.Sql): Dialect {
  return {
    createAdapter: () => new PostgresAdapter(),
    createDriver: () => new PostgresDriver(sql),
    createIntrospector: (db: Kysely<unknown>) => new PostgresIntrospector(db),
    createQueryCompiler: () => new PostgresQueryCompiler(),
  };
}

class PostgresDriver implements Driver {
  readonly #sql: postgres.Sql;

  constructor(sql: postgres.Sql) {
    this.#sql = sql;
  }

  async init(): Promise<void> {}

  async acquireConnection(): Promise<ReservedConnection> {
    return new ReservedConnection(await this.#sql.reserve());
  }

  async beginTransaction(connection: ReservedConnection, settings: TransactionSettings): Promise<void> {
    await connection.run(settings.isolationLevel ? `begin isolation level ${settings.isolationLevel}` : "begin");
  }

  async commitTransaction(connection: ReservedConnection): Promise<void> {
    await connection.run("commit");
  }

  /** A connection that cannot roll back is lost, and with it the transaction: the error that led here says more. */
  async rollbackTransaction(connection: ReservedConnection): Promise<void> {
    await connection.run("rollback").catch(() => {});
  }

  async releaseConnection(connection: ReservedConnection): Promise<void> {
    await connection.release();
  }

  async destroy(): Promise<void> {
    await this.#sql.end({ timeout: 5 });
  }
}

class ReservedConnection implements DatabaseConnection {
  readonly #reserved: postgres.ReservedSql;
  #demoted = false;

  constructor(reserved: postgres.ReservedSql) {
    this.#reserved = reserved;
  }

  async executeQuery<R>({ sql, parameters }: CompiledQuery): Promise<QueryResult<R>> {
    const result = await this.#reserved.unsafe(sql, [...parameters] as never[]).catch((error: unknown) => {
      this.#demoted ||= (error as { code?: unknown }).code === READ_ONLY;
      throw error;
    });
    const changes = ["INSERT", "UPDATE", "DELETE", "MERGE"].includes(result.command);
    return { rows: [...result] as R[], ...(changes && { numAffectedRows: BigInt(result.count) }) };
  }

  async run(statement: string): Promise<void> {
    await this.#reserved.unsafe(statement);
  }

  // biome-ignore lint/correctness/useYield: the interface asks for a stream, and nothing here reads one
  async *streamQuery<R>(): AsyncIterableIterator<QueryResult<R>> {
    throw new Error("results are not streamed");
  }

  /** A server that has become read-only is not the primary any more: the pool must find the one that is. */
  async release(): Promise<void> {
    if (this.#demoted) await this.run("select pg_terminate_backend(pg_backend_pid())").catch(() => {});
    this.#reserved.release();
  }
}
