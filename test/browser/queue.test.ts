import { sql } from "kysely";
import { beforeAll, expect, test } from "vitest";
import { manyInDoubt } from "../support/doubt.ts";
import { complaints, picture } from "./desk.ts";
import { database, desk, useDesk } from "./rig.ts";

const ITEMS = 5_000;

useDesk();
beforeAll(async () => {
  await manyInDoubt(database.db, ITEMS);
  await sql`analyze`.execute(database.db);
});

/** Milliseconds; the median of five. */
async function measured(what: string, one: () => Promise<unknown>): Promise<void> {
  const times: number[] = [];
  for (let n = 0; n < 5; n += 1) {
    const startedAt = performance.now();
    await one();
    times.push(performance.now() - startedAt);
  }
  const median = times.toSorted((a, b) => a - b)[2] ?? 0;
  process.stdout.write(`${ITEMS} items in the queue: ${what} ${median.toFixed(0)} ms\n`);
}

test("a queue of 5,000 items is worked like a short one: a page at a time, the oldest first, a thousand at once", async () => {
  const page = await desk.open("Ada");
  const paint = `new Promise((resolve) => {
    const observer = new PerformanceObserver((list) => resolve(list.getEntriesByName("first-contentful-paint")[0].startTime));
    observer.observe({ type: "paint", buffered: true });
  })`;
  const paints: number[] = [];
  await measured("the page is loaded after", async () => {
    await page.goto("/console/attention");
    paints.push(Number(await page.evaluate(paint)));
  });
  process.stdout.write(
    `${ITEMS} items in the queue: first paint ${paints.toSorted((a, b) => a - b)[2]?.toFixed(0)} ms\n`,
  );
  expect(await page.locator(".item").count()).toBe(50);
  expect(await page.title()).toContain("5000 need attention");
  await measured("a key moves the focus after", async () => {
    await page.keyboard.press("j");
    await page.locator(".item:focus").waitFor();
  });
  await measured("a confirmation for one item after", async () => {
    await page.goto("/console/attention");
    await page.keyboard.press("j");
    await page.keyboard.press("a");
    await page.getByRole("heading", { name: "Abandon: 1 delivery" }).waitFor();
  });
  await page.goto("/console/attention");
  await page.getByRole("link", { name: "Next page" }).click();
  await page.getByRole("link", { name: "First page" }).waitFor();
  await measured("a confirmation for the oldest thousand after", async () => {
    await page.goto("/console/attention");
    await page.getByLabel("the oldest 1,000 of this filter").check();
    await page.keyboard.press("a");
    await page.getByRole("heading", { name: "Abandon: 1,000 deliveries" }).waitFor();
  });
  await picture(page, "confirm-a-thousand");
  await page.keyboard.type("all of that outage");
  await page.keyboard.press("Enter");
  await page.getByText("1,000 items were abandoned.").waitFor();
  const { total } = await desk.get<{ total: number }>("/v1/attention/summary");
  expect(total).toBe(4_000);
  expect(complaints()).toEqual([]);
});
