import {
  type CompiledQuery,
  type DatabaseConnection,
  type Dialect,
  type Driver,
  Kysely,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
  type QueryResult,
  type TransactionSettings,
} from "kysely";
import type { Db } from "../../../../src/store/schema.ts";
import type { Faults } from "../faults.ts";
import type { Process } from "../process.ts";
import type { Random } from "../random.ts";
import type { Result } from "./model.ts";
import { type Server, Session } from "./server.ts";
import { DatabaseError } from "./tables.ts";

export interface Network {
  readonly server: Server;
  readonly faults: Faults;
  readonly random: Random;
  /** Until then the server answers nobody. */
  outageUntil: number;
  readonly connections: Set<Connection>;
}

/** The product's handle on its database, for one simulated process. */
export function openSimulated(network: Network, process: Process): Db {
  const dialect: Dialect = {
    createAdapter: () => new PostgresAdapter(),
    createDriver: () => new SimulatedDriver(network, process),
    createIntrospector: (db: Kysely<unknown>) => new PostgresIntrospector(db),
    createQueryCompiler: () => new PostgresQueryCompiler(),
  };
  return new Kysely({ dialect }) as Db;
}

class SimulatedDriver implements Driver {
  readonly #network: Network;
  readonly #process: Process;
  /** Connections that nobody uses now. */
  readonly #idle: Connection[] = [];

  constructor(network: Network, process: Process) {
    this.#network = network;
    this.#process = process;
  }

  async init(): Promise<void> {}

  async acquireConnection(): Promise<Connection> {
    for (let idle = this.#idle.pop(); idle; idle = this.#idle.pop()) if (idle.session.isOpen) return idle;
    return new Connection(this.#network, this.#process);
  }

  async beginTransaction(connection: Connection, _settings: TransactionSettings): Promise<void> {
    await connection.run("begin");
  }

  async commitTransaction(connection: Connection): Promise<void> {
    await connection.run("commit");
  }

  async rollbackTransaction(connection: Connection): Promise<void> {
    await connection.run("rollback").catch(() => {});
  }

  async releaseConnection(connection: Connection): Promise<void> {
    if (connection.session.isOpen) this.#idle.push(connection);
  }

  async destroy(): Promise<void> {}
}

interface Sent {
  readonly text: string;
  readonly parameters: readonly unknown[];
  readonly resolve: (result: Result) => void;
  readonly reject: (error: unknown) => void;
}

const LONGEST_TRAVEL_MS = 2;
const SLOW_S = [1, 40] as const;

/** A connection between a process and the server: what can go wrong on it does, where the faults say so. */
export class Connection implements DatabaseConnection {
  readonly session = new Session();
  readonly #network: Network;
  readonly #process: Process;
  readonly #sent: Sent[] = [];
  #isBusy = false;
  #answeredAt = 0;

  constructor(network: Network, process: Process) {
    this.#network = network;
    this.#process = process;
    network.connections.add(this);
    process.whenKilled(() => this.#hangUp());
  }

  async executeQuery<R>({ sql, parameters }: CompiledQuery): Promise<QueryResult<R>> {
    const { rows, affected } = await this.run(sql, parameters);
    return { rows: rows as R[], ...(affected !== undefined && { numAffectedRows: BigInt(affected) }) };
  }

  // biome-ignore lint/correctness/useYield: the interface asks for a stream, and nothing here reads one
  async *streamQuery<R>(): AsyncIterableIterator<QueryResult<R>> {
    throw new Error("results are not streamed");
  }

  run(text: string, parameters: readonly unknown[] = []): Promise<Result> {
    return new Promise((resolve, reject) => {
      this.#sent.push({ text, parameters, resolve, reject });
      this.#next();
    });
  }

  /** The next statement travels to the server. */
  #next(): void {
    const [sent] = this.#sent;
    if (this.#isBusy || !sent) return;
    this.#isBusy = true;
    const { random, faults, server } = this.#network;
    const slow = faults.strikes("slowStatement") ? random.between(...SLOW_S) * 1_000 : 0;
    server.scheduler.after(slow + random.next() * LONGEST_TRAVEL_MS, null, () => this.#arrive(sent));
  }

  #arrive(sent: Sent): void {
    const outcome = this.#carryOut(sent);
    if (typeof outcome === "string") this.lose(outcome);
    else if (outcome !== null) this.#answer(sent, outcome);
  }

  /** The answer; or with which code the connection is lost; null: the statement waits for a lock. */
  #carryOut(sent: Sent): Result | DatabaseError | string | null {
    const { server, faults, outageUntil } = this.#network;
    if (!this.session.isOpen || server.scheduler.now < outageUntil) return "ECONNREFUSED";
    const isCommit = sent.text === "commit";
    if (this.#process.alive && faults.strikes("lostBefore", isCommit ? 10 : 1)) return "CONNECTION_CLOSED";
    if (isCommit && faults.strikes("commitRefused")) {
      server.end(this.session, false);
      return new DatabaseError("53100", "no space left");
    }
    try {
      const result = server.execute(this.session, sent.text, sent.parameters, () => {
        server.scheduler.after(0, null, () => this.#arrive(sent));
      });
      if (result === null) return null;
      const matters = isCommit || this.session.tx === null;
      const isLost = this.#process.alive && faults.strikes("lostAfter", matters ? 10 : 1);
      return isLost ? "CONNECTION_CLOSED" : result;
    } catch (error) {
      // Anything else is a fault of the model's: the product must not take it for one of the database's.
      if (error instanceof DatabaseError) return error;
      throw error;
    }
  }

  #answer(sent: Sent, answer: Result | Error): void {
    const { server, random } = this.#network;
    this.#sent.shift();
    this.#isBusy = false;
    const at = Math.max(this.#answeredAt, server.scheduler.now + random.next() * LONGEST_TRAVEL_MS);
    this.#answeredAt = at;
    server.scheduler.at(at, this.#process, () =>
      answer instanceof Error ? sent.reject(answer) : sent.resolve(answer),
    );
    this.#next();
  }

  /** The connection is no more: the server undoes what was not committed, the process learns of it. */
  lose(code: string): void {
    this.session.isOpen = false;
    this.#network.connections.delete(this);
    this.#network.server.end(this.session, false);
    for (const sent of this.#sent.splice(0)) {
      const error = new DatabaseError(code, "the connection was lost");
      this.#network.server.scheduler.after(0, this.#process, () => sent.reject(error));
    }
    this.#isBusy = false;
  }

  /** Its process is dead: what was sent is still carried out; then the server notices, sooner or later. */
  #hangUp(): void {
    const { server, random } = this.#network;
    const notice = (): void => {
      if (this.#sent.length > 0 && this.session.isOpen) server.scheduler.after(10, null, notice);
      else server.scheduler.after(0, null, () => this.lose("CONNECTION_CLOSED"));
    };
    server.scheduler.after(random.chance(0.9) ? 5 : random.between(1, 20) * 1_000, null, notice);
  }
}
