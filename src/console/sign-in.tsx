import { getConnInfo } from "@hono/node-server/conninfo";
import type { MiddlewareHandler } from "hono";
import { deleteCookie, getCookie, setCookie } from "hono/cookie";
import ipaddr from "ipaddr.js";
import { RateLimiterMemory, RateLimiterRes } from "rate-limiter-flexible";
import { Problem } from "../api/problem.ts";
import type { Session, Sessions } from "../api/sessions.ts";
import type { Ask } from "./client.ts";
import { type ConsoleEnv, may, type Page, type Scope } from "./env.ts";
import { isRead, isSecure } from "./form.ts";
import { Form, show, showBare } from "./layout.tsx";
import { address, Facts, Notice, Text } from "./parts.tsx";

const COOKIE = "ledger_session";
const COOKIE_HOURS = 12;
export const SIGN_IN = "/console/sign-in";
const HOME = "/console/attention";

/** Without these there is nothing to triage. */
const NEEDED: readonly Scope[] = ["attention:read", "deliveries:read"];

/** Failed sign-ins a minute, from one caller; and over one connection's other end, which names the caller if it is a proxy. */
const OF_CALLER = { points: 10, duration: 60 };
const OF_PEER = { points: 60, duration: 60 };

/** Where to go after signing in: a page of ours, or home. */
export function safeTarget(to: string): string {
  if (!to.startsWith("/console") || /[\\\p{Cc}]/u.test(to) || !URL.canParse(to, "http://ledger.internal")) return HOME;
  const url = new URL(to, "http://ledger.internal");
  const isPage = url.origin === "http://ledger.internal" && url.pathname.startsWith("/console/");
  return isPage && !url.pathname.startsWith(SIGN_IN) ? `${url.pathname}${url.search}` : HOME;
}

interface From {
  readonly caller: string;
  readonly peer: string;
}

/** Behind a proxy of ours the last hop it names is the caller. */
function fromOf(page: Page): From {
  let peer = "unknown";
  try {
    peer = getConnInfo(page).remote.address ?? peer;
  } catch {
    // Asked within the process: there is no connection.
  }
  const forwarded = page.req.header("x-forwarded-for")?.split(",").at(-1)?.trim();
  if (!forwarded || !ipaddr.isValid(forwarded)) return { caller: peer, peer };
  const isProxy = !ipaddr.isValid(peer) || ipaddr.process(peer).range() !== "unicast";
  return { caller: isProxy ? ipaddr.process(forwarded).toNormalizedString() : peer, peer };
}

/** Every page but the sign-in: who is it? Others are sent to sign in, and come back to where they wanted to be. */
export function requireSession(sessions: Sessions, askAs: (session: Session) => Ask): MiddlewareHandler<ConsoleEnv> {
  return async (page, next) => {
    const token = getCookie(page, COOKIE);
    const refreshesItself = page.req.header("hx-request") === "true";
    const session = token === undefined ? null : await sessions.find(token, !refreshesItself);
    if (!session) return await askToSignIn(page, token);
    page.set("session", session);
    page.set("principal", session.principal);
    page.set("ask", askAs(session));
    return await next();
  };
}

function askToSignIn(page: Page, token: string | undefined): Response | Promise<Response> {
  const url = new URL(page.req.url);
  const here = `${url.pathname}${url.search}`;
  const to = address(SIGN_IN, isRead(page) ? { to: here, ...(token && { ended: "1" }) } : { lost: "1" });
  if (page.req.header("hx-request") === "true") return page.body(null, 200, { "hx-redirect": to });
  // A strict cookie does not come along from another site's link: one step from a page of ours, and it does.
  if (isRead(page) && token === undefined && page.req.header("sec-fetch-site") === "cross-site") {
    return showBare(
      page,
      "One moment",
      <>
        <meta http-equiv="refresh" content={`0; url=${here}`} />
        <p>
          <a href={here}>Go on to the console</a>
        </p>
      </>,
    );
  }
  return page.redirect(to, 303);
}

const ENDINGS = [
  { name: "lost", words: "You are signed out, and nothing was done. Sign in and do it again." },
  { name: "ended", words: "Your session has ended: by its time, by signing out, or because its key was revoked." },
] as const;

export function signInPages(sessions: Sessions) {
  const ofCaller = new RateLimiterMemory(OF_CALLER);
  const ofPeer = new RateLimiterMemory(OF_PEER);

  const form = (page: Page) =>
    showSignIn(page, {
      to: safeTarget(page.get("sent").one("to")),
      fault: ENDINGS.find(({ name }) => page.get("sent").one(name))?.words ?? null,
    });

  async function signIn(page: Page): Promise<Response> {
    const sent = page.get("sent");
    const key = sent.one("key");
    const wanted = { to: safeTarget(sent.one("to")), operator: sent.one("operator") };
    const { caller, peer } = fromOf(page);
    const fault = faultOf(key, wanted.operator);
    if (fault) return showSignIn(page, { ...wanted, fault }, 422);
    try {
      await ofCaller.consume(caller);
      await ofPeer.consume(peer);
    } catch (limit) {
      if (!(limit instanceof RateLimiterRes)) throw limit;
      const seconds = Math.ceil(limit.msBeforeNext / 1000);
      page.header("retry-after", String(seconds));
      return showSignIn(page, { ...wanted, fault: `Too many failed attempts: wait ${seconds} seconds.` }, 429);
    }
    try {
      const session = await sessions.signIn(key, wanted.operator, NEEDED);
      await Promise.all([ofCaller.reward(caller), ofPeer.reward(peer)]);
      // Who signs in anew leaves no session behind.
      await sessions.signOut({ token: getCookie(page, COOKIE) ?? "" });
      setCookie(page, COOKIE, session.token, {
        ...{ path: "/console", httpOnly: true, sameSite: "Strict", secure: isSecure(page) },
        maxAge: COOKIE_HOURS * 3600,
      });
      page.set("principal", session.principal);
      return page.redirect(wanted.to, 303);
    } catch (error) {
      if (!(error instanceof Problem) || error.status >= 500) throw error;
      return showSignIn(
        page,
        { ...wanted, fault: `${error.message.replace(/^./, (first) => first.toUpperCase())}.` },
        401,
      );
    }
  }

  async function signOut(page: Page): Promise<Response> {
    const session = page.get("session");
    await (page.get("sent").one("everywhere") ? sessions.signOutEverywhere(session) : sessions.signOut(session));
    deleteCookie(page, COOKIE, { path: "/console" });
    return page.redirect(SIGN_IN, 303);
  }

  return { form, signIn, signOut, showSession };
}

const LONGEST_NAME = 60;

function faultOf(key: string, operator: string): string | null {
  if (operator === "") return "Give your name: it is kept with what you decide.";
  if (operator.length > LONGEST_NAME) return `A name has at most ${LONGEST_NAME} characters.`;
  if (/[\p{C}\ufffd]/u.test(operator)) return "A name is printable text.";
  if (/^(me|none|nobody)$/i.test(operator)) return "Give your own name: this one stands for somebody else.";
  if (!/^[\x21-\x7e]{1,1024}$/.test(key)) return "Give an API key: printable, without spaces.";
  return null;
}

interface SignIn {
  readonly to: string;
  readonly operator?: string;
  readonly fault: string | null;
}

function showSignIn(page: Page, { to, operator = "", fault }: SignIn, status = 200) {
  return showBare(
    page,
    "Sign in",
    <>
      <h1>Delivery ledger</h1>
      {fault && <Notice kind="error">{fault}</Notice>}
      <form method="post" action={SIGN_IN} class="stacked">
        <input type="hidden" name="to" value={to} />
        <label>
          <span>Your name</span>
          <input
            name="operator"
            value={operator}
            autocomplete="username"
            required
            maxlength={LONGEST_NAME}
            autofocus={operator === ""}
          />
        </label>
        <label>
          <span>API key</span>
          <input
            name="key"
            type="password"
            autocomplete="current-password"
            required
            maxlength={1024}
            autofocus={operator !== ""}
          />
        </label>
        <button type="submit" class="primary">
          Sign in
        </button>
      </form>
      <p class="quiet">
        The key needs the scopes {NEEDED.join(" and ")}; what more you can see and do follows from its other scopes.
        Your name is kept with every decision.
      </p>
    </>,
    status,
  );
}

function showSession(page: Page) {
  const session = page.get("session");
  const { principal } = session;
  return show(
    page,
    "Your session",
    <>
      <h1>Your session</h1>
      <Facts
        rows={[
          ["Name", <Text value={session.operator} />],
          ["Decisions are signed", <Text value={principal.keyName} />],
          ["Sees", principal.seesAll ? "every producer's deliveries" : `the deliveries of ${principal.producer}`],
          ["Scopes", principal.scopes.join(", ")],
          ["May decide", may(session, "attention:write") ? "yes" : "no: the key lacks attention:write"],
          ["Ends", `after an hour without use, ${COOKIE_HOURS} hours after signing in, or when the key is revoked`],
        ]}
      />
      <Form session={session} action="/console/sign-out" class="buttons">
        <button type="submit" class="primary">
          Sign out
        </button>
        <button type="submit" name="everywhere" value="1">
          Sign out everybody who uses this key
        </button>
      </Form>
    </>,
  );
}
