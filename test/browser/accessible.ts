import axe from "axe-core";
import type { Page } from "playwright-core";
import { expect } from "vitest";

/** The page breaks no rule of accessibility (axe: WCAG 2.2 A and AA, and good practice). */
export async function expectAccessible(page: Page): Promise<void> {
  await page.evaluate(axe.source);
  const { violations } = (await page.evaluate("axe.run()")) as axe.AxeResults;
  const told = violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(" | ")}`);
  expect(told, page.url()).toEqual([]);
}
