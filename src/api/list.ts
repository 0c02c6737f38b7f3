import { z } from "zod";
import type { ApiContext } from "./env.ts";
import { faultsOf } from "./faults.ts";
import { Problem } from "./problem.ts";

/** The parameters of every list. */
export const limit = z
  .string()
  .regex(/^[1-9]\d{0,2}$/, "must be a whole number from 1 to 100")
  .transform(Number)
  .pipe(z.int().max(100, "must be at most 100"))
  .default(25)
  .meta({ override: { type: "integer", minimum: 1, maximum: 100, default: 25 } });
export const cursor = z.string().max(200).optional().meta({ description: "next_cursor of the page before" });

/** The query by a schema; parameters that are unknown, repeated or wrong are a problem that names them. */
export function readQuery<S extends z.ZodType>(context: ApiContext, schema: S): z.infer<S> {
  const given: Record<string, string> = {};
  for (const [name, values] of Object.entries(context.req.queries())) {
    if (values.length > 1) throw new Problem("invalid-parameter", `${name} is there ${values.length} times`);
    given[name] = values[0] ?? "";
  }
  const parsed = schema.safeParse(given);
  if (parsed.success) return parsed.data;
  const errors = faultsOf(parsed.error, []);
  const detail = errors.map(({ pointer, detail: what }) => `${pointer.slice(1)} ${what}`).join("; ");
  throw new Problem("invalid-parameter", detail.slice(0, 1_000), { errors });
}

/** An opaque cursor: which list, and the id of the last row of the page. */
export const writeCursor = (list: string, id: string): string => Buffer.from(`${list}:${id}`).toString("base64url");

export function readCursor(cursor: string, list: string): string {
  const [of, id] = Buffer.from(cursor, "base64url").toString("latin1").split(":");
  if (of !== list || !z.uuid().safeParse(id).success || writeCursor(list, id ?? "") !== cursor) {
    throw new Problem("invalid-cursor", "the cursor is not one of this list");
  }
  return id ?? "";
}
