import { createHash } from "node:crypto";
import canonicalize from "canonicalize";

/** Code points in a name that a producer chose. */
export const NAME_MAX_LENGTH = 255;
/** Code points in a name made from an occurrence: schedule, instant, channel and recipient. */
export const DERIVED_NAME_MAX_LENGTH = 512;

// Controls (C0, C1), lone surrogates, line and paragraph separators, and the bidirectional controls that can make one
// name look like another (Unicode TR36).
const UNPRINTABLE = /[\p{Cc}\p{Cs}\u2028\u2029\u202a-\u202e\u2066-\u2069]/u;

/**
 * Why this text cannot be a name, or null. Names are compared byte by byte: `ABC`, `abc`, and the two Unicode spellings of
 * `café` are different names. White space at either end is refused, for it is never meant.
 */
export function nameFault(name: string, maxLength = NAME_MAX_LENGTH): string | null {
  const length = [...name].length;
  if (length < 1 || length > maxLength) return `must have 1 to ${maxLength} characters`;
  if (UNPRINTABLE.test(name)) return "must consist of printable characters";
  if (name.trim() !== name) return "must not begin or end with white space";
  return null;
}

/** An occurrence's name for one recipient: `schedule@instant/channel/recipient`, the instant in UTC with milliseconds. */
export const occurrenceName = (schedule: string, dueAt: Date, channel: string, to: string): string =>
  `${schedule}@${dueAt.toISOString()}/${channel}/${to}`;

/**
 * The request's identity: SHA-256 of its canonical JSON (RFC 8785), as posted, without defaults, so that key order,
 * number spelling and white space do not matter. The name itself is left out: it may come by header or body.
 */
export function requestHash(request: Readonly<Record<string, unknown>>): Buffer {
  const { name: _name, ...meaning } = request;
  const canonical = canonicalize(meaning);
  if (canonical === undefined) throw new TypeError("a request is a JSON object");
  return createHash("sha256").update(canonical, "utf8").digest();
}

/** JSON Pointers (RFC 6901) of the places where two requests differ; not their contents. At most `limit` of them. */
export function differingPointers(held: unknown, posted: unknown, limit = 50): string[] {
  const found: string[] = [];
  walk(held, posted, "");
  return found;

  function walk(a: unknown, b: unknown, pointer: string): void {
    if (found.length >= limit || canonicalize(a) === canonicalize(b)) return;
    if (!isObject(a) || !isObject(b) || Array.isArray(a) !== Array.isArray(b)) {
      found.push(pointer);
      return;
    }
    for (const key of new Set([...Object.keys(a), ...Object.keys(b)])) {
      const step = `${pointer}/${key.replaceAll("~", "~0").replaceAll("/", "~1")}`;
      if (Object.hasOwn(a, key) !== Object.hasOwn(b, key)) found.push(step);
      else walk(a[key], b[key], step);
      if (found.length >= limit) return;
    }
  }
}

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null;
