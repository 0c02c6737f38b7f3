import type { ApiContext } from "./env.ts";
import { survivesDouble } from "./exact-number.ts";
import { type Fault, Problem, pointerOf } from "./problem.ts";

/** Levels of nesting: far more than any message has, far fewer than would exhaust a stack. */
const MAX_DEPTH = 64;

/**
 * Reads a request's JSON body. The limit holds while reading, whatever Content-Length says or leaves out. Throws problems:
 * 415 for another content type or an encoding, 413 over the limit, 400 for bytes that are not UTF-8, broken syntax,
 * repeated keys (RFC 8259, section 4: parsers disagree on them), too many levels, and numbers that a double cannot hold.
 */
export async function readJsonBody(context: ApiContext, maxBytes: number): Promise<unknown> {
  checkMediaType(context.req.raw.headers);
  return parseJson(await readBody(context, maxBytes));
}

/** Likewise; a request without a body is an empty object. */
export async function readOptionalJsonBody(context: ApiContext, maxBytes: number): Promise<unknown> {
  const bytes = await readBody(context, maxBytes);
  if (bytes.length === 0) return {};
  checkMediaType(context.req.raw.headers);
  return parseJson(bytes);
}

function checkMediaType(headers: Headers): void {
  const [type, ...parameters] = (headers.get("content-type") ?? "").toLowerCase().split(";");
  if (type?.trim() !== "application/json")
    throw new Problem("unsupported-media-type", "Content-Type must be application/json");
  for (const parameter of parameters) {
    const [name, value] = parameter.split("=");
    if (name?.trim() === "charset" && value?.trim().replaceAll('"', "") !== "utf-8") {
      throw new Problem("unsupported-media-type", "the charset must be utf-8");
    }
  }
  const encoding = headers.get("content-encoding")?.trim().toLowerCase() ?? "identity";
  if (encoding !== "identity") throw new Problem("unsupported-media-type", "the body must not be compressed");
}

/** A request's bytes; the limit holds while reading. The patience of the request stands meanwhile: that is the caller's time. */
export async function readBody(context: ApiContext, maxBytes: number): Promise<Uint8Array> {
  const clock = context.get("clock");
  clock.stand();
  const bytes = await readBytes(context.req.raw, maxBytes);
  clock.run();
  return bytes;
}

async function readBytes(request: Request, maxBytes: number): Promise<Uint8Array> {
  const tooLarge = () =>
    new Problem("body-too-large", `the body must have at most ${maxBytes} bytes`, { headers: { connection: "close" } });
  if (Number(request.headers.get("content-length") ?? 0) > maxBytes) throw tooLarge();
  const chunks: Uint8Array[] = [];
  let size = 0;
  try {
    for await (const chunk of request.body ?? []) {
      size += chunk.length;
      if (size > maxBytes) throw tooLarge();
      chunks.push(chunk);
    }
  } catch (error) {
    throw error instanceof Problem ? error : new Problem("invalid-json", "the body broke off");
  }
  return Buffer.concat(chunks);
}

/** Bytes → value, or a problem `invalid-json`. */
export function parseJson(bytes: Uint8Array): unknown {
  if (bytes.length === 0) throw new Problem("invalid-json", "the body is empty");
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new Problem("invalid-json", "the body is not UTF-8");
  }
  if (text.startsWith("\ufeff")) throw new Problem("invalid-json", "the body must not begin with a byte order mark");
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    const position = /position \d+(?: \(line \d+ column \d+\))?/.exec(error instanceof Error ? error.message : "");
    throw new Problem("invalid-json", `the body is not valid JSON${position ? ` at ${position[0]}` : ""}`);
  }
  const fault = findFault(text);
  if (fault) throw new Problem("invalid-json", `${fault.pointer || "the body"} ${fault.detail}`, { errors: [fault] });
  return value;
}

interface Level {
  /** Keys seen, for an object; null for an array. */
  readonly keys: Set<string> | null;
  /** Where in this level we are: a key, or an index. */
  at: string | number;
  expectsKey: boolean;
}

const NUMBER = /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/y;

/** What JSON.parse lets through. `text` is valid JSON: one pass over its tokens is enough. */
function findFault(text: string): Fault | null {
  const levels: Level[] = [];
  const here = (): string => pointerOf(levels.map(({ at }) => at));
  for (let i = 0; i < text.length; ) {
    const char = text[i] ?? "";
    if (char === '"') {
      const end = endOfString(text, i);
      if (!takeString(text, i, end, levels.at(-1))) return { pointer: here(), detail: "is there twice" };
      i = end;
    } else if (char === "-" || (char >= "0" && char <= "9")) {
      NUMBER.lastIndex = i;
      const literal = NUMBER.exec(text)?.[0] ?? "";
      if (!survivesDouble(literal))
        return { pointer: here(), detail: "is a number that cannot be held exactly; send it as text" };
      i += literal.length;
    } else {
      takePunctuation(char, levels);
      if (levels.length > MAX_DEPTH) return { pointer: "", detail: `must have at most ${MAX_DEPTH} levels` };
      i += 1;
    }
  }
  return null;
}

/** A key or a value. False when the key was there already. */
function takeString(text: string, start: number, end: number, level: Level | undefined): boolean {
  if (!level?.keys || !level.expectsKey) return true;
  const key = JSON.parse(text.slice(start, end)) as string;
  const fresh = !level.keys.has(key);
  level.keys.add(key);
  level.at = key;
  level.expectsKey = false;
  return fresh;
}

function takePunctuation(char: string, levels: Level[]): void {
  const level = levels.at(-1);
  if (char === "{") levels.push({ keys: new Set(), at: "", expectsKey: true });
  else if (char === "[") levels.push({ keys: null, at: 0, expectsKey: false });
  else if (char === "}" || char === "]") levels.pop();
  else if (char === "," && level?.keys) level.expectsKey = true;
  else if (char === "," && level) level.at = (level.at as number) + 1;
}

function endOfString(text: string, start: number): number {
  for (let i = start + 1; ; i += 1) {
    const char = text.charCodeAt(i);
    if (char === 0x5c) i += 1;
    else if (char === 0x22) return i + 1;
  }
}
