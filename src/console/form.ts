import type { MiddlewareHandler } from "hono";
import { Problem } from "../api/problem.ts";
import type { ConsoleEnv, Page, Sent } from "./env.ts";

const sentOf = (values: (name: string) => readonly string[]): Sent => ({
  one: (name) => values(name)[0]?.trim() ?? "",
  many: (name) => values(name).map((value) => value.trim()),
});

/** Reads what was sent, once. */
export const readSent: MiddlewareHandler<ConsoleEnv> = async (page, next) => {
  page.set("sent", page.req.method === "POST" ? await readForm(page) : sentOf((name) => page.req.queries(name) ?? []));
  await next();
};

async function readForm(page: Page): Promise<Sent> {
  const form = await page.req.parseBody({ all: true }).catch(() => {
    throw new Problem("invalid-request", "the form could not be read");
  });
  return sentOf((name) => [form[name] ?? []].flat().filter((value) => typeof value === "string"));
}

/** Whether the operator's browser speaks TLS, to us or to a proxy of ours. */
export const isSecure = (page: Page): boolean =>
  new URL(page.req.url).protocol === "https:" ||
  page.req.header("x-forwarded-proto")?.split(",")[0]?.trim() === "https";

/** Whether the request only looks. */
export const isRead = (page: Page): boolean => page.req.method === "GET" || page.req.method === "HEAD";

/** A form of ours carries the session's token, which no other origin can read. */
export const requireToken: MiddlewareHandler<ConsoleEnv> = async (page, next) => {
  if (!isRead(page) && page.get("sent").one("csrf") !== page.get("session").csrf) {
    throw new Problem(
      "forbidden",
      "this form is not one of your session: go back, load the page again, and nothing was done",
    );
  }
  await next();
};
