import { createHash, randomBytes } from "node:crypto";
import { sql } from "kysely";
import { uuidv7 } from "uuidv7";
import type { ProducerId } from "../ledger/delivery.ts";
import { wordArray } from "./arrays.ts";
import type { Db } from "./schema.ts";

export const SCOPES = [
  "deliveries:write",
  "deliveries:read",
  "attention:read",
  "attention:write",
  "receipts:read",
  "receipts:write",
  "suppressions:read",
  "suppressions:write",
  "channels:read",
  "channels:write",
  "events:read",
  "callbacks:read",
  "callbacks:write",
  "producers:read",
  "producers:write",
  "keys:write",
] as const;
export type Scope = (typeof SCOPES)[number];

/** Who an API key speaks for. */
export interface Principal {
  readonly keyId: string;
  readonly keyName: string;
  /** Whose deliveries it posts. Null: an operator's key, which posts none. */
  readonly producerId: ProducerId | null;
  readonly producer: string | null;
  /** Sees every producer's deliveries. */
  readonly seesAll: boolean;
  readonly scopes: readonly Scope[];
}

export interface ApiKey {
  readonly id: string;
  readonly name: string;
  readonly producer: string | null;
  readonly scopes: readonly Scope[];
  /** The last four characters, to tell keys apart. */
  readonly hint: string;
  readonly createdAt: Date;
  readonly revokedAt: Date | null;
}

export const ADMIN_PRODUCER = "admin";

export const hashKey = (key: string): Buffer => createHash("sha256").update(key, "utf8").digest();

/** The producer's id; made if there is none of that name. */
export async function ensureProducer(db: Db, name: string): Promise<ProducerId> {
  await db
    .insertInto("producers")
    .values({ id: uuidv7() as ProducerId, name })
    .onConflict((conflict) => conflict.doNothing())
    .execute();
  const { id } = await db.selectFrom("producers").select("id").where("name", "=", name).executeTakeFirstOrThrow();
  return id;
}

/**
 * Makes a key and returns it, this once: only its hash is kept. 256 random bits need no slow hash. A key without a
 * producer is an operator's.
 */
export async function createKey(
  db: Db,
  wanted: { readonly name: string; readonly producer: string | null; readonly scopes: readonly Scope[] },
): Promise<{ readonly apiKey: ApiKey; readonly key: string }> {
  const key = `dl_${randomBytes(32).toString("base64url")}`;
  const producerId = wanted.producer === null ? null : await ensureProducer(db, wanted.producer);
  const row = await db
    .insertInto("api_keys")
    .values({
      id: uuidv7(),
      producer_id: producerId,
      name: wanted.name,
      key_hash: hashKey(key),
      key_hint: key.slice(-4),
      scopes: wordArray(wanted.scopes),
    })
    .returning(["id", "created_at"])
    .executeTakeFirstOrThrow();
  const { id, created_at: createdAt } = row;
  return { key, apiKey: { ...wanted, id, hint: key.slice(-4), createdAt, revokedAt: null } };
}

export async function listKeys(db: Db): Promise<readonly ApiKey[]> {
  const rows = await db
    .selectFrom("api_keys")
    .leftJoin("producers", "producers.id", "api_keys.producer_id")
    .select(["api_keys.id", "api_keys.name", "producers.name as producer", "key_hint as hint"])
    .select(sql<Scope[]>`to_json(scopes)`.as("scopes"))
    .select(["api_keys.created_at as createdAt", "revoked_at as revokedAt"])
    .orderBy("api_keys.id")
    .execute();
  return rows;
}

/** From this commit on the key is refused. False when there is no such key that is still good. */
export async function revokeKey(db: Db, id: string): Promise<boolean> {
  const revoked = await db
    .updateTable("api_keys")
    .set({ revoked_at: sql<Date>`ledger_now()` })
    .where("id", "=", id)
    .where("revoked_at", "is", null)
    .executeTakeFirst();
  return revoked.numUpdatedRows === 1n;
}

/** The principals behind these key hashes, in order; null for unknown and revoked ones. */
export async function findPrincipals(db: Db, hashes: readonly Buffer[]): Promise<readonly (Principal | null)[]> {
  const hex = hashes.map((hash) => hash.toString("hex"));
  const { rows } = await sql<Omit<Principal, "seesAll"> & { hash: string }>`
    select encode(k.key_hash, 'hex') as hash, k.id as "keyId", k.name as "keyName", k.producer_id as "producerId",
      p.name as producer, to_json(k.scopes) as scopes
    from unnest(${wordArray(hex)}) as wanted (hash)
    join api_keys k on k.key_hash = decode(wanted.hash, 'hex')
    left join producers p on p.id = k.producer_id
    where k.revoked_at is null`.execute(db);
  const found = new Map(
    rows.map(({ hash, ...row }) => [
      hash,
      { ...row, seesAll: row.producerId === null || row.producer === ADMIN_PRODUCER },
    ]),
  );
  return hex.map((hash) => found.get(hash) ?? null);
}

/** In embedded mode, the first start makes the admin key; its text is returned that once. */
export async function ensureAdminKey(db: Db): Promise<string | null> {
  return await db.transaction().execute(async (tx) => {
    await sql`lock table api_keys in share row exclusive mode`.execute(tx);
    const admin = await ensureProducer(tx, ADMIN_PRODUCER);
    const there = await tx
      .selectFrom("api_keys")
      .select("id")
      .where("producer_id", "=", admin)
      .where("revoked_at", "is", null)
      .executeTakeFirst();
    if (there) return null;
    return (await createKey(tx, { name: "admin", producer: ADMIN_PRODUCER, scopes: SCOPES })).key;
  });
}
