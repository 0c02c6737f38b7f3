import { inspect } from "node:util";
import { type Logger, pino } from "pino";
import { redactor } from "./ledger/redact.ts";

/** One line of JSON an event, on standard output. Errors are reduced to their text; secrets never get through. */
export function createLog(
  level: string,
  secrets: readonly string[],
  destination?: { write(line: string): void },
): Logger {
  const redact = redactor(secrets);
  const options = {
    level,
    base: null,
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label: string) => ({ level: label }) },
    serializers: { err: errorText },
  };
  const stream = destination ?? standardOutput();
  // The finished line is what leaves the process: whatever went into it, it is cleaned here.
  return pino(options, { write: (line: string) => stream.write(redact(line)) });
}

/**
 * Lines go out at once, and nobody waits for them: while one is being written, the next ones gather and share a write. A slow
 * reader must not slow down the ledger. What is still held when the process ends is written then.
 */
function standardOutput(): { write(line: string): void } {
  const stream = pino.destination({ fd: 1, sync: false });
  process.on("exit", () => {
    try {
      stream.flushSync();
    } catch {
      // Nobody reads any more.
    }
  });
  return stream;
}

/** Class, code, message and stack of an error and its causes; no other properties, for they may hold anything. */
function errorText(error: unknown): Record<string, unknown> {
  if (!(error instanceof Error)) return { message: inspect(error, { depth: 1 }).slice(0, 500) };
  const { code } = error as { code?: unknown };
  return {
    type: error.name,
    ...(typeof code === "string" ? { code } : {}),
    message: error.message.slice(0, 2_000),
    stack: error.stack?.split("\n").slice(1, 8).join("\n"),
    ...(error.cause === undefined ? {} : { cause: errorText(error.cause) }),
  };
}
