import { readdir, readFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { sql } from "kysely";
import { type Migration, Migrator } from "kysely/migration";
import type { Db } from "./schema.ts";

const FOLDER = join(import.meta.dirname, "../../db/migrations");
const OLDEST_SERVER = 150_000;

/** Plain SQL files, in the order of their names, each run as it stands. */
async function readMigrations(): Promise<Record<string, Migration>> {
  const files = (await readdir(FOLDER)).filter((file) => file.endsWith(".sql")).toSorted();
  const entries = files.map(async (file): Promise<[string, Migration]> => {
    const text = await readFile(join(FOLDER, file), "utf8");
    // The driver takes one command at a time; PL/pgSQL's EXECUTE takes a whole file.
    const whole = sql.raw(`do $do$ begin execute $migration$${text}$migration$; end $do$`);
    const up: Migration["up"] = async (db) => {
      await whole.execute(db);
    };
    return [basename(file, ".sql"), { up }];
  });
  return Object.fromEntries(await Promise.all(entries));
}

const migrator = (db: Db): Migrator => new Migrator({ db, provider: { getMigrations: readMigrations } });

/**
 * Brings the schema up to date. Safe when several replicas start at once: Kysely takes a lock for the transaction. A
 * database that is newer than this code (another replica was upgraded first) is left as it is. Throws on a server older
 * than PostgreSQL 15, or when a migration fails (then nothing of it stands).
 */
export async function migrate(db: Db): Promise<readonly string[]> {
  const { rows } = await sql<{ version: string }>`select current_setting('server_version_num') as version`.execute(db);
  if (Number(rows[0]?.version) < OLDEST_SERVER) {
    throw new Error(`PostgreSQL 15 or later is needed; this server is ${rows[0]?.version}`);
  }
  if ((await pendingMigrations(db)).length === 0) return [];
  const { error, results } = await migrator(db).migrateToLatest();
  if (error) throw error;
  return (results ?? []).map(({ migrationName }) => migrationName);
}

/** Migrations that this code knows and the database has not had. */
export async function pendingMigrations(db: Db): Promise<readonly string[]> {
  const known = Object.keys(await readMigrations());
  const { rows } = await sql<{ there: boolean }>`select to_regclass('kysely_migration') is not null as there`.execute(
    db,
  );
  if (!rows[0]?.there) return known;
  const applied = await sql<{ name: string }>`select name from kysely_migration`.execute(db);
  const had = new Set(applied.rows.map(({ name }) => name));
  return known.filter((name) => !had.has(name));
}
