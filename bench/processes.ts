import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import { chmod, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";

const children: ChildProcess[] = [];
let folder: string | null = null;

/** A folder of the run's own. The embedded server runs as another user when this runs as root. */
export async function dataFolder(): Promise<string> {
  folder ??= await mkdtemp(join(tmpdir(), "ledger-bench-"));
  await chmod(folder, 0o755);
  return folder;
}

/** A process of ours, when it has said the words; `found` is what they capture. Its log goes to a file: a pipe would wait for us. */
export async function started(
  file: string,
  words: readonly string[],
  env: Readonly<Record<string, string>>,
  says: RegExp,
): Promise<{ readonly child: ChildProcess; readonly found: string }> {
  const path = join(await dataFolder(), `${children.length}.log`);
  const log = openSync(path, "w");
  const child = spawn(process.execPath, [join(import.meta.dirname, file), ...words], {
    env: { PATH: process.env["PATH"] ?? "", ...env },
    stdio: ["ignore", log, log],
  });
  closeSync(log);
  children.push(child);
  for (let found: string | undefined; ; found = says.exec(await readFile(path, "utf8"))?.[1]) {
    if (found !== undefined) return { child, found };
    if (child.exitCode !== null) {
      await endAll();
      throw new Error(`${file} ended with ${child.exitCode}`);
    }
    await pause(50);
  }
}

/** The service, on DATABASE_URL or on an embedded database of its own. */
export const startedService = async (env: Readonly<Record<string, string>>) =>
  await started(
    "../src/main.ts",
    [],
    {
      ...{ PORT: "0", DATA_DIR: join(await dataFolder(), "data") },
      ...(process.env["DATABASE_URL"] && { DATABASE_URL: process.env["DATABASE_URL"] }),
      ...env,
    },
    /"process.started","url":"([^"]+)"/,
  );

/** Ends what was started, and takes its data away. */
export async function endAll(): Promise<void> {
  const running = children.filter(({ exitCode, signalCode }) => exitCode === null && signalCode === null);
  await Promise.all(
    running.map((child) => {
      child.kill("SIGTERM");
      return new Promise((resolve) => child.once("exit", resolve));
    }),
  );
  if (folder !== null) await rm(folder, { recursive: true, force: true });
}
