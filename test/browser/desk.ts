import { mkdir } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Browser, type BrowserContextOptions, chromium, type Page } from "playwright-core";
import type { Fake } from "../fakes/desk.ts";
import { openFakeResend, resendError } from "../fakes/resend.ts";
import type { Step } from "../fakes/step.ts";
import { openFakeTelegram, telegramError } from "../fakes/telegram.ts";
import { ADMIN_KEY, api, type Service, startService } from "../proof/service.ts";
import { until } from "../support/pipeline.ts";

/** CHROMIUM: the browser's executable; Debian's by default. */
const EXECUTABLE = process.env["CHROMIUM"] ?? "/usr/bin/chromium";
/** Where pictures of what was seen are left. */
const SCREENSHOTS = process.env["SCREENSHOTS_DIR"] ?? join(tmpdir(), "delivery-ledger-screenshots");

/** The service as a process, against the fakes, with a browser before it. */
export interface Desk {
  readonly url: string;
  readonly resend: Fake;
  readonly telegram: Fake;
  /** A tab of a browser of its own (its own cookies), signed in as `operator` unless that is null. */
  open(operator: string | null, options?: BrowserContextOptions): Promise<Page>;
  post(delivery: Readonly<Record<string, unknown>>): Promise<string>;
  get<T>(path: string): Promise<T>;
  close(): Promise<void>;
}

/** On the database that `environment` names, or else on an embedded one of its own. */
export async function openDesk(environment: Readonly<Record<string, string>> = {}): Promise<Desk> {
  const [resend, telegram] = await Promise.all([openFakeResend(), openFakeTelegram()]);
  const service = await startService({ ...settings(resend, telegram), ...environment });
  const browser = await launch();
  return {
    ...{ url: service.url, resend, telegram },
    open: (operator, options = {}) => openTab(browser, service, operator, options),
    async post(delivery) {
      const { status, body } = await api<{ id: string }>(service.url, "POST", "/v1/deliveries", delivery);
      if (status !== 202) throw new Error(`${status} ${JSON.stringify(body)}`);
      return body.id;
    },
    get: async <T>(path: string) => (await api<T>(service.url, "GET", path)).body,
    async close() {
      await browser.close();
      service.child.kill("SIGTERM");
      await service.ended();
      await Promise.all([resend.close(), telegram.close()]);
    },
  };
}

const settings = (resend: Fake, telegram: Fake) => ({
  ...{ RESEND_API_KEY: "re_browser_0123456789", RESEND_BASE_URL: resend.url, EMAIL_FROM: "Shop <shop@example.com>" },
  ...{ TELEGRAM_BOT_TOKEN: "123456:browser-token", TELEGRAM_API_ROOT: telegram.url },
  ...{ RESEND_RATE_PER_SECOND: "off", TELEGRAM_RATE_PER_SECOND: "off", SANDBOX: "on" },
  ...{ PROVIDER_TIMEOUT_MS: "400", POLL_INTERVAL_MS: "50", SWEEP_INTERVAL_MS: "200" },
});

/** Chromium keeps to itself: none of its own connections. */
const launch = (): Promise<Browser> =>
  chromium.launch({
    executablePath: EXECUTABLE,
    args: [
      ...["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"],
      ...["--disable-background-networking", "--disable-component-update"],
    ],
  });

async function openTab(browser: Browser, service: Service, operator: string | null, options: BrowserContextOptions) {
  const context = await browser.newContext({ baseURL: service.url, locale: "en-GB", timezoneId: "UTC", ...options });
  context.setDefaultTimeout(10_000);
  const page = await context.newPage();
  page.on("pageerror", (error) => void errors.push(String(error)));
  page.on("console", (message) => {
    if (message.type() === "error" && !/the server responded with a status of 4\d\d/.test(message.text()))
      errors.push(message.text());
  });
  if (operator !== null) await signIn(page, operator);
  return page;
}

const errors: string[] = [];
/** What browsers complained of since it was last asked: faults in scripts, what a policy forbade. */
export const complaints = (): string[] => errors.splice(0);

export async function signIn(page: Page, operator: string, key = ADMIN_KEY): Promise<void> {
  await page.goto("/console");
  await page.getByLabel("Your name").fill(operator);
  await page.getByLabel("API key").fill(key);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "Needs attention" }).waitFor();
}

export async function picture(page: Page, name: string): Promise<void> {
  await mkdir(SCREENSHOTS, { recursive: true });
  await page.screenshot({ path: join(SCREENSHOTS, `${name}.png`), fullPage: true });
}

const CONFLICT = resendError(409, "invalid_idempotent_request");
const HANG: Step = { do: "hang" };
/** Ten sends that end in doubt, of five kinds, over both channels; those with an effect were received. */
const DOUBTFUL: readonly (readonly [channel: "email" | "telegram", step: Step])[] = [
  ["telegram", HANG],
  ["telegram", { ...HANG, effect: true }],
  ["telegram", { do: "reset" }],
  ["telegram", { do: "reset", effect: true }],
  ["telegram", telegramError(500, "Internal Server Error: restart")],
  ["telegram", { ...telegramError(500, "Internal Server Error"), effect: true } as Step],
  ["email", CONFLICT],
  ["email", { ...CONFLICT, effect: true } as Step],
  ["email", CONFLICT],
  ["email", CONFLICT],
];

export interface Doubtful {
  readonly id: string;
  readonly to: string;
  /** Whether the recipient has it: what an operator would find out. */
  readonly received: boolean;
}

/** Sends ten deliveries that end in doubt, and waits until they are in the queue, in this order. */
export async function tenInDoubt(desk: Desk): Promise<readonly Doubtful[]> {
  const made: Doubtful[] = [];
  // One that is answered closes the breaker's count: ten failing calls in a row would hold the channel.
  await desk.post({ name: `fine/${Math.random()}`, channel: "telegram", to: "4000000000", message: { text: "Fine" } });
  const before = (await desk.get<{ total: number }>("/v1/attention/summary")).total;
  for (const [n, [channel, step]] of DOUBTFUL.entries()) {
    const unique = made.length + Math.floor(Math.random() * 1e9);
    const to = channel === "email" ? `customer${unique}@example.com` : String(5_000_000_000 + unique);
    (channel === "email" ? desk.resend : desk.telegram).script(to, [step]);
    const message = channel === "email" ? { subject: `Invoice ${n}`, text: "See above." } : { text: `Code ${n}` };
    const id = await desk.post({ name: `doubt/${unique}`, channel, to, message });
    await until(
      async () => (await desk.get<{ total: number }>("/v1/attention/summary")).total,
      (total) => total === before + n + 1,
    );
    made.push({ id, to, received: "effect" in step && step.effect === true });
  }
  return made;
}
