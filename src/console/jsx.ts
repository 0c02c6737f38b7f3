import { readFileSync } from "node:fs";
import { registerHooks } from "node:module";
import { fileURLToPath } from "node:url";
import { transform } from "sucrase";

/**
 * Lets Node load `.tsx`: it takes the types out of `.ts` by itself, but knows no JSX. There is no build step, and lines keep
 * their numbers. Import it before the first import() of a page.
 */
registerHooks({
  load(url, context, nextLoad) {
    if (!url.endsWith(".tsx")) return nextLoad(url, context);
    const filePath = fileURLToPath(url);
    const { code } = transform(readFileSync(filePath, "utf8"), {
      ...{ filePath, transforms: ["typescript", "jsx"], production: true },
      ...{ jsxRuntime: "automatic", jsxImportSource: "hono/jsx" },
      ...{ keepUnusedImports: true, disableESTransforms: true },
    });
    return { format: "module", source: code, shortCircuit: true };
  },
});
