import assert from "node:assert";

export interface GroupLimits {
  /** Items in one commit at most. */
  readonly maxItems: number;
  /** Commits under way at once. While all are busy, later items gather for the next one. */
  readonly lanes: number;
}

/**
 * Groups concurrent writes into few commits without a timer: a lone item is written at once; items that arrive while all
 * lanes are busy share the next commit. `write` answers one result an item, in order; when it throws, every item of that
 * commit fails with its error.
 */
export function groupCommit<Item, Result>(
  write: (items: readonly Item[]) => Promise<readonly Result[]>,
  limits: GroupLimits,
): (item: Item) => Promise<Result> {
  interface Waiting {
    readonly item: Item;
    readonly resolve: (result: Result) => void;
    readonly reject: (error: unknown) => void;
  }
  const waiting: Waiting[] = [];
  let busy = 0;
  let scheduled = false;

  function schedule(): void {
    if (scheduled || busy >= limits.lanes || waiting.length === 0) return;
    scheduled = true;
    // Everything that this turn of the event loop brings goes into one commit.
    setImmediate(() => {
      scheduled = false;
      while (busy < limits.lanes && waiting.length > 0) void commit(waiting.splice(0, limits.maxItems));
    });
  }

  async function commit(group: readonly Waiting[]): Promise<void> {
    busy += 1;
    try {
      const results = await write(group.map(({ item }) => item));
      assert.equal(results.length, group.length, "a group commit answers one result an item");
      for (const [index, { resolve }] of group.entries()) resolve(results[index] as Result);
    } catch (error) {
      for (const { reject } of group) reject(error);
    } finally {
      busy -= 1;
      schedule();
    }
  }

  return (item) =>
    new Promise<Result>((resolve, reject) => {
      waiting.push({ item, resolve, reject });
      schedule();
    });
}
