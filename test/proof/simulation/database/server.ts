import type { Scheduler } from "../scheduler.ts";
import { ATTENTION } from "./attention.ts";
import { CHANNELS } from "./channels.ts";
import { CLAIMS } from "./claims.ts";
import { INTAKE } from "./intake.ts";
import { Model, type Result } from "./model.ts";
import { RECEIPTS } from "./receipts.ts";
import { SETTLEMENTS } from "./settlements.ts";
import type { Statement } from "./statement.ts";
import { Blocked, DatabaseError, Tx } from "./tables.ts";

const STATEMENTS: readonly Statement[] = [...INTAKE, ...CLAIMS, ...SETTLEMENTS, ...CHANNELS, ...RECEIPTS, ...ATTENTION];

const known = new Map<string, Statement[1]>();

/** What a statement of the product's does. Throws for one that the model does not know: it must be taught. */
function statementOf(text: string): Statement[1] {
  const before = known.get(text);
  if (before) return before;
  const found = STATEMENTS.filter(([part]) => text.includes(part));
  const [only] = found;
  if (!only || found.length > 1) throw new Error(`${found.length} statements of the model fit: ${text}`);
  known.set(text, only[1]);
  return only[1];
}

/** Also carries out what the model does, on another database, and compares (agree.ts). */
export interface Twin {
  begin(session: Session): Promise<void>;
  execute(
    session: Session,
    text: string,
    parameters: readonly unknown[],
    expected: Result | DatabaseError,
  ): Promise<void>;
  end(session: Session, isCommitted: boolean): Promise<void>;
}

/** One connection, as the server sees it. */
export class Session {
  tx: Tx | null = null;
  /** The transaction that its statement waits for. */
  waitsFor: Tx | null = null;
  isOpen = true;
  /** A statement has failed: nothing but a rollback is answered. */
  isAborted = false;
}

/** The database's server: one statement of a session after the other, in the order in which they come in. */
export class Server {
  readonly model = new Model();
  /** What the database's clock is ahead of the world's, milliseconds. */
  skew = 0;
  readonly scheduler: Scheduler;
  readonly #twin: Twin | null;
  readonly #holders = new Map<Tx, Session>();

  constructor(scheduler: Scheduler, twin: Twin | null) {
    this.scheduler = scheduler;
    this.#twin = twin;
  }

  get now(): number {
    return Math.floor(this.scheduler.now + this.skew);
  }

  /** Runs one statement; null: it waits for a lock, and `retry` will be called when that is free. */
  async execute(
    session: Session,
    text: string,
    parameters: readonly unknown[],
    retry: () => void,
  ): Promise<Result | null> {
    if (text === "begin") {
      session.tx = this.#open(session);
      await this.#twin?.begin(session);
      return { rows: [] };
    }
    if (text === "commit" || text === "rollback") {
      await this.end(session, text === "commit" && !session.isAborted);
      return { rows: [] };
    }
    if (session.isAborted) throw new DatabaseError("25P02", "the transaction is aborted");
    return await this.#run(session, text, parameters, retry);
  }

  async #run(
    session: Session,
    text: string,
    parameters: readonly unknown[],
    retry: () => void,
  ): Promise<Result | null> {
    const run = statementOf(text);
    const isAlone = session.tx === null;
    const tx = session.tx ?? this.#open(session);
    try {
      const result = run(this.model, tx, parameters);
      if (this.#twin) {
        if (isAlone) {
          session.tx = tx;
          await this.#twin.begin(session);
        }
        await this.#twin.execute(session, text, parameters, result);
        session.tx = tx;
      }
      if (isAlone) await this.end(session, true, tx);
      return result;
    } catch (error) {
      if (error instanceof Blocked) {
        // Alone, it holds nothing that it will not take again.
        if (isAlone) this.#close(tx, false);
        if (this.#waitsInACircle(session, error.by)) {
          await this.#fail(session, isAlone, tx);
          throw new DatabaseError("40P01", "deadlock detected");
        }
        session.waitsFor = error.by;
        error.by.waiting.push(() => {
          session.waitsFor = null;
          retry();
        });
        return null;
      }
      if (error instanceof DatabaseError && this.#twin && !isAlone)
        await this.#twin.execute(session, text, parameters, error);
      await this.#fail(session, isAlone, tx);
      throw error;
    }
  }

  async #fail(session: Session, isAlone: boolean, tx: Tx): Promise<void> {
    if (isAlone) this.#close(tx, false);
    else session.isAborted = true;
  }

  /** The transaction ends; without one, nothing happens. */
  async end(session: Session, isCommitted: boolean, tx: Tx | null = session.tx): Promise<void> {
    session.tx = null;
    session.isAborted = false;
    if (tx === null) return;
    await this.#twin?.end(session, isCommitted);
    this.#close(tx, isCommitted);
  }

  #open(session: Session): Tx {
    const tx = new Tx(this.now);
    this.#holders.set(tx, session);
    return tx;
  }

  #close(tx: Tx, isCommitted: boolean): void {
    this.#holders.delete(tx);
    tx.end(isCommitted);
  }

  #waitsInACircle(session: Session, by: Tx): boolean {
    for (
      let holder = this.#holders.get(by);
      holder;
      holder = holder.waitsFor ? this.#holders.get(holder.waitsFor) : undefined
    ) {
      if (holder === session) return true;
    }
    return false;
  }
}
