/** Makes the README's pictures of the console: `npm run screenshots`. Needs Chromium (`/usr/bin/chromium`, or CHROMIUM=…). */
import { chmod, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { type Desk, openDesk } from "../test/browser/desk.ts";
import { resendError } from "../test/fakes/resend.ts";
import type { Step } from "../test/fakes/step.ts";
import { telegramError } from "../test/fakes/telegram.ts";

const DOCS = join(import.meta.dirname, "../docs");
const HANG: Step = { do: "hang" };
const LOST: Step = { do: "reset" };

interface Played {
  readonly name: string;
  readonly to: string;
  readonly step: Step | null;
  readonly message: Readonly<Record<string, unknown>>;
}

const DELIVERIES: readonly Played[] = [
  {
    name: "order/1041/receipt",
    to: "mia@example.com",
    step: null,
    message: { subject: "Your receipt", text: "Thank you." },
  },
  { name: "login/8812/code", to: "5551000001", step: HANG, message: { text: "Your sign-in code is on its way." } },
  { name: "order/1042/shipped", to: "5551000002", step: LOST, message: { text: "Order 1042 has left our house." } },
  {
    ...{ name: "invoice/2026-12/77", to: "accounts@example.org" },
    step: resendError(409, "invalid_idempotent_request", "This key was used with another body"),
    message: { subject: "Invoice 77", text: "Please find the invoice below." },
  },
  {
    ...{ name: "alarm/db-3/2026-12-07", to: "-1005551234", step: telegramError(500, "Internal Server Error: restart") },
    message: { text: "db-3: replication is 40 s behind" },
  },
  { name: "order/1043/shipped", to: "5551000003", step: HANG, message: { text: "Order 1043 has left our house." } },
  {
    ...{ name: "digest/2026-12-07/ada", to: "ada@example.com", step: HANG },
    message: { subject: "Your digest", text: "Three things happened today.", html: "<h1>Your digest</h1>" },
  },
];

const data = await mkdtemp(join(tmpdir(), "ledger-screenshots-"));
// The embedded server runs as another user when this runs as root.
await chmod(data, 0o755);
const desk = await openDesk({ DATA_DIR: join(data, "data") });
try {
  await photograph(desk);
} finally {
  await desk.close();
  await rm(data, { recursive: true, force: true });
}

async function photograph({ open, post, get, resend, telegram }: Desk): Promise<void> {
  let digest = "";
  for (const { name, to, step, message } of DELIVERIES) {
    const channel = to.includes("@") ? "email" : "telegram";
    if (step) (channel === "email" ? resend : telegram).script(to, [step]);
    const id = await post({ name, channel, to, message });
    if (name.startsWith("digest/")) digest = id;
  }
  while ((await get<{ total: number }>("/v1/attention/summary")).total < 5) await pause(100);
  const page = await open("Ada", { viewport: { width: 1100, height: 760 }, deviceScaleFactor: 1 });
  await page.keyboard.press("j");
  await page.keyboard.press("x");
  await page.keyboard.press("j");
  await page.screenshot({ path: join(DOCS, "console-queue.png") });
  await page.goto(`/console/deliveries/${digest}`);
  await page.getByText("Attempt 2 is next").waitFor();
  await page.screenshot({ path: join(DOCS, "console-delivery.png") });
}
