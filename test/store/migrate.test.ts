import { sql } from "kysely";
import postgres from "postgres";
import { afterAll, beforeAll, expect, inject, test } from "vitest";
import { type Database, openDatabase } from "../../src/store/database.ts";
import { migrate, pendingMigrations } from "../../src/store/migrate.ts";

const name = `ledger_migrate_${process.pid}`;
let replicas: Database[] = [];

beforeAll(async () => {
  const admin = postgres(inject("serverUrl"), { max: 1, onnotice: () => {} });
  await admin.unsafe(`create database ${name}`);
  await admin.end();
  const url = new URL(inject("serverUrl"));
  url.pathname = `/${name}`;
  replicas = Array.from({ length: 8 }, () => openDatabase({ url: url.href, poolSize: 2, applicationName: "test" }));
});
afterAll(async () => {
  await Promise.all(replicas.map((replica) => replica.close()));
  const admin = postgres(inject("serverUrl"), { max: 1, onnotice: () => {} });
  await admin.unsafe(`drop database ${name} with (force)`);
  await admin.end();
});

test("eight replicas that start at once migrate once; a ninth finds nothing to do", async () => {
  const [first] = replicas;
  if (!first) throw new Error("no replica");
  expect((await pendingMigrations(first.db)).length).toBeGreaterThan(0);
  const applied = await Promise.all(replicas.map(({ db }) => migrate(db)));
  const all = applied.flat();
  expect(new Set(all).size).toBe(all.length);
  expect(await pendingMigrations(first.db)).toEqual([]);
  expect(await migrate(first.db)).toEqual([]);
});

test("a database that a newer replica has migrated further is left as it is", async () => {
  const [first] = replicas;
  if (!first) throw new Error("no replica");
  await sql`insert into kysely_migration (name, timestamp) values ('9999_later', 'now')`.execute(first.db);
  expect(await migrate(first.db)).toEqual([]);
});
