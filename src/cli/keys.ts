import { parseArgs } from "node:util";
import { type Config, readConfig } from "../config.ts";
import { openDatabase } from "../store/database.ts";
import { openEmbedded } from "../store/embedded.ts";
import { createKey, listKeys, revokeKey, SCOPES, type Scope } from "../store/keys.ts";
import { migrate } from "../store/migrate.ts";
import type { Db } from "../store/schema.ts";

const USAGE = `Usage:
  npm run keys -- create --name <text> --scopes <scope,…|all> [--producer <name>]
  npm run keys -- list
  npm run keys -- revoke <id>

Scopes: ${SCOPES.join(", ")}.
A key without a producer is an operator's: it sees every producer's deliveries, and can post none.
Works on DATABASE_URL, or on the embedded database under DATA_DIR.
`;

/** What was asked cannot be done; the text says why. */
class Refusal extends Error {}

process.exitCode = await main(process.argv.slice(2));

/** 0: done; 1: it could not be done; 2: the words are wrong. */
async function main(words: readonly string[]): Promise<number> {
  try {
    const command = readCommand(words);
    const read = readConfig({ LEDGER_ADMIN_KEY: "not needed for this command", ...process.env });
    if (!read.ok) throw new Refusal(read.faults.join("\n"));
    process.stdout.write(await withDatabase(read.config, command));
    return 0;
  } catch (error) {
    const usage = error instanceof Error && (error as { code?: string }).code?.startsWith("ERR_PARSE_ARGS");
    process.stderr.write(`${error instanceof Error ? error.message : error}\n${usage ? `\n${USAGE}` : ""}`);
    return usage ? 2 : 1;
  }
}

type Command = (db: Db) => Promise<string>;

function readCommand(words: readonly string[]): Command {
  const { values, positionals } = parseArgs({
    args: [...words],
    allowPositionals: true,
    options: { name: { type: "string" }, producer: { type: "string" }, scopes: { type: "string" } },
  });
  const [command, id] = positionals;
  if (command === "list") return list;
  if (command === "revoke" && id !== undefined) return (db) => revoke(db, id);
  if (command === "create" && values.name !== undefined && values.scopes !== undefined) {
    const wanted = { name: values.name, producer: values.producer ?? null, scopes: readScopes(values.scopes) };
    if (wanted.producer === null && wanted.scopes.includes("deliveries:write")) {
      throw new Refusal("--producer is needed for deliveries:write: deliveries belong to a producer");
    }
    return (db) => create(db, wanted);
  }
  throw Object.assign(new Refusal(`not a command: ${words.join(" ") || "(nothing)"}`), { code: "ERR_PARSE_ARGS" });
}

function readScopes(text: string): readonly Scope[] {
  if (text === "all") return SCOPES;
  return text.split(",").map((word) => {
    const scope = SCOPES.find((known) => known === word.trim());
    if (!scope) throw new Refusal(`not a scope: ${word}\nThe scopes are ${SCOPES.join(", ")}, or all.`);
    return scope;
  });
}

async function create(db: Db, wanted: Parameters<typeof createKey>[1]): Promise<string> {
  const { key, apiKey } = await createKey(db, wanted);
  return `${key}\n\nShown this once. Its id, to revoke it: ${apiKey.id}\n`;
}

async function list(db: Db): Promise<string> {
  const lines = (await listKeys(db)).map(({ id, name, producer, scopes, hint, revokedAt }) =>
    [id, revokedAt ? "revoked" : "good", `…${hint}`, producer ?? "(operator)", name, scopes.join(",")].join("\t"),
  );
  return `${["id\tstate\tkey\tproducer\tname\tscopes", ...lines].join("\n")}\n`;
}

async function revoke(db: Db, id: string): Promise<string> {
  const known = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(id) && (await revokeKey(db, id));
  if (!known) throw new Refusal(`there is no key ${id} that is still good`);
  return `revoked ${id}\n`;
}

async function withDatabase(config: Config, command: Command): Promise<string> {
  const embedded = config.databaseUrl === null ? await openEmbedded(config.dataDir) : null;
  const url = config.databaseUrl ?? embedded?.url ?? "";
  const database = openDatabase({ url, poolSize: 2, applicationName: "delivery-ledger keys" });
  try {
    await migrate(database.db);
    return await command(database.db);
  } finally {
    await database.close();
    await embedded?.stop();
  }
}
