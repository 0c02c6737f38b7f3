import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { withTables } from "../scripts/capability-tables.ts";

const root = join(import.meta.dirname, "..");

test("the README's capability tables are those of the code (npm run tables)", async () => {
  const readme = await readFile(join(root, "README.md"), "utf8");
  expect(withTables(readme)).toBe(readme);
});

test("every variable that the configuration reads stands in the README, and no other", async () => {
  const readme = await readFile(join(root, "README.md"), "utf8");
  const code = await readFile(join(root, "src/config.ts"), "utf8");
  const read = new Set([...code.matchAll(/^ {4}([A-Z][A-Z_]+): /gm)].map(([, name]) => name));
  const section = readme.slice(readme.indexOf("## Configuration"), readme.indexOf("## Operating"));
  const told = new Set([...section.matchAll(/`([A-Z][A-Z_]{3,})`/g)].map(([, name]) => name));
  expect([...told].toSorted()).toEqual([...read].toSorted());
});
