import { describe, expect, test } from "vitest";
import { createLog } from "../src/log.ts";

const CANARY = "canary-secret-0123456789";
const TOKEN = "123456:AAcanarytoken-abc_def";

function lines(write: (log: ReturnType<typeof createLog>) => void): string {
  let text = "";
  const log = createLog("trace", [CANARY, TOKEN], {
    write: (line) => {
      text += line;
    },
  });
  write(log);
  return text;
}

function failure(): Error {
  const root = Object.assign(new Error(`fetch https://api.telegram.org/bot${TOKEN}/sendMessage failed`), {
    code: "ECONNRESET",
  });
  return new TypeError(`wrapped ${CANARY}`, { cause: new Error("middle", { cause: root }) });
}

describe("no secret ever gets into the log", () => {
  test.each<[string, (log: ReturnType<typeof createLog>) => void]>([
    ["in a message", (log) => log.info(`key ${CANARY}`)],
    ["in a field", (log) => log.info({ a: { b: [CANARY] } }, "x")],
    ["as a key", (log) => log.info({ [CANARY]: 1 }, "x")],
    ["in an error, its causes and stacks", (log) => log.error({ err: failure() }, "x")],
    ["in an object that is not an error", (log) => log.error({ err: { url: `/bot${TOKEN}/` } }, "x")],
    ["in a child's bindings", (log) => log.child({ secret: CANARY }).warn("x")],
    ["a bot token that nobody told us about", (log) => log.info("https://x/bot99:other_token-A/getMe")],
    [
      "an API key that nobody told us about",
      (log) => log.info("dl_0123456789abcdefghijklmnop re_0123456789abcdefghij"),
    ],
  ])("%s", (_where, write) => {
    const text = lines(write);
    expect(text).not.toBe("");
    for (const secret of [CANARY, TOKEN, "AAcanary", "other_token", "0123456789abcdef"])
      expect(text).not.toContain(secret);
  });
});

test("a line is JSON, one an event, with its time and level", () => {
  const text = lines((log) => log.info({ event: "attempt.settled", delivery_id: "d", attempt: 1 }, "settled"));
  expect(text.endsWith("\n")).toBe(true);
  expect(JSON.parse(text)).toMatchObject({ level: "info", event: "attempt.settled", delivery_id: "d", attempt: 1 });
});

test("an error keeps its class, code and causes", () => {
  const { err } = JSON.parse(lines((log) => log.error({ err: failure() }, "x")));
  expect(err).toMatchObject({ type: "TypeError", cause: { cause: { code: "ECONNRESET" } } });
});
