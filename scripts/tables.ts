import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { withTables } from "./capability-tables.ts";

const path = join(import.meta.dirname, "../README.md");
await writeFile(path, withTables(await readFile(path, "utf8")));
