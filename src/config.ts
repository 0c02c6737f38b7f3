import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { z } from "zod";
import { type AdapterSettings, PROVIDERS } from "./providers/index.ts";

export const ROLES = ["all", "api", "worker"] as const;
export const LOG_LEVELS = ["fatal", "error", "warn", "info", "debug", "trace", "silent"] as const;

/** What a settlement may take: a lease that is not longer than the provider's time-out plus this is refused. */
const TIME_TO_SETTLE_MS = 5_000;
const LEASE_MARGIN_MS = 30_000;

/** A configured provider account. */
export interface ChannelConfig {
  readonly id: string;
  readonly adapter: AdapterSettings;
  /** Tells when the credentials have changed, without telling them. */
  readonly fingerprint: string;
  /** Any of them signs the channel's webhooks. */
  readonly webhookSecrets: readonly string[];
  /** Calls a second at most; null: as the provider's table says. `off`: no limit, for recipients neither. */
  readonly ratePerSecond: number | "off" | null;
}

export interface Config {
  /** Null: the embedded database under `dataDir`. */
  readonly databaseUrl: string | null;
  readonly databasePoolSize: number;
  readonly dataDir: string;
  readonly host: string;
  readonly port: number;
  readonly role: (typeof ROLES)[number];
  readonly adminKey: string | null;
  readonly channels: readonly ChannelConfig[];
  readonly providerTimeoutMs: number;
  readonly leaseMs: number;
  readonly workerConcurrency: number;
  readonly pollIntervalMs: number;
  readonly sweepIntervalMs: number;
  readonly shutdownGraceMs: number;
  readonly maxBodyBytes: number;
  readonly allowPrivateCallbacks: boolean;
  readonly logLevel: (typeof LOG_LEVELS)[number];
  /** Everything that must never be logged. */
  readonly secrets: readonly string[];
}

const whole = (name: string, min: number, max: number) =>
  z
    .string()
    .regex(/^\d{1,12}$/, `${name} must be a whole number`)
    .transform(Number)
    .pipe(z.number().min(min, `${name} must be at least ${min}`).max(max, `${name} must be at most ${max}`));

const url = (name: string, protocols: readonly string[]) =>
  z.string().refine((text) => URL.canParse(text) && protocols.includes(new URL(text).protocol), {
    error: `${name} must be a URL that begins with ${protocols.map((protocol) => `${protocol}//`).join(" or ")}`,
  });

const http = (name: string) => url(name, ["http:", "https:"]).transform((text) => text.replace(/\/+$/, ""));

const resendKey = (name: string) =>
  z.string().regex(/^[\x21-\x7e]+$/, `${name} must be printable ASCII without spaces`);
const botTokenForm = (name: string) =>
  z.string().regex(/^\d{1,20}:[A-Za-z0-9_-]{1,100}$/, `${name} must look like 123456:ABC…, as BotFather gave it`);
const sender = (name: string) =>
  z.string().regex(/^[^\r\n\0]{3,320}$/, `${name} must be one line: an address, or Name <address>`);

/** One secret, or several while they are rotated, separated by commas. */
const secrets = (name: string, provider: string) =>
  z.string().transform((text, context) => {
    const all = text.split(",");
    for (const secret of all) {
      const fault = PROVIDERS[provider]?.webhooks?.secretFault(secret);
      if (fault) context.addIssue({ code: "custom", message: `${name} ${fault}` });
    }
    return all;
  });

const FASTEST_PER_SECOND = 10_000;
const rate = (name: string) =>
  z
    .string()
    .regex(/^(off|\d{1,5}(\.\d{1,3})?)$/, `${name} must be a number of calls a second, or off`)
    .transform((text) => (text === "off" ? text : Number(text)))
    .refine((value) => value === "off" || (value > 0 && value <= FASTEST_PER_SECOND), {
      error: `${name} must be more than 0 and at most ${FASTEST_PER_SECOND}`,
    });

const environment = z
  .object({
    DATABASE_URL: url("DATABASE_URL", ["postgres:", "postgresql:"]).optional(),
    DATABASE_POOL_SIZE: whole("DATABASE_POOL_SIZE", 2, 200).default(20),
    DATA_DIR: z.string().default("./data"),
    HOST: z.string().default("127.0.0.1"),
    PORT: whole("PORT", 0, 65_535).default(8080),
    ROLE: z.enum(ROLES, { error: `ROLE must be one of ${ROLES.join(", ")}` }).default("all"),
    LEDGER_ADMIN_KEY: z.string().min(16, "LEDGER_ADMIN_KEY must have at least 16 characters").max(512).optional(),
    RESEND_API_KEY: resendKey("RESEND_API_KEY").optional(),
    RESEND_BASE_URL: http("RESEND_BASE_URL").optional(),
    RESEND_WEBHOOK_SECRET: secrets("RESEND_WEBHOOK_SECRET", "resend").default([]),
    RESEND_LOOKUP_API_KEY: resendKey("RESEND_LOOKUP_API_KEY").optional(),
    EMAIL_FROM: sender("EMAIL_FROM").optional(),
    RESEND_RATE_PER_SECOND: rate("RESEND_RATE_PER_SECOND").optional(),
    TELEGRAM_BOT_TOKEN: botTokenForm("TELEGRAM_BOT_TOKEN").optional(),
    TELEGRAM_API_ROOT: http("TELEGRAM_API_ROOT").optional(),
    TELEGRAM_WEBHOOK_SECRET: secrets("TELEGRAM_WEBHOOK_SECRET", "telegram").default([]),
    TELEGRAM_RATE_PER_SECOND: rate("TELEGRAM_RATE_PER_SECOND").optional(),
    SANDBOX: z.enum(["on", "off"], { error: "SANDBOX must be on or off" }).optional(),
    CHANNELS_FILE: z.string().optional(),
    PROVIDER_TIMEOUT_MS: whole("PROVIDER_TIMEOUT_MS", 100, 600_000).default(30_000),
    LEASE_MS: whole("LEASE_MS", 1_000, 3_600_000).optional(),
    WORKER_CONCURRENCY: whole("WORKER_CONCURRENCY", 1, 5_000).default(64),
    POLL_INTERVAL_MS: whole("POLL_INTERVAL_MS", 10, 60_000).default(500),
    SWEEP_INTERVAL_MS: whole("SWEEP_INTERVAL_MS", 10, 60_000).default(2_000),
    SHUTDOWN_GRACE_MS: whole("SHUTDOWN_GRACE_MS", 0, 3_600_000).default(35_000),
    MAX_BODY_BYTES: whole("MAX_BODY_BYTES", 1_024, 104_857_600).default(10_485_760),
    CALLBACKS_ALLOW_PRIVATE: z
      .enum(["on", "off"], { error: "CALLBACKS_ALLOW_PRIVATE must be on or off" })
      .default("off"),
    LOG_LEVEL: z.enum(LOG_LEVELS, { error: `LOG_LEVEL must be one of ${LOG_LEVELS.join(", ")}` }).default("info"),
  })
  .superRefine((env, context) => {
    const fault = (message: string) => context.addIssue({ code: "custom", message });
    if (env.DATABASE_URL !== undefined && env.LEDGER_ADMIN_KEY === undefined) {
      fault("LEDGER_ADMIN_KEY is required with DATABASE_URL");
    }
    if (env.LEASE_MS !== undefined && env.LEASE_MS <= env.PROVIDER_TIMEOUT_MS + TIME_TO_SETTLE_MS) {
      fault(
        `LEASE_MS must be longer than PROVIDER_TIMEOUT_MS plus ${TIME_TO_SETTLE_MS} ms to settle: ` +
          `more than ${env.PROVIDER_TIMEOUT_MS + TIME_TO_SETTLE_MS}`,
      );
    }
  });

const CHANNEL_ID = /^[a-z][a-z0-9_-]{0,62}$/;
const channelId = z.string().regex(CHANNEL_ID, "id must be 1 to 63 of a-z, 0-9, _ and -, beginning with a letter");
const ratePerSecond = z.union([z.literal("off"), z.number().positive().max(FASTEST_PER_SECOND)]).optional();
const channelEntry = z.discriminatedUnion("provider", [
  z.strictObject({
    id: channelId,
    provider: z.literal("resend"),
    api_key_env: z.string(),
    lookup_api_key_env: z.string().optional(),
    webhook_secret_env: z.string().optional(),
    base_url: http("base_url").optional(),
    from: sender("from").optional(),
    rate_per_second: ratePerSecond,
  }),
  z.strictObject({
    id: channelId,
    provider: z.literal("telegram"),
    bot_token_env: z.string(),
    webhook_secret_env: z.string().optional(),
    api_root: http("api_root").optional(),
    rate_per_second: ratePerSecond,
  }),
  z.strictObject({ id: channelId, provider: z.literal("sandbox"), rate_per_second: ratePerSecond }),
]);

type Environment = Readonly<Record<string, string | undefined>>;

/** The environment as a Config, or one readable line a fault. Secrets are never repeated in a fault. */
export function readConfig(env: Environment): { ok: true; config: Config } | { ok: false; faults: string[] } {
  // An empty variable is one that was left out.
  const set = Object.fromEntries(Object.entries(env).filter(([, value]) => value !== undefined && value !== ""));
  const parsed = environment.safeParse(set);
  if (!parsed.success) return { ok: false, faults: parsed.error.issues.map(({ message }) => message) };
  const from = parsed.data;
  const faults: string[] = [];
  const channels = [...ownChannels(from), ...fileChannels(from.CHANNELS_FILE, set, faults)];
  for (const [id, same] of Map.groupBy(channels, (channel) => channel.id)) {
    if (same.length > 1) faults.push(`channel ${id} is configured ${same.length} times`);
  }
  if (faults.length > 0) return { ok: false, faults };
  const config: Config = {
    databaseUrl: from.DATABASE_URL ?? null,
    databasePoolSize: from.DATABASE_POOL_SIZE,
    dataDir: from.DATA_DIR,
    host: from.HOST,
    port: from.PORT,
    role: from.ROLE,
    adminKey: from.LEDGER_ADMIN_KEY ?? null,
    channels,
    providerTimeoutMs: from.PROVIDER_TIMEOUT_MS,
    leaseMs: from.LEASE_MS ?? from.PROVIDER_TIMEOUT_MS + LEASE_MARGIN_MS,
    workerConcurrency: from.WORKER_CONCURRENCY,
    pollIntervalMs: from.POLL_INTERVAL_MS,
    sweepIntervalMs: from.SWEEP_INTERVAL_MS,
    shutdownGraceMs: from.SHUTDOWN_GRACE_MS,
    maxBodyBytes: from.MAX_BODY_BYTES,
    allowPrivateCallbacks: from.CALLBACKS_ALLOW_PRIVATE === "on",
    logLevel: from.LOG_LEVEL,
    secrets: secretsOf(channels, from.LEDGER_ADMIN_KEY, from.DATABASE_URL),
  };
  return { ok: true, config };
}

const channelOf = (
  id: string,
  adapter: AdapterSettings,
  more: { readonly webhookSecrets?: readonly string[]; readonly ratePerSecond?: number | "off" | undefined } = {},
): ChannelConfig => ({
  id,
  adapter,
  webhookSecrets: more.webhookSecrets ?? [],
  ratePerSecond: more.ratePerSecond ?? null,
  fingerprint: createHash("sha256").update(credential(adapter)).digest("hex").slice(0, 16),
});

function credential(adapter: AdapterSettings): string {
  switch (adapter.provider) {
    case "resend":
      return adapter.apiKey;
    case "telegram":
      return adapter.botToken;
    case "sandbox":
      return "";
    default:
      throw new Error(`no credential for ${adapter satisfies never}`);
  }
}

const credentialsOf = (adapter: AdapterSettings): string[] =>
  adapter.provider === "resend" ? [adapter.apiKey, adapter.lookupApiKey ?? ""] : [credential(adapter)];

function ownChannels(env: z.infer<typeof environment>): ChannelConfig[] {
  const channels: ChannelConfig[] = [];
  if (env.RESEND_API_KEY !== undefined) {
    channels.push(
      channelOf(
        "email",
        {
          provider: "resend",
          apiKey: env.RESEND_API_KEY,
          ...(env.RESEND_BASE_URL !== undefined && { baseUrl: env.RESEND_BASE_URL }),
          ...(env.EMAIL_FROM !== undefined && { from: env.EMAIL_FROM }),
          ...(env.RESEND_LOOKUP_API_KEY !== undefined && { lookupApiKey: env.RESEND_LOOKUP_API_KEY }),
        },
        { webhookSecrets: env.RESEND_WEBHOOK_SECRET, ratePerSecond: env.RESEND_RATE_PER_SECOND },
      ),
    );
  }
  if (env.TELEGRAM_BOT_TOKEN !== undefined) {
    channels.push(
      channelOf(
        "telegram",
        {
          provider: "telegram",
          botToken: env.TELEGRAM_BOT_TOKEN,
          ...(env.TELEGRAM_API_ROOT !== undefined && { apiRoot: env.TELEGRAM_API_ROOT }),
        },
        { webhookSecrets: env.TELEGRAM_WEBHOOK_SECRET, ratePerSecond: env.TELEGRAM_RATE_PER_SECOND },
      ),
    );
  }
  const sandbox = env.SANDBOX ?? (env.DATABASE_URL === undefined ? "on" : "off");
  if (sandbox === "on") channels.push(channelOf("sandbox", { provider: "sandbox" }));
  return channels;
}

/** More than one account a provider: a JSON list that names the environment variables in which the secrets are. */
function fileChannels(path: string | undefined, env: Environment, faults: string[]): ChannelConfig[] {
  if (path === undefined) return [];
  let listed: unknown;
  try {
    listed = JSON.parse(readFileSync(path, "utf8"));
  } catch (error) {
    faults.push(`CHANNELS_FILE cannot be read: ${error instanceof Error ? error.message : "not JSON"}`);
    return [];
  }
  const parsed = z.array(channelEntry).safeParse(listed);
  if (!parsed.success) {
    faults.push(...parsed.error.issues.map(({ path: at, message }) => `CHANNELS_FILE at /${at.join("/")}: ${message}`));
    return [];
  }
  const value = <T>(name: string, form: (name: string) => z.ZodType<T>): T | null => {
    const given = env[name];
    const parsed = given === undefined ? null : form(name).safeParse(given);
    if (parsed === null) faults.push(`CHANNELS_FILE names ${name}, which is not set`);
    else if (!parsed.success) faults.push(...parsed.error.issues.map(({ message }) => message));
    return parsed?.success ? parsed.data : null;
  };
  return parsed.data.map((entry) => {
    const { rate_per_second: ratePerSecond } = entry;
    if (entry.provider === "sandbox") return channelOf(entry.id, { provider: "sandbox" }, { ratePerSecond });
    const { webhook_secret_env: hook } = entry;
    const webhookSecrets = hook === undefined ? [] : (value(hook, (name) => secrets(name, entry.provider)) ?? []);
    const more = { webhookSecrets, ratePerSecond };
    if (entry.provider === "telegram") {
      const { api_root: apiRoot } = entry;
      const botToken = value(entry.bot_token_env, botTokenForm) ?? "";
      const settings = { provider: "telegram", botToken, ...(apiRoot !== undefined && { apiRoot }) } as const;
      return channelOf(entry.id, settings, more);
    }
    const { base_url: baseUrl, from, lookup_api_key_env: lookup } = entry;
    const settings = {
      provider: "resend",
      apiKey: value(entry.api_key_env, resendKey) ?? "",
      ...(lookup !== undefined && { lookupApiKey: value(lookup, resendKey) ?? "" }),
      ...(baseUrl !== undefined && { baseUrl }),
      ...(from !== undefined && { from }),
    } as const;
    return channelOf(entry.id, settings, more);
  });
}

function secretsOf(
  channels: readonly ChannelConfig[],
  adminKey: string | undefined,
  databaseUrl: string | undefined,
): string[] {
  const password = databaseUrl === undefined ? "" : new URL(databaseUrl).password;
  return [
    ...channels.flatMap(({ adapter, webhookSecrets }) => [...credentialsOf(adapter), ...webhookSecrets]),
    adminKey ?? "",
    password,
    decodeURIComponent(password),
  ].filter((secret) => secret !== "");
}
