import type { z } from "zod";
import { type Fault, pointerOf } from "./problem.ts";

/** zod's issues as faults: the path as a JSON Pointer, unknown fields each by their own. */
export function faultsOf(error: z.ZodError, base: readonly PropertyKey[]): Fault[] {
  return error.issues.flatMap((issue): Fault[] => {
    const path = [...base, ...issue.path];
    if (issue.code === "unrecognized_keys") {
      return issue.keys.map((key) => ({ pointer: pointerOf([...path, key]), detail: "is not a field here" }));
    }
    if (issue.code === "invalid_union") {
      const closest = issue.errors.toSorted((a, b) => depth(b) - depth(a) || a.length - b.length)[0] ?? [];
      if (closest.length > 0) return faultsOf({ issues: closest } as unknown as z.ZodError, path);
    }
    const missing = issue.code === "invalid_type" && issue.input === undefined && issue.message.includes("undefined");
    return [{ pointer: pointerOf(path), detail: missing ? "is required" : detailOf(issue) }];
  });
}

const depth = (issues: readonly { path: readonly PropertyKey[] }[]): number =>
  Math.max(0, ...issues.map(({ path }) => path.length));

/** Own keys named `__proto__`, which schemas pass over: fields that nobody has, except in the caller's metadata. */
export function reservedKeys(value: object, path: readonly PropertyKey[] = []): Fault[] {
  return Object.entries(value).flatMap(([key, member]): Fault[] => {
    const here = [...path, key];
    if (key === "__proto__") return [{ pointer: pointerOf(here), detail: "is not a field here" }];
    if (path.length === 0 && key === "metadata") return [];
    return typeof member === "object" && member !== null ? reservedKeys(member, here) : [];
  });
}

/** zod's own words for sizes are a validator's; every other message is ours, or plain. */
function detailOf(issue: z.core.$ZodIssue): string {
  const of = { string: "characters", array: "items" }[("origin" in issue ? issue.origin : "") as string];
  if (of && issue.message.startsWith("Too ")) {
    if (issue.code === "too_small")
      return issue.minimum === 1 ? "must not be empty" : `must have at least ${issue.minimum} ${of}`;
    if (issue.code === "too_big") return `must have at most ${issue.maximum} ${of}`;
  }
  return issue.message.replace(/^Invalid input: /, "");
}
