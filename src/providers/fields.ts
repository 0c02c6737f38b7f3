import { z } from "zod";
import { unstorablePath } from "../ledger/storable.ts";

/**
 * Text that PostgreSQL and JSON can hold: no U+0000, no half of a surrogate pair. `max` is in UTF-16 units, as Telegram
 * counts; zod and JSON Schema count code points, which are never more.
 */
export const text = (max: number) =>
  z
    .string({ error: ({ input }) => (input === undefined ? "is required" : "must be text") })
    .max(max, { error: `must have at most ${max} characters`, abort: true })
    .refine((value) => value.length <= max, `must have at most ${max} characters (UTF-16 units)`)
    .refine((value) => !value.includes("\0"), "must not contain U+0000")
    .refine((value) => value.isWellFormed(), "must not contain a lone surrogate");

/** Text that ends up in a header: one line. U+2028 is no line break to a mail server, and allowed. */
export const line = (max: number) =>
  text(max).refine((value) => !/[\r\n]/.test(value), "must not contain a line break");

/** Bounded, and storable anywhere inside it, keys included. */
function checkOpaque(value: object, maxCharacters: number, context: z.RefinementCtx): void {
  if (JSON.stringify(value).length > maxCharacters) {
    context.addIssue({ code: "custom", message: `must have at most ${maxCharacters} characters as JSON` });
  }
  const found = unstorablePath(value);
  if (found) context.addIssue({ code: "custom", path: found.path, message: found.fault });
}

/** A JSON object of the provider's own that we pass on unread. */
export const opaque = (maxCharacters: number) =>
  z.unknown().superRefine((value, context) => {
    if (typeof value === "object" && value !== null && !Array.isArray(value))
      checkOpaque(value, maxCharacters, context);
    else context.addIssue({ code: "custom", message: "must be an object" });
  });

/** A JSON list of the provider's own that we pass on unread. */
export const list = (maxCharacters: number) =>
  z.unknown().superRefine((value, context) => {
    if (Array.isArray(value)) checkOpaque(value, maxCharacters, context);
    else context.addIssue({ code: "custom", message: "must be a list" });
  });

/** One line of at most 200 characters for an operator's queue, without half a character at its end. */
export const beginning = (value: unknown): string =>
  String(value ?? "")
    .replaceAll(/\s+/g, " ")
    .slice(0, 200)
    .replace(/[\ud800-\udbff]$/, "");
