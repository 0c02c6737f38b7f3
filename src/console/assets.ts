import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { Hono } from "hono";

const own = (name: string): Buffer => readFileSync(new URL(`./assets/${name}`, import.meta.url));
const htmx = (): Buffer => readFileSync(createRequire(import.meta.url).resolve("htmx.org/dist/htmx.min.js"));

const FILES = [
  { as: "console.css", type: "text/css; charset=utf-8", body: own("console.css") },
  { as: "console.js", type: "text/javascript; charset=utf-8", body: own("console.js") },
  { as: "htmx.js", type: "text/javascript; charset=utf-8", body: htmx() },
] as const;

const digestOf = (body: Buffer): string => createHash("sha256").update(body).digest("base64url").slice(0, 12);
const DIGESTS = new Map<string, string>(FILES.map(({ as, body }) => [as, digestOf(body)]));

/** The address changes with the contents: what a browser has kept is never stale. */
const addressOf = (as: string): string => `/console/assets/${DIGESTS.get(as)}/${as}`;

export const ASSETS = {
  css: addressOf("console.css"),
  script: addressOf("console.js"),
  htmx: addressOf("htmx.js"),
} as const;

/** Scripts and styles, all from our own origin. They hold nothing that is secret. */
export function serveAssets(): Hono {
  const app = new Hono();
  for (const { as, type, body } of FILES) {
    app.get(`/:digest/${as}`, (context) => {
      // While replicas of two versions run, one may be asked for the other's file.
      const isOurs = context.req.param("digest") === DIGESTS.get(as);
      const kept = isOurs ? "public, max-age=31536000, immutable" : "no-store";
      return context.body(new Uint8Array(body), 200, { "content-type": type, "cache-control": kept });
    });
  }
  return app;
}
