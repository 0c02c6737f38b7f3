import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";

/** In a process of its own: simulated time takes the place of Node's. */
const simulate = (...flags: string[]): string =>
  execFileSync(process.execPath, ["test/proof/simulation/main.ts", ...flags], { encoding: "utf8" });

test("no rule of the checker is broken in five hundred simulated histories", () => {
  expect(simulate("--seeds", "500")).toContain("histories in which a rule is broken: 0");
}, 120_000);

test("the same seed is the same history", () => {
  expect(simulate("--seed", "12")).toBe(simulate("--seed", "12"));
}, 60_000);
