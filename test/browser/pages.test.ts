import type { Page } from "playwright-core";
import { afterEach, beforeAll, describe, expect, test } from "vitest";
import { apply, receipt } from "../support/receipts.ts";
import { expectAccessible } from "./accessible.ts";
import { complaints, type Doubtful, picture, tenInDoubt } from "./desk.ts";
import { database, desk, useDesk } from "./rig.ts";

useDesk();
let doubtful: readonly Doubtful[];
let sent: string;
beforeAll(async () => {
  doubtful = await tenInDoubt(desk);
  sent = await desk.post({
    name: "welcome/1",
    channel: "email",
    to: "ada@example.com",
    message: { subject: "Welcome", text: "Hello", html: "<h1>Hello</h1><p>You are welcome.</p>" },
    metadata: { user: "42" },
    occurrence: { schedule: "daily", due_at: "2026-12-01T06:00:00Z" },
  });
  await apply(database.db, receipt({ channel: "email", eventId: "evt_unknown", providerMessageId: "nobody-knows-it" }));
  const admin = await desk.open("Setup");
  await admin.goto("/console/suppressions");
  await suppress(admin);
  await makeKey(admin);
});
afterEach(() => {
  expect(complaints()).toEqual([]);
});

async function suppress(page: Page) {
  await page.getByText("Suppress a recipient").click();
  const form = page.locator('form[action$="/add"]');
  await form.getByLabel("Channel").fill("email");
  await form.getByLabel("Recipient").fill("never@example.com");
  await form.getByLabel("Why").fill("asked us to stop");
  await form.getByRole("button", { name: "Suppress" }).click();
  await page.getByText("The recipient is suppressed from now on.").waitFor();
}

async function makeKey(page: Page) {
  await page.goto("/console/keys");
  await page.getByText("Make a key").click();
  await page.getByLabel("Name", { exact: true }).fill("shop");
  await page.getByLabel(/^Producer/).fill("shop");
  await page.getByLabel("deliveries:write").check();
  await page.getByRole("button", { name: "Make the key" }).click();
  await page.getByText("shown this once").waitFor();
}

const pages = (): readonly (readonly [name: string, path: string, heading: string])[] => [
  ["queue", "/console/attention", "Needs attention"],
  ["queue-filtered", "/console/attention?channel=email&reason=payload_mismatch&older_than=600", "Needs attention"],
  ["delivery-in-doubt", `/console/deliveries/${doubtful[6]?.id}`, "doubt/"],
  ["delivery-sent", `/console/deliveries/${sent}`, "welcome/1"],
  ["deliveries", "/console/deliveries", "Deliveries"],
  ["overview", "/console/overview", "Overview"],
  ["suppressions", "/console/suppressions", "Suppressions"],
  ["receipts", "/console/receipts", "Unmatched receipts"],
  ["keys", "/console/keys", "Producers and keys"],
  ["session", "/console/session", "Your session"],
  ["not-found", "/console/nowhere", "There is no such thing"],
];

async function confirmation(page: Page, action: string) {
  await page.goto("/console/attention");
  for (const box of await page.locator('.queue input[name="ids"]').all()) await box.check();
  await page.locator(".bar").getByRole("button", { name: action }).click();
  await page.getByRole("heading", { name: "10 deliveries" }).waitFor();
}

const LOOKS = [
  ["light", { colorScheme: "light" }],
  ["dark", { colorScheme: "dark" }],
  ["phone", { viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true, colorScheme: "dark" }],
] as const;

describe.each(LOOKS)("every page, %s", (look, options) => {
  test("is accessible, no wider than the screen, and without a complaint of the browser", async () => {
    const page = await desk.open("Ada", options);
    const check = async (name: string) => {
      await picture(page, `${name}-${look}`);
      await expectAccessible(page);
      const width = await page.locator("html").evaluate((html) => html.scrollWidth - html.clientWidth);
      expect(width, `${name} is wider than the screen`).toBe(0);
    };
    for (const [name, path, heading] of pages()) {
      await page.goto(path);
      await page.getByRole("heading", { level: 1, name: heading }).waitFor();
      for (const details of await page.locator("main details").all()) {
        if ((await details.getAttribute("open")) === null) await details.locator("summary").click();
      }
      await check(name);
    }
    await confirmation(page, "Resend, fresh key");
    await check("confirmation");
    const bare = await desk.open(null, options);
    await bare.goto("/console");
    await picture(bare, `sign-in-${look}`);
    await expectAccessible(bare);
    const ground = await page
      .locator("body")
      .evaluate((body) => body.ownerDocument.defaultView?.getComputedStyle(body).backgroundColor);
    expect(ground).toBe(look === "light" ? "rgb(255, 255, 255)" : "rgb(20, 23, 27)");
  });
});

describe("a delivery's page", () => {
  test("shows times in the viewer's zone, with the time in UTC at hand", async () => {
    const page = await desk.open("Ada", { timezoneId: "Asia/Kolkata" });
    await page.goto(`/console/deliveries/${sent}`);
    const time = page.locator('dt:text-is("Accepted") + dd time');
    const at = (await time.getAttribute("datetime")) ?? "";
    const local = new Intl.DateTimeFormat("en-GB", {
      ...{ dateStyle: "medium", timeStyle: "long", timeZone: "Asia/Kolkata" },
    }).format(Date.parse(at));
    expect(await time.locator(".absolute").textContent()).toBe(local);
    expect(await time.getAttribute("title")).toBe(`${at} (UTC)`);
  });

  test("copies an id to the clipboard", async () => {
    const page = await desk.open("Ada", { permissions: ["clipboard-read", "clipboard-write"] });
    await page.goto(`/console/deliveries/${sent}`);
    await page.getByRole("button", { name: "copy the id", exact: true }).click();
    await page.getByText("copied").waitFor();
    expect(await page.locator("body").evaluate("navigator.clipboard.readText()")).toBe(sent);
  });

  test("is found from anywhere by id, name, recipient and the provider's message id", async () => {
    const page = await desk.open("Ada");
    const { provider_message_id: messageId } = await desk.get<{ provider_message_id: string }>(
      `/v1/deliveries/${sent}`,
    );
    for (const what of [sent, "welcome/1", "ada@example.com", messageId]) {
      await page.goto("/console/overview");
      await page.keyboard.press("/");
      await page.keyboard.type(what);
      await page.keyboard.press("Enter");
      await page.waitForURL(`**/console/deliveries/${sent}`);
    }
  });

  test("follows what happens: decided elsewhere, it says so without a reload", async () => {
    const page = await desk.open("Ada");
    const other = await desk.open("Bob");
    const path = `/console/deliveries/${doubtful[8]?.id}`;
    await page.goto(path);
    await other.goto(path);
    await other.getByRole("link", { name: "Abandon" }).click();
    await other.getByLabel("Why (kept with your name)").fill("too late");
    await other.getByRole("button", { name: /^Abandon/ }).click();
    await page.getByText("A person abandoned it").waitFor();
    await page.getByText("Bob (key admin)").first().waitFor();
  });
});
