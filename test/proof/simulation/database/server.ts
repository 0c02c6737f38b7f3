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
  readonly #holders = new Map<Tx, Session>();

  constructor(scheduler: Scheduler) {
    this.scheduler = scheduler;
  }

  get now(): number {
    return Math.floor(this.scheduler.now + this.skew);
  }

  /** Runs one statement; null: it waits for a lock, and `retry` will be called when that is free. */
  execute(session: Session, text: string, parameters: readonly unknown[], retry: () => void): Result | null {
    if (text === "begin") {
      session.tx = this.#open(session);
      return { rows: [] };
    }
    if (text === "commit" || text === "rollback") {
      this.end(session, text === "commit" && !session.isAborted);
      return { rows: [] };
    }
    if (session.isAborted) throw new DatabaseError("25P02", "the transaction is aborted");
    const run = statementOf(text);
    const isAlone = session.tx === null;
    const tx = session.tx ?? this.#open(session);
    try {
      const result = run(this.model, tx, parameters);
      if (isAlone) this.#close(tx, true);
      return result;
    } catch (error) {
      // Alone, it holds nothing that it will not take again.
      if (isAlone) this.#close(tx, false);
      if (error instanceof Blocked && !this.#waitsInACircle(session, error.by)) {
        this.#wait(session, error.by, retry);
        return null;
      }
      if (!isAlone) session.isAborted = true;
      throw error instanceof Blocked ? new DatabaseError("40P01", "deadlock detected") : error;
    }
  }

  #wait(session: Session, by: Tx, retry: () => void): void {
    session.waitsFor = by;
    by.waiting.push(() => {
      session.waitsFor = null;
      retry();
    });
  }

  /** The transaction ends; without one, nothing happens. */
  end(session: Session, isCommitted: boolean): void {
    const { tx } = session;
    session.tx = null;
    session.isAborted = false;
    if (tx !== null) this.#close(tx, isCommitted);
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
