import { mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { readConfig } from "../src/config.ts";

const KEY = "an-admin-key-that-is-long";

function config(env: Record<string, string>) {
  const read = readConfig(env);
  if (!read.ok) throw new Error(read.faults.join("\n"));
  return read.config;
}
const faults = (env: Record<string, string>) => {
  const read = readConfig(env);
  return read.ok ? [] : read.faults;
};

describe("defaults", () => {
  test("nothing set: the embedded database, the sandbox, loopback", () => {
    expect(config({})).toMatchObject({
      databaseUrl: null,
      dataDir: "./data",
      host: "127.0.0.1",
      port: 8080,
      role: "all",
      adminKey: null,
      providerTimeoutMs: 30_000,
      leaseMs: 60_000,
      workerConcurrency: 64,
      shutdownGraceMs: 35_000,
    });
    expect(config({}).channels.map(({ id }) => id)).toEqual(["sandbox"]);
  });

  test("an empty variable is one that was left out", () => {
    expect(config({ DATABASE_URL: "", PORT: "" })).toMatchObject({ databaseUrl: null, port: 8080 });
  });

  test("with DATABASE_URL there is no sandbox unless it is asked for", () => {
    const own = { DATABASE_URL: "postgres://u:p@db/x", LEDGER_ADMIN_KEY: KEY };
    expect(config(own).channels).toEqual([]);
    expect(config({ ...own, SANDBOX: "on" }).channels.map(({ id }) => id)).toEqual(["sandbox"]);
  });

  test("a channel exists when its credentials do; its fingerprint changes with them and does not tell them", () => {
    const [email, telegram] = config({
      RESEND_API_KEY: "re_secret_1",
      TELEGRAM_BOT_TOKEN: "12:abc",
      SANDBOX: "off",
    }).channels;
    expect([email?.id, telegram?.id]).toEqual(["email", "telegram"]);
    expect(email?.fingerprint).not.toBe(config({ RESEND_API_KEY: "re_secret_2" }).channels[0]?.fingerprint);
    expect(email?.fingerprint).not.toContain("secret");
  });

  test("a rate is the provider's own unless it is set; off is none", () => {
    const keys = { RESEND_API_KEY: "re_1", TELEGRAM_BOT_TOKEN: "12:abc", SANDBOX: "off" };
    const rates = (env: Record<string, string>) =>
      config({ ...keys, ...env }).channels.map(({ ratePerSecond }) => ratePerSecond);
    expect(rates({})).toEqual([null, null]);
    expect(rates({ RESEND_RATE_PER_SECOND: "2.5", TELEGRAM_RATE_PER_SECOND: "off" })).toEqual([2.5, "off"]);
  });

  test("a slash at the end of a base URL makes no difference", () => {
    const [email] = config({ RESEND_API_KEY: "re_1", RESEND_BASE_URL: "http://127.0.0.1:9/" }).channels;
    expect(email?.adapter).toMatchObject({ baseUrl: "http://127.0.0.1:9" });
  });
});

describe("one readable line a fault, naming the variable", () => {
  test.each<[Record<string, string>, RegExp]>([
    [{ PORT: "eighty" }, /PORT must be a whole number/],
    [{ PORT: "70000" }, /PORT must be at most 65535/],
    [{ ROLE: "boss" }, /ROLE must be one of all, api, worker/],
    [{ DATABASE_URL: "mysql://x", LEDGER_ADMIN_KEY: KEY }, /DATABASE_URL must be a URL that begins with postgres/],
    [{ DATABASE_URL: "postgres://x/y" }, /LEDGER_ADMIN_KEY is required with DATABASE_URL/],
    [{ LEDGER_ADMIN_KEY: "short" }, /LEDGER_ADMIN_KEY must have at least 16 characters/],
    [{ TELEGRAM_BOT_TOKEN: "nonsense" }, /TELEGRAM_BOT_TOKEN must look like/],
    [{ RESEND_API_KEY: "with space" }, /RESEND_API_KEY must be printable/],
    [{ RESEND_BASE_URL: "ftp://x" }, /RESEND_BASE_URL must be a URL/],
    [{ EMAIL_FROM: "a\nb@example.com" }, /EMAIL_FROM must be one line/],
    [{ RESEND_RATE_PER_SECOND: "0" }, /RESEND_RATE_PER_SECOND must be more than 0/],
    [{ RESEND_RATE_PER_SECOND: "99999" }, /RESEND_RATE_PER_SECOND must be more than 0 and at most 10000/],
    [{ TELEGRAM_RATE_PER_SECOND: "fast" }, /TELEGRAM_RATE_PER_SECOND must be a number of calls a second, or off/],
    [{ TELEGRAM_RATE_PER_SECOND: "-1" }, /TELEGRAM_RATE_PER_SECOND must be a number/],
    [{ SANDBOX: "yes" }, /SANDBOX must be on or off/],
    [{ LOG_LEVEL: "loud" }, /LOG_LEVEL must be one of/],
    [{ CHANNELS_FILE: "/nowhere/at/all.json" }, /CHANNELS_FILE cannot be read/],
    [{ PROVIDER_TIMEOUT_MS: "10000", LEASE_MS: "15000" }, /LEASE_MS must be longer than PROVIDER_TIMEOUT_MS/],
  ])("%j", (env, fault) => {
    expect(faults(env)).toEqual([expect.stringMatching(fault)]);
  });

  test("all of them, not the first alone", () => {
    expect(faults({ PORT: "x", ROLE: "y", LOG_LEVEL: "z" })).toHaveLength(3);
  });

  test("a secret is never repeated in a fault", () => {
    expect(faults({ TELEGRAM_BOT_TOKEN: "canary-secret", RESEND_API_KEY: "canary secret" }).join()).not.toContain(
      "canary",
    );
  });

  test("a lease that leaves time to settle is taken", () => {
    expect(config({ PROVIDER_TIMEOUT_MS: "10000", LEASE_MS: "15001" }).leaseMs).toBe(15_001);
  });
});

describe("CHANNELS_FILE", () => {
  async function file(content: unknown): Promise<string> {
    const path = join(await mkdtemp(join(tmpdir(), "channels-")), "channels.json");
    await writeFile(path, typeof content === "string" ? content : JSON.stringify(content));
    return path;
  }

  test("names accounts, and the variables in which their secrets are", async () => {
    const CHANNELS_FILE = await file([
      { id: "email-eu", provider: "resend", api_key_env: "EU_KEY", from: "EU <eu@example.com>" },
      { id: "alerts", provider: "telegram", bot_token_env: "ALERTS_TOKEN", rate_per_second: 20 },
    ]);
    const { channels, secrets } = config({
      CHANNELS_FILE,
      EU_KEY: "re_eu_secret",
      ALERTS_TOKEN: "12:abc",
      SANDBOX: "off",
    });
    expect(channels.map(({ id, adapter }) => [id, adapter.provider])).toEqual([
      ["email-eu", "resend"],
      ["alerts", "telegram"],
    ]);
    expect(channels.map(({ ratePerSecond }) => ratePerSecond)).toEqual([null, 20]);
    expect(secrets).toEqual(expect.arrayContaining(["re_eu_secret", "12:abc"]));
  });

  test.each<[unknown, RegExp]>([
    ["not json", /CHANNELS_FILE cannot be read/],
    [[{ id: "x", provider: "resend" }], /api_key_env/],
    [[{ id: "x", provider: "pigeon" }], /CHANNELS_FILE at \/0/],
    [[{ id: "X!", provider: "sandbox" }], /id must be/],
    [[{ id: "x", provider: "sandbox", colour: "red" }], /colour/],
    [[{ id: "x", provider: "sandbox", rate_per_second: 0 }], /rate_per_second/],
    [[{ id: "x", provider: "resend", api_key_env: "MISSING" }], /MISSING, which is not set/],
    [[{ id: "sandbox", provider: "sandbox" }], /sandbox is configured 2 times/],
  ])("%j", async (content, fault) => {
    expect(faults({ CHANNELS_FILE: await file(content) }).join("\n")).toMatch(fault);
  });
});
