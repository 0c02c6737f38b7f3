import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { complaints, picture, signIn, tenInDoubt } from "./desk.ts";
import { desk, useDesk } from "./rig.ts";

useDesk();

const button = (page: Page, name: string | RegExp) => page.getByRole("button", { name });
const said = (page: Page, text: string) => page.getByText(text).first().waitFor();

test("without JavaScript every action can be done", async () => {
  await tenInDoubt(desk);
  const page = await desk.open("Ada", { javaScriptEnabled: false });
  await picture(page, "queue-without-script");
  const row = (n: number) => page.locator(".queue .item").nth(n);

  // One item, from its row.
  await row(0).getByRole("link", { name: "Mark as sent" }).click();
  await page.getByLabel("Why (kept with your name)").fill("he has it");
  await button(page, /^Mark as sent/).click();
  await said(page, "1 item was marked as sent.");

  // Several, which may be sent twice.
  for (const n of [0, 1]) await row(n).getByRole("checkbox").check();
  await page.locator(".bar").getByRole("button", { name: "Resend, fresh key" }).click();
  await page.getByLabel("Why (kept with your name)").fill("nothing came");
  await page.getByLabel("2 recipients may get the message again").check();
  await button(page, /^Resend, fresh key/).click();
  await said(page, "2 items were put back to be sent again under a fresh key;");

  // Taken on, put off, seen, brought back, noted.
  await row(0).getByRole("checkbox").check();
  await button(page, "Assign to me").click();
  await said(page, "1 item was assigned to you.");
  await row(0).getByRole("checkbox").check();
  await button(page, "Put off 1 h").click();
  await said(page, "1 item was put off.");
  await page.getByText("Filters").click();
  await page.getByLabel("also those put off").check();
  await button(page, "Filter").click();
  await page.getByText("put off until").waitFor();
  await page.locator(".item", { hasText: "put off until" }).getByRole("heading").getByRole("link").click();
  await button(page, "Back into the queue").click();
  await said(page, "1 item was put back into the queue.");
  await page.getByLabel("Note for the others").fill("asked the recipient");
  await button(page, "Add note").click();
  await said(page, "asked the recipient");

  // The switch of a channel.
  await page.getByRole("link", { name: "Overview" }).click();
  const telegram = page.locator(".channel", { hasText: "telegram" });
  await telegram.getByText("Pause this channel").click();
  await telegram.getByLabel("Why").fill("the bot misbehaves");
  await button(page, "Pause telegram").click();
  await said(page, "by Ada (key admin): the bot misbehaves");
  await telegram.getByText("Resume this channel").click();
  await button(page, "Resume telegram").click();
  expect(await page.getByText("the bot misbehaves").count()).toBe(0);

  // Suppressions.
  await page.getByRole("link", { name: "Suppressions" }).click();
  await page.getByText("Suppress a recipient").click();
  const form = page.locator('form[action$="/add"]');
  await form.getByLabel("Channel").fill("email");
  await form.getByLabel("Recipient").fill("not an address");
  await form.getByLabel("Why").fill("wrote to us");
  await button(page, "Suppress").click();
  await page.getByRole("alert").waitFor();
  expect(await form.getByLabel("Recipient").inputValue()).toBe("not an address");
  await form.getByLabel("Recipient").fill("never@example.com");
  await button(page, "Suppress").click();
  await said(page, "The recipient is suppressed from now on.");
  await page.getByLabel("why never@example.com may be written to again").fill("wrote again");
  await button(page, "Remove").click();
  await said(page, "The channel may write to the recipient again.");

  // A key is made, used, revoked: it ends the session that it opened.
  await page.getByRole("link", { name: "Producers and keys" }).click();
  await page.getByText("Make a key").click();
  await page.getByLabel("Name", { exact: true }).fill("night shift");
  for (const scope of ["deliveries:read", "attention:read"]) await page.getByLabel(scope).check();
  await button(page, "Make the key").click();
  const key = (await page.locator(".notice code").textContent()) ?? "";
  expect(key).toMatch(/^dl_/);
  await page.reload();
  expect(await page.content()).not.toContain(key);
  await said(page, "There is a key of this name already.");
  const night = await desk.open(null, { javaScriptEnabled: false });
  await signIn(night, "Grace", key);
  expect(await night.getByRole("link", { name: "Producers and keys" }).count()).toBe(0);
  expect(await night.getByRole("button", { name: "Mark as sent" }).count()).toBe(0);
  await page.goto("/console/keys");
  await page.getByRole("link", { name: "Revoke" }).click();
  await button(page, "Revoke it").click();
  await said(page, "The key is refused from now on.");
  await night.reload();
  await night.getByRole("heading", { name: "Delivery ledger" }).waitFor();

  await page.getByRole("link", { name: "Ada" }).click();
  await button(page, "Sign out").first().click();
  await page.goto("/console/attention");
  await page.getByLabel("API key").waitFor();
  expect(complaints()).toEqual([]);
});
