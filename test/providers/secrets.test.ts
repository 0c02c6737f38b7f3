import { inspect } from "node:util";
import { afterAll, beforeEach, describe, expect, test } from "vitest";
import { type AdapterSettings, openAdapter } from "../../src/providers/index.ts";
import type { Fake } from "../fakes/desk.ts";
import { openFakeResend } from "../fakes/resend.ts";
import { page, type Step } from "../fakes/step.ts";
import { openFakeTelegram } from "../fakes/telegram.ts";
import { call, DELIVERY } from "./build.ts";

const CANARY = "777001:CANARYcanaryCANARYcanary-0123_456";
const API_KEY = "re_CANARYcanary_0123456789";
const NOWHERE = "http://127.0.0.1:1";

const ACCOUNTS: readonly {
  name: string;
  secret: string;
  to: string;
  message: object;
  fake: Fake;
  settings: (url: string) => AdapterSettings;
}[] = [
  {
    name: "resend",
    secret: API_KEY,
    to: "ada@example.com",
    message: { from: "a@example.com", subject: "s", text: "t" },
    fake: await openFakeResend(),
    settings: (baseUrl) => ({ provider: "resend", apiKey: API_KEY, baseUrl }),
  },
  {
    name: "telegram",
    secret: CANARY,
    to: "5",
    message: { text: "t" },
    fake: await openFakeTelegram(),
    settings: (apiRoot) => ({ provider: "telegram", botToken: CANARY, apiRoot }),
  },
];

beforeEach(() => {
  for (const { fake } of ACCOUNTS) fake.reset();
});
afterAll(() => Promise.all(ACCOUNTS.map(({ fake }) => fake.close())));

/** Everything that the words of a value can be read from, not enumerable parts and causes too. */
const everything = (value: unknown): string =>
  [inspect(value, { depth: 20, showHidden: true, getters: true }), JSON.stringify(value), String(value)].join("\n");

describe.each(ACCOUNTS)("$name", ({ secret, to, message, fake, settings }) => {
  const quoting = `https://api.test/bot${secret}/sendMessage said no to ${secret}`;
  const FAULTS: readonly (readonly [string, Step])[] = [
    ["an error that quotes it", { do: "answer", status: 422, json: errorWith(quoting) }],
    ["an error named after it", { do: "answer", status: 422, json: { name: secret, message: secret } }],
    ["a text that quotes it", { do: "answer", status: 403, raw: quoting }],
    ["a page that quotes it", { do: "answer", status: 502, raw: `<html>${quoting}</html>` }],
    ["404", { do: "answer", status: 404, json: errorWith("Not Found") }],
    ["a reset", { do: "reset" }],
    ["a close", { do: "close" }],
    ["a time-out", { do: "hang" }],
    ["half an answer", { do: "cut" }],
    ["a page", page(502)],
    ["JSON null", { do: "answer", status: 200, json: null }],
  ];

  test.each(FAULTS)("the answer to %s does not contain the secret", async (_name, step) => {
    fake.script(to, [step]);
    expect(await answered(fake.url)).not.toContain(secret);
  });

  test.each([NOWHERE, "http://no-such-host.invalid", "https://127.0.0.1:1"])(
    "nor does a failure to reach %s",
    async (url) => {
      expect(await answered(url)).not.toContain(secret);
    },
  );

  test("nor does the adapter itself, when it is printed", () => {
    expect(everything(openAdapter(settings(fake.url)))).not.toContain(secret);
  });

  async function answered(url: string): Promise<string> {
    const adapter = openAdapter(settings(url));
    const body = await adapter.render({ deliveryId: DELIVERY, to, message });
    expect(body).not.toContain(secret);
    const seen = await adapter.call(call({ body, to, timeoutMs: 150 }));
    await adapter.close();
    return everything(seen);
  }
});

function errorWith(text: string): object {
  return { statusCode: 422, name: "validation_error", message: text, ok: false, error_code: 400, description: text };
}
