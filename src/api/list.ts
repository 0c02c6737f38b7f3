import { z } from "zod";
import type { ApiContext } from "./env.ts";
import { faultsOf } from "./faults.ts";
import { Problem, pointerOf, summary } from "./problem.ts";

/** The parameters of every list. */
export const limit = z
  .string()
  .regex(/^[1-9]\d{0,2}$/, "must be a whole number from 1 to 100")
  .transform(Number)
  .pipe(z.int().max(100, "must be at most 100"))
  .default(25)
  .meta({ override: { type: "integer", minimum: 1, maximum: 100, default: 25 } });
export const cursor = z.string().max(200).optional().meta({ description: "next_cursor of the page before" });

const twice = (name: string) => ({ errors: [{ pointer: pointerOf([name]), detail: "is there twice" }] });

/** The query by a schema; parameters that are unknown, repeated or wrong are a problem that names them. */
export function readQuery<S extends z.ZodType>(context: ApiContext, schema: S): z.infer<S> {
  const given = new Map<string, string>();
  for (const [name, value] of new URL(context.req.url).searchParams) {
    if (given.has(name)) throw new Problem("invalid-parameter", "a parameter is there twice", twice(name));
    given.set(name, value);
  }
  const parsed = schema.safeParse(Object.fromEntries(given));
  if (parsed.success) return parsed.data;
  const errors = faultsOf(parsed.error, []);
  throw new Problem("invalid-parameter", summary(errors), { errors });
}

/** An opaque cursor: which list, and the id of the last row of the page. */
export const writeCursor = (list: string, id: string): string => Buffer.from(`${list}:${id}`).toString("base64url");

const foreign = () => new Problem("invalid-cursor", "the cursor is not one of this list");

export function readCursor(cursor: string, list: string): string {
  const [of, id] = Buffer.from(cursor, "base64url").toString("latin1").split(":");
  if (of !== list || !z.uuid().safeParse(id).success || writeCursor(list, id ?? "") !== cursor) throw foreign();
  return id ?? "";
}

/** Likewise for a list in the order of time: the time of the last row, and its id for those with the same. */
export const writeTimeCursor = (list: string, at: Date, id: string): string =>
  Buffer.from(`${list}:${at.getTime()}:${id}`).toString("base64url");

export function readTimeCursor(cursor: string, list: string): { at: Date; id: string } {
  const [of, ms, id] = Buffer.from(cursor, "base64url").toString("latin1").split(":");
  // Fourteen digits reach the year 5138; with more, PostgreSQL cannot read what the driver writes.
  const at = new Date(/^\d{1,14}$/.test(ms ?? "") ? Number(ms) : Number.NaN);
  if (of !== list || Number.isNaN(at.getTime()) || !z.uuid().safeParse(id).success) throw foreign();
  if (writeTimeCursor(list, at, id ?? "") !== cursor) throw foreign();
  return { at, id: id ?? "" };
}

/** `true` or `false` in a query. */
export const flag = z.enum(["true", "false"], "must be true or false").transform((text) => text === "true");

/** Text to compare with: what no row can hold is refused. */
export const wanted = (max: number) =>
  z
    .string()
    .min(1)
    .max(max)
    .refine((text) => text.isWellFormed() && !text.includes("\0"), "must be text that can be stored");
