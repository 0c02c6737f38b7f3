import { randomUUID } from "node:crypto";
import { mkdir, open, readdir, readFile, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import type { Settlement } from "../store/held.ts";

/**
 * A local file for verdicts that could not be written to the database: one JSON line each, synced to disk. The next start
 * replays it; replaying twice does no harm, for a settlement that was written already changes nothing.
 */
export interface Spool {
  /** Durable when it resolves. */
  keep(settlements: readonly Settlement[]): Promise<void>;
  /** Everything this process kept has been written to the database. */
  clear(): Promise<void>;
  /** What earlier processes left behind. `done` removes it, once it has been written. */
  take(): Promise<{ readonly settlements: readonly Settlement[]; readonly unreadable: number; done(): Promise<void> }>;
}

export function openSpool(dataDir: string): Spool {
  const folder = join(dataDir, "spool");
  const own = join(folder, `${randomUUID()}.jsonl`);
  let last: Promise<void> = Promise.resolve();

  /** One after the other, so that a removal never takes a line with it that came after. */
  function inTurn(step: () => Promise<void>): Promise<void> {
    const turn = last.then(step);
    last = turn.catch(() => {});
    return turn;
  }

  async function append(settlements: readonly Settlement[]): Promise<void> {
    await mkdir(folder, { recursive: true });
    const file = await open(own, "a", 0o600);
    try {
      await file.appendFile(settlements.map((settlement) => `${JSON.stringify(settlement)}\n`).join(""));
      await file.sync();
    } finally {
      await file.close();
    }
  }

  return {
    keep: (settlements) => inTurn(() => (settlements.length === 0 ? Promise.resolve() : append(settlements))),

    clear: () => inTurn(() => rm(own, { force: true })),

    async take() {
      await mkdir(folder, { recursive: true });
      const taken: string[] = [];
      for (const name of await readdir(folder)) {
        if (name.endsWith(".taken")) taken.push(join(folder, name));
        if (!name.endsWith(".jsonl") || join(folder, name) === own) continue;
        // Renamed first: a process that still lives goes on in a new file, and loses nothing to the removal of this one.
        const target = join(folder, `${name}.${randomUUID()}.taken`);
        await rename(join(folder, name), target).then(
          () => taken.push(target),
          (error: NodeJS.ErrnoException) => {
            if (error.code !== "ENOENT") throw error;
          },
        );
      }
      const lines = (await Promise.all(taken.map((path) => readFile(path, "utf8")))).flatMap((text) =>
        text.split("\n"),
      );
      const settlements: Settlement[] = [];
      let unreadable = 0;
      for (const line of lines.filter((text) => text !== "")) {
        try {
          settlements.push(JSON.parse(line) as Settlement);
        } catch {
          // The last line of a process that died while it wrote.
          unreadable += 1;
        }
      }
      return {
        settlements,
        unreadable,
        done: async () => {
          await Promise.all(taken.map((path) => rm(path, { force: true })));
        },
      };
    },
  };
}
