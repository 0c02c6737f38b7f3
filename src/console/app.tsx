import { Hono, type MiddlewareHandler } from "hono";
import { bodyLimit } from "hono/body-limit";
import { except } from "hono/combine";
import { csrf } from "hono/csrf";
import { HTTPException } from "hono/http-exception";
import { secureHeaders } from "hono/secure-headers";
import type { Logger } from "pino";
import type { ApiEnv } from "../api/env.ts";
import { boundPatience } from "../api/patience.ts";
import { Problem } from "../api/problem.ts";
import type { Sessions } from "../api/sessions.ts";
import { serveAssets } from "./assets.ts";
import { showQueue } from "./attention.tsx";
import { createClient, Refused } from "./client.ts";
import { cancel, showDelivery, showRaw } from "./delivery.tsx";
import type { ConsoleEnv, Page } from "./env.ts";
import { readSent, requireToken } from "./form.ts";
import { confirmRevoke, makeKey, revokeKey, showKeys } from "./keys.tsx";
import { show, showBare } from "./layout.tsx";
import { showHtml } from "./message.tsx";
import { pause, resume, showOverview } from "./overview.tsx";
import { Notice } from "./parts.tsx";
import { showReceipts } from "./receipts.tsx";
import { addNote, assign, confirm, decide, findItem, snooze } from "./resolve.tsx";
import { search } from "./search.tsx";
import { requireSession, signInPages } from "./sign-in.tsx";
import { addSuppression, removeSuppression, showSuppressions } from "./suppressions.tsx";

/** A bulk decision names up to a thousand items. */
const MAX_FORM_BYTES = 262_144;

export interface ConsoleDeps {
  /** The console asks it, in this process. */
  readonly api: Hono<ApiEnv>;
  readonly sessions: Sessions;
  readonly log: Logger;
}

/** The operators' pages, under /console: rendered here, and without JavaScript just as complete. */
export function mountConsole({ api, sessions, log }: ConsoleDeps): void {
  const app = new Hono<ConsoleEnv>();
  app.onError((error, page) => showFault(page, error, log));
  app.use(except(FRAME, pageHeaders), noStore, boundPatience);
  app.use("/deliveries/:id/html", frameHeaders);
  app.use(csrf({ origin: (origin, page) => URL.canParse(origin) && new URL(origin).host === page.req.header("host") }));
  app.use(bodyLimit({ maxSize: MAX_FORM_BYTES, onError: tooLarge }), readSent);

  const { form, signIn, signOut, showSession } = signInPages(sessions);
  app.get("/sign-in", form).post("/sign-in", signIn);

  app.use(requireSession(sessions, createClient(api)), requireToken);
  app.get("/", (page) => page.redirect("/console/attention", 303));
  app.get("/session", showSession).post("/sign-out", signOut);
  app.get("/attention", showQueue).get("/attention/items/:id", findItem);
  app.get("/attention/resolve", confirm).post("/attention/resolve", confirm).post("/attention/resolutions", decide);
  app.post("/attention/assign", assign).post("/attention/snooze", snooze).post("/attention/notes", addNote);
  app.get("/deliveries", search).get("/deliveries/:id", showDelivery);
  app.post("/deliveries/:id/cancel", cancel);
  app.get("/deliveries/:id/raw", showRaw).get("/deliveries/:id/html", showHtml);
  app.get("/overview", showOverview).post("/overview/pause", pause).post("/overview/resume", resume);
  app.get("/suppressions", showSuppressions);
  app.post("/suppressions/add", addSuppression).post("/suppressions/remove", removeSuppression);
  app.get("/receipts", showReceipts);
  app.get("/keys", showKeys).get("/keys/:id/revoke", confirmRevoke);
  app.post("/keys/make", makeKey).post("/keys/revoke", revokeKey);
  app.all("*", () => {
    throw new Problem("not-found", "there is no such page in the console");
  });

  api.route("/console/assets", serveAssets());
  api.route("/console", app);
  api.get("/", (context) => context.redirect("/console", 302));
}

const FRAME = "/console/deliveries/:id/html";

/** Nothing from elsewhere, nothing inline, in nobody's frame. */
const pageHeaders = secureHeaders({
  contentSecurityPolicy: {
    defaultSrc: ["'none'"],
    scriptSrc: ["'self'"],
    styleSrc: ["'self'"],
    imgSrc: ["'self'", "data:"],
    connectSrc: ["'self'"],
    formAction: ["'self'"],
    frameSrc: ["'self'"],
    frameAncestors: ["'none'"],
    baseUri: ["'none'"],
  },
  referrerPolicy: "no-referrer",
  xFrameOptions: "DENY",
  strictTransportSecurity: false,
});

/** A message's HTML: no script, no form, no request to anybody. What it contains itself is shown, and that is all. */
const frameHeaders = secureHeaders({
  contentSecurityPolicy: {
    sandbox: [],
    defaultSrc: ["'none'"],
    styleSrc: ["'unsafe-inline'"],
    imgSrc: ["data:"],
    fontSrc: ["data:"],
    formAction: ["'none'"],
    baseUri: ["'none'"],
    frameAncestors: ["'self'"],
  },
  referrerPolicy: "no-referrer",
  xFrameOptions: "SAMEORIGIN",
  xDnsPrefetchControl: "off",
  strictTransportSecurity: false,
});

/** Pages hold recipients and messages: no cache keeps them. */
const noStore: MiddlewareHandler<ConsoleEnv> = async (page, next) => {
  await next();
  page.res.headers.set("cache-control", "no-store");
};

function tooLarge(): never {
  throw new Problem("body-too-large", `a form has at most ${MAX_FORM_BYTES} bytes`);
}

/** What went wrong, in the API's words; with the way back. */
function showFault(page: Page, error: Error, log: Logger) {
  const { status, title, detail } = faultOf(error);
  if (status >= 500 && !(error instanceof Refused)) {
    log.error({ event: "console.failed", request_id: page.get("requestId"), err: error }, "a page failed");
  }
  const contents = (
    <>
      <h1>{title}</h1>
      <Notice kind="error">{detail}</Notice>
      <p>
        <a href="/console">To the console</a>
      </p>
    </>
  );
  return page.get("session") ? show(page, title, contents, status as 400) : showBare(page, title, contents, status);
}

function faultOf(error: Error): { status: number; title: string; detail: string } {
  if (error instanceof Refused) return error.problem;
  if (error instanceof Problem) return error.body();
  if (error instanceof HTTPException && error.status < 500) {
    return { status: error.status, title: "Refused", detail: "the request does not come from a page of this console" };
  }
  return {
    status: 500,
    title: "Something went wrong here",
    detail: "It is in the log. What you asked for may or may not be done: look before you repeat it.",
  };
}
