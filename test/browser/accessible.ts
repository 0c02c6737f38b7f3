import { createRequire } from "node:module";
import type { Page } from "playwright-core";
import { expect } from "vitest";

const AXE = createRequire(import.meta.url)("axe-core") as { source: string };

/** The page breaks no rule of accessibility (axe, WCAG 2.2 AA and good practice). */
export async function expectAccessible(page: Page): Promise<void> {
  await page.evaluate(AXE.source);
  const violations = await page.evaluate(async () => {
    const { axe } = globalThis as unknown as { axe: { run(): Promise<{ violations: Violation[] }> } };
    return (await axe.run()).violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(" | ")}`);
  });
  expect(violations, page.url()).toEqual([]);
}

interface Violation {
  readonly id: string;
  readonly nodes: readonly { readonly html: string }[];
}
