import { type ChildProcess, spawn } from "node:child_process";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

export const ADMIN_KEY = "an-admin-key-for-the-proof";

/** The service as a process of its own, to be killed. */
export async function startService(environment: Readonly<Record<string, string>>): Promise<Service> {
  const child = spawn(process.execPath, [join(import.meta.dirname, "../../src/main.ts")], {
    env: {
      PATH: process.env["PATH"] ?? "",
      PORT: "0",
      LEDGER_ADMIN_KEY: ADMIN_KEY,
      DATA_DIR: environment["DATA_DIR"] ?? (await mkdtemp(join(tmpdir(), "ledger-proof-"))),
      ...environment,
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  child.stderr?.on("data", (chunk) => {
    output += chunk;
  });
  const url = await new Promise<string>((resolve, reject) => {
    const late = setTimeout(() => reject(new Error(`the service did not start: ${output}`)), 30_000);
    child.stdout?.on("data", (chunk: Buffer) => {
      output += chunk;
      const started = /"event":"process.started","url":"([^"]+)"/.exec(output)?.[1];
      if (!started) return;
      clearTimeout(late);
      resolve(started);
    });
    child.once("exit", (code) => reject(new Error(`the service ended with ${code}: ${output}`)));
  });
  return { url, child, output: () => output, ended: () => ended(child) };
}

export interface Service {
  readonly url: string;
  readonly child: ChildProcess;
  output(): string;
  ended(): Promise<number | null>;
}

function ended(child: ChildProcess): Promise<number | null> {
  if (child.exitCode !== null || child.signalCode !== null) return Promise.resolve(child.exitCode);
  return new Promise((resolve) => child.once("exit", (code) => resolve(code)));
}

/** An API call as the admin. */
export async function api<T>(
  url: string,
  method: string,
  path: string,
  body?: unknown,
): Promise<{ status: number; body: T }> {
  const response = await fetch(`${url}${path}`, {
    method,
    headers: { authorization: `Bearer ${ADMIN_KEY}`, "content-type": "application/json" },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  return { status: response.status, body: (text === "" ? null : JSON.parse(text)) as T };
}
