import { mkdtemp, rm } from "node:fs/promises";
import { join } from "node:path";
import postgres from "postgres";
import type { TestProject } from "vitest/node";
import { openDatabase } from "../../src/store/database.ts";
import { openEmbedded } from "../../src/store/embedded.ts";
import { migrate } from "../../src/store/migrate.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** A server whose databases the tests may make and drop. */
    serverUrl: string;
    /** A migrated database to copy. */
    template: string;
  }
}

/** One server a run: TEST_DATABASE_URL, or an embedded one that goes with the run; and one migrated template. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const given = process.env["TEST_DATABASE_URL"];
  const folder = given ? null : await mkdtemp("/tmp/delivery-ledger-test-");
  const embedded = folder === null ? null : await openEmbedded(await openUp(folder));
  const serverUrl = given ?? embedded?.url ?? "";
  const template = `ledger_template_${process.pid}`;
  const admin = postgres(serverUrl, { max: 1, onnotice: () => {} });
  await admin`create database ${admin(template)}`;
  const database = openDatabase({ url: withDatabase(serverUrl, template), poolSize: 2, applicationName: "test setup" });
  await migrate(database.db);
  await database.close();
  project.provide("serverUrl", serverUrl);
  project.provide("template", template);
  return async () => {
    await admin`drop database if exists ${admin(template)} with (force)`;
    await admin.end();
    await embedded?.stop();
    if (folder !== null) await rm(folder, { recursive: true, force: true });
  };
}

/** mkdtemp makes folders for its owner alone; the embedded server runs as another user when the tests run as root. */
async function openUp(folder: string): Promise<string> {
  const { chmod, mkdir } = await import("node:fs/promises");
  await chmod(folder, 0o755);
  const data = join(folder, "data");
  await mkdir(data);
  return data;
}

export function withDatabase(url: string, database: string): string {
  const changed = new URL(url);
  changed.pathname = `/${database}`;
  return changed.href;
}
