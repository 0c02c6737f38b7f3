import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import type { Hono } from "hono";
import { stringify } from "yaml";
import type { ApiEnv } from "./env.ts";
import { openapiDocument } from "./openapi.ts";
import { PROBLEMS, Problem, type ProblemType } from "./problem.ts";

const ASSETS: Readonly<Record<string, string>> = {
  "swagger-ui.css": "text/css; charset=utf-8",
  "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
};
const folder = dirname(createRequire(import.meta.url).resolve("swagger-ui-dist/package.json"));

const PAGE = `<!doctype html>
<html lang="en">
<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Delivery ledger: API</title>
<link rel="stylesheet" href="/docs/swagger-ui.css">
<div id="reference"></div>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>
</html>
`;
const START = `SwaggerUIBundle({ url: "/openapi.json", dom_id: "#reference", deepLinking: true, validatorUrl: null });\n`;
const CSP =
  "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; " +
  "frame-ancestors 'none'; base-uri 'none'";

const PATHS = ["/openapi.json", "/openapi.yaml", "/docs", "/docs/:asset", "/problems/:type"];

/** The contract and a reference to browse, all from our own origin. */
export function mountDocs(app: Hono<ApiEnv>): void {
  const document = openapiDocument();
  const yaml = stringify(document, { lineWidth: 120 });
  app.get("/openapi.json", (context) => context.json(document as never));
  app.get("/openapi.yaml", (context) => context.body(yaml, 200, { "content-type": "application/yaml; charset=utf-8" }));
  app.get("/docs", (context) => context.html(PAGE, 200, { "content-security-policy": CSP }));
  app.get("/docs/start.js", (context) =>
    context.body(START, 200, { "content-type": "text/javascript; charset=utf-8" }),
  );
  app.get("/docs/:asset", async (context) => {
    const asset = context.req.param("asset");
    const type = Object.hasOwn(ASSETS, asset) ? ASSETS[asset] : undefined;
    if (type === undefined) throw new Problem("not-found", "there is no such page");
    const bytes = new Uint8Array(await readFile(join(folder, asset)));
    return context.body(bytes, 200, { "content-type": type, "cache-control": "public, max-age=86400" });
  });
  app.get("/problems/:type", (context) => {
    const type = context.req.param("type");
    if (!Object.hasOwn(PROBLEMS, type)) throw new Problem("not-found", "there is no such problem");
    return context.json({ type: `/problems/${type}`, ...PROBLEMS[type as ProblemType] });
  });
  for (const path of PATHS) {
    app.all(path, () => {
      throw new Problem("method-not-allowed", "allowed here: GET", { headers: { allow: "GET" } });
    });
  }
}
