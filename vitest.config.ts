import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    // A browser is not on every machine: npm run test:browser.
    exclude: ["test/browser/**"],
    globalSetup: ["test/support/setup.ts"],
    testTimeout: 30_000,
    hookTimeout: 60_000,
    maxWorkers: 2,
  },
});
