import { spawn } from "node:child_process";
import { chmod, mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import postgres from "postgres";
import { afterEach, beforeEach, expect, test } from "vitest";
import { type Embedded, openEmbedded } from "../../src/store/embedded.ts";
import { until } from "../support/pipeline.ts";

let folder: string;
const opened: Embedded[] = [];

beforeEach(async () => {
  folder = await mkdtemp("/tmp/ledger-embedded-");
  await chmod(folder, 0o755);
});
afterEach(async () => {
  for (const embedded of opened.splice(0)) await embedded.stop();
  await rm(folder, { recursive: true, force: true });
});

async function open(): Promise<Embedded> {
  const embedded = await openEmbedded(join(folder, "data"));
  opened.push(embedded);
  return embedded;
}
async function ask(url: string, question: string): Promise<unknown> {
  const sql = postgres(url, { max: 1, fetch_types: false, onnotice: () => {} });
  try {
    const [row] = await sql.unsafe(question);
    return row?.["answer"];
  } finally {
    await sql.end();
  }
}

test("an empty folder becomes a PostgreSQL 18 with fsync, on loopback, with a password that only its owner reads", async () => {
  const { url, startedHere } = await open();
  expect(startedHere).toBe(true);
  expect(await ask(url, "select current_setting('server_version') as answer")).toMatch(/^18\./);
  expect(await ask(url, "select current_setting('fsync') as answer")).toBe("on");
  expect(await ask(url, "select current_setting('listen_addresses') as answer")).toBe("127.0.0.1");
  expect((await stat(join(folder, "data/postgres.password"))).mode & 0o077).toBe(0);
  const wrong = new URL(url);
  wrong.password = "guessed";
  await expect(ask(wrong.href, "select 1 as answer")).rejects.toThrow(/password/);
});

test("a second process attaches to the running server, and does not stop it", async () => {
  const first = await open();
  const second = await open();
  expect([second.url, second.startedHere]).toEqual([first.url, false]);
  await second.stop();
  expect(await ask(first.url, "select 1 as answer")).toBe(1);
});

test("two that start at the same moment on an empty folder end with one server", async () => {
  const both = await Promise.all([open(), open()]);
  expect(new Set(both.map(({ url }) => url)).size).toBe(1);
  expect(both.filter(({ startedHere }) => startedHere)).toHaveLength(1);
});

test("the data is there after a stop and a start, and a pid file that lies about another program confuses nobody", async () => {
  const first = await open();
  await ask(first.url, "create table kept as select 7 as answer");
  await first.stop();
  await writeFile(
    join(folder, "data/postgres/postmaster.pid"),
    `${process.pid}\n/nowhere\n0\n1\n\n127.0.0.1\n\nready\n`,
  );
  const again = await open();
  expect(again.startedHere).toBe(true);
  expect(await ask(again.url, "select answer from kept")).toBe(7);
});

test("the server of a process that was killed is attached to", async () => {
  const module = join(import.meta.dirname, "../../src/store/embedded.ts");
  const script = `const { openEmbedded } = await import(${JSON.stringify(module)});
    console.log((await openEmbedded(${JSON.stringify(join(folder, "data"))})).url); setInterval(() => {}, 1000);`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", script], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const url = await new Promise<string>((resolve) =>
    child.stdout.once("data", (chunk: Buffer) => resolve(chunk.toString().trim())),
  );
  child.kill("SIGKILL");
  const orphan = await open();
  expect([orphan.url, orphan.startedHere]).toEqual([url, false]);
  const pidFile = join(folder, "data/postgres/postmaster.pid");
  process.kill(Number((await readFile(pidFile, "utf8")).split("\n")[0]), "SIGINT");
  await until(
    () => readFile(pidFile, "utf8").catch(() => null),
    (text) => text === null,
  );
});

test("stopping a server that has died already is no fault", async () => {
  const embedded = await open();
  const pid = Number((await readFile(join(folder, "data/postgres/postmaster.pid"), "utf8")).split("\n")[0]);
  process.kill(pid, "SIGKILL");
  await until(
    () => readFile(`/proc/${pid}/stat`, "utf8").catch(() => null),
    (text) => text === null || text.includes(") Z "),
  );
  await embedded.stop();
});

test("a server that another process of ours still uses is left running", async () => {
  const first = await open();
  const other = postgres(first.url, {
    max: 1,
    fetch_types: false,
    connection: { application_name: "delivery-ledger all" },
  });
  await other`select 1`;
  await first.stop();
  expect(await ask(first.url, "select 1 as answer")).toBe(1);
  await other.end();
});
