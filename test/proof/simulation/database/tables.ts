/** A row under a transaction's lock is seen by others as it was before. */
export interface Cell<Row> {
  committed: Row | null;
  /** What the owner has made of it; undefined: it has only locked it. */
  pending: Row | null | undefined;
  owner: Tx | null;
}

/** A statement needs what another transaction holds: it is tried again when that has ended. */
export class Blocked {
  readonly by: Tx;
  constructor(by: Tx) {
    this.by = by;
  }
}

/** An error of the database, by its SQLSTATE (or the driver's code for a lost connection). */
export class DatabaseError extends Error {
  readonly code: string;
  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}

interface Touched {
  end(isCommitted: boolean): void;
}

export class Tx {
  /** `now()`: when the transaction began, by the database's clock. */
  readonly now: number;
  isOver = false;
  /** Statements that wait for its end. */
  readonly waiting: (() => void)[] = [];
  readonly #touched: Touched[] = [];

  constructor(now: number) {
    this.now = now;
  }

  touch(touched: Touched): void {
    this.#touched.push(touched);
  }

  end(isCommitted: boolean): void {
    if (this.isOver) return;
    this.isOver = true;
    for (const touched of this.#touched) touched.end(isCommitted);
    for (const go of this.waiting) go();
  }
}

/** READ COMMITTED, with row locks: each statement sees what is committed when it runs, and what its own transaction did. */
export class Table<Row> {
  readonly #cells = new Map<string, Cell<Row>>();

  /** The rows that `tx` sees; null: what is committed. */
  *rows(tx: Tx | null): Generator<Row, void> {
    for (const cell of this.#cells.values()) {
      const row = seen(cell, tx);
      if (row !== null) yield row;
    }
  }

  find(tx: Tx | null, key: string): Row | null {
    const cell = this.#cells.get(key);
    return cell ? seen(cell, tx) : null;
  }

  isLockedByOther(tx: Tx, key: string): boolean {
    const owner = this.#cells.get(key)?.owner ?? null;
    return owner !== null && owner !== tx;
  }

  /** Rows that others have written and not committed: a unique key in them must be waited for. */
  *uncommitted(tx: Tx): Iterable<{ readonly row: Row; readonly by: Tx }> {
    for (const { owner, pending } of this.#cells.values()) {
      if (owner !== null && owner !== tx && pending) yield { row: pending, by: owner };
    }
  }

  /** `for update`. The row as it is now. */
  lock(tx: Tx, key: string): Row | null {
    const cell = this.#cells.get(key);
    if (!cell) return null;
    this.#own(tx, key, cell);
    return seen(cell, tx);
  }

  put(tx: Tx, key: string, row: Row): void {
    let cell = this.#cells.get(key);
    if (!cell) {
      cell = { committed: null, pending: undefined, owner: null };
      this.#cells.set(key, cell);
    }
    this.#own(tx, key, cell);
    cell.pending = row;
  }

  update(tx: Tx, key: string, change: Partial<Row>): Row {
    const before = this.lock(tx, key);
    if (before === null) throw new Error(`no row ${key}`);
    const after = { ...before, ...change };
    this.put(tx, key, after);
    return after;
  }

  #own(tx: Tx, key: string, cell: Cell<Row>): void {
    if (cell.owner === tx) return;
    if (cell.owner !== null) throw new Blocked(cell.owner);
    cell.owner = tx;
    tx.touch({
      end: (isCommitted) => {
        if (isCommitted && cell.pending !== undefined) cell.committed = cell.pending;
        cell.pending = undefined;
        cell.owner = null;
        if (cell.committed === null) this.#cells.delete(key);
      },
    });
  }
}

const seen = <Row>(cell: Cell<Row>, tx: Tx | null): Row | null =>
  tx !== null && cell.owner === tx && cell.pending !== undefined ? cell.pending : cell.committed;
