import { type AddressInfo, createServer, type Server } from "node:net";
import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { until } from "../support/pipeline.ts";
import { expectAccessible } from "./accessible.ts";
import { complaints, picture } from "./desk.ts";
import { desk, useDesk } from "./rig.ts";

useDesk();
/** Whoever connects to it has loaded something. */
let tracker: Server;
let connections = 0;
let remote: string;
beforeAll(async () => {
  tracker = createServer((socket) => {
    connections += 1;
    socket.destroy();
  });
  await new Promise<void>((resolve) => tracker.listen(0, "127.0.0.1", resolve));
  remote = `http://127.0.0.1:${(tracker.address() as AddressInfo).port}`;
});
afterAll(() => {
  tracker.close();
});
afterEach(() => {
  expect(connections, "connections to a server that a message names").toBe(0);
});

const SCRIPT = `<script>globalThis.owned = 1</script><img src=x onerror="globalThis.owned = 1">`;
const OVERRIDE = "\u202etxet desrever\u202c\u2066hidden\u2069";
const RTL = "مرحبا بالعالم — שלום עולם";

async function openWith(message: Record<string, unknown>, more: Record<string, unknown> = {}): Promise<Page> {
  const name = `hostile/${SCRIPT}/${Math.random()}`;
  const id = await desk.post({ name, channel: "email", to: "payload@example.com", message, ...more });
  const page = await desk.open("Ada");
  page.on("dialog", () => expect.fail("a dialog was opened"));
  await page.goto(`/console/deliveries/${id}`);
  return page;
}

const isOwned = (page: Page) =>
  Promise.all(page.frames().map((frame) => frame.evaluate("globalThis.owned ?? null").catch(() => null)));

describe("what others wrote", () => {
  test("is text: markup is shown and does nothing, on the queue, the list and the delivery's page", async () => {
    desk.resend.script("payload@example.com", [
      { do: "answer", status: 409, json: { name: "invalid_idempotent_request", message: SCRIPT } },
    ]);
    const page = await openWith({ subject: SCRIPT, text: SCRIPT }, { metadata: { note: SCRIPT } });
    await until(
      async () => (await desk.get<{ total: number }>("/v1/attention/summary")).total,
      (total) => total === 1,
    );
    for (const path of [
      page.url(),
      "/console/attention",
      "/console/deliveries",
      `/console/deliveries?q=${encodeURIComponent(SCRIPT)}`,
    ]) {
      await page.goto(path);
      await page.getByText("<script>").first().waitFor();
      expect((await isOwned(page)).filter(Boolean)).toEqual([]);
      expect(await page.locator("main script, main img").count()).toBe(0);
    }
    expect(complaints()).toEqual([]);
  });

  test("cannot reorder or hide: direction overrides and invisible characters are shown by their numbers; honest right-to-left text is left alone", async () => {
    const page = await openWith({ subject: OVERRIDE, text: `${RTL}\nzero\u200bwidth` });
    const message = page.locator("section", { has: page.locator("#message-title") });
    const shown = (await message.textContent()) ?? "";
    expect(shown).toContain("U+202E");
    expect(shown).toContain("U+200B");
    expect(shown).not.toMatch(/[\u202a-\u202e\u2066-\u2069\u200b]/);
    expect(shown).toContain(RTL);
    expect(await page.locator("pre.message").evaluate((pre) => pre.getAttribute("dir"))).toBe("auto");
    await expectAccessible(page);
    await picture(page, "hostile-directions");
    expect(complaints()).toEqual([]);
  });

  test("may be long: a subject of 100 kB and a text of 1 MB are cut, and the page says by how much", async () => {
    const page = await openWith({ subject: "s".repeat(100_000), text: `${"word ".repeat(200_000)}` });
    await page.getByText("characters more)").first().waitFor();
    expect((await page.content()).length).toBeLessThan(100_000);
    const width = await page.locator("html").evaluate((html) => html.scrollWidth - html.clientWidth);
    expect(width).toBe(0);
    expect(complaints()).toEqual([]);
  });
});

describe("a message's html", () => {
  const html = () => `<!doctype html>
<link rel="stylesheet" href="${remote}/a.css"><link rel="preconnect" href="${remote}"><link rel="preload" as="image" href="${remote}/p.png">
<link rel="prefetch" href="${remote}/f"><link rel="dns-prefetch" href="${remote}"><link rel="icon" href="${remote}/i.ico">
<link rel="modulepreload" href="${remote}/m.js"><link rel="prerender" href="${remote}/r"><link rel="manifest" href="${remote}/m.json">
<meta http-equiv="refresh" content="0; url=${remote}/refresh"><base href="${remote}/">
<style>@import url("${remote}/i.css"); @font-face { font-family: f; src: url("${remote}/f.woff") }
body { background: url("${remote}/b.png"); font-family: f; cursor: url("${remote}/c.cur"), auto }
p::after { content: url("${remote}/after.png") }</style>
<h1>Seen</h1><p style="background-image: url('${remote}/s.png')">text</p>
<img src="${remote}/x.png" srcset="${remote}/y.png 2x"><picture><source srcset="${remote}/z.png"><img src="z.png"></picture>
<video src="${remote}/v.mp4" poster="${remote}/v.png" autoplay></video><audio src="${remote}/a.mp3" autoplay></audio>
<iframe src="${remote}/frame"></iframe><object data="${remote}/o"></object><embed src="${remote}/e">
<svg><image href="${remote}/svg.png" /><use href="${remote}/u.svg#a" /></svg><input type="image" src="${remote}/in.png">
<table background="${remote}/t.png"><tr><td>cell</td></tr></table><body background="${remote}/bb.png">
<script src="${remote}/s.js"></script><script>globalThis.owned = 1; parent.owned = 1; fetch("${remote}/fetch")</script>
<script type="speculationrules">{"prefetch":[{"source":"list","urls":["${remote}/spec"]}]}</script>
<form action="${remote}/form" method="post"><button id="go">send</button></form><a id="leave" href="${remote}/link" ping="${remote}/ping" target="_top">leave</a><a id="follow" href="${remote}/follow">follow</a>`;

  test("is seen, runs nothing, and loads nothing from anywhere, whatever it asks for", async () => {
    const page = await openWith({ subject: "s", text: "t", html: html() });
    await page.getByText("HTML, without what").click();
    const frame = page.frameLocator("iframe");
    await frame.getByRole("heading", { name: "Seen" }).waitFor();
    const url = page.url();
    await frame
      .locator("#go")
      .click({ timeout: 2_000 })
      .catch(() => {});
    await frame
      .locator("#leave")
      .click({ timeout: 2_000 })
      .catch(() => {});
    await frame.locator("#follow").hover();
    await frame
      .locator("#follow")
      .click({ timeout: 2_000 })
      .catch(() => {});
    await page.waitForTimeout(1_500);
    expect((await isOwned(page)).filter(Boolean)).toEqual([]);
    expect(page.url()).toBe(url);
    await picture(page, "hostile-html");
    // What the policy forbade is told here: that is the point.
    complaints();
  });

  test("is not shown in a window of its own", async () => {
    const page = await openWith({ subject: "s", text: "t", html: html() });
    await page.goto(`${page.url()}/html`);
    await page.waitForTimeout(1_500);
    expect(page.url()).not.toContain("/html");
    expect(complaints()).toEqual([]);
  });
});
