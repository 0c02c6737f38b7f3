import { html } from "hono/html";
import type { Child } from "hono/jsx";
import type { Session } from "../api/sessions.ts";
import { ASSETS } from "./assets.ts";
import { may, type Page, type Scope } from "./env.ts";

const PAGES: readonly { readonly path: string; readonly name: string; readonly scope: Scope }[] = [
  { path: "/console/attention", name: "Needs attention", scope: "attention:read" },
  { path: "/console/overview", name: "Overview", scope: "channels:read" },
  { path: "/console/deliveries", name: "Deliveries", scope: "deliveries:read" },
  { path: "/console/suppressions", name: "Suppressions", scope: "suppressions:read" },
  { path: "/console/receipts", name: "Unmatched receipts", scope: "receipts:read" },
  { path: "/console/keys", name: "Producers and keys", scope: "keys:write" },
];

/** htmx runs nothing that it finds in a page, and asks nobody but us. */
const HTMX = { allowEval: false, includeIndicatorStyles: false, selfRequestsOnly: true, historyCacheSize: 0 };

function Document({ title, children }: { title: string; children: Child }) {
  return (
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <meta name="color-scheme" content="light dark" />
        <meta name="htmx-config" content={JSON.stringify(HTMX)} />
        <title>{title} · Delivery ledger</title>
        <link rel="icon" href="data:," />
        <link rel="stylesheet" href={ASSETS.css} />
        <script src={ASSETS.htmx} defer></script>
        <script src={ASSETS.script} defer></script>
      </head>
      <body>{children}</body>
    </html>
  );
}

function Header({ session, path }: { session: Session; path: string }) {
  return (
    <header class="top">
      <a class="skip" href="#main">
        Skip to the contents
      </a>
      <nav aria-label="console">
        {PAGES.filter(({ scope }) => may(session, scope)).map(({ path: to, name }) => (
          <a href={to} aria-current={path.startsWith(to) ? "page" : undefined}>
            {name}
          </a>
        ))}
      </nav>
      {may(session, "deliveries:read") && (
        <search class="find">
          <form action="/console/deliveries">
            <label class="unseen" for="find">
              Find a delivery by name, id, recipient or message id
            </label>
            <input
              id="find"
              name="q"
              type="search"
              placeholder="Name, id, recipient, message id  ( / )"
              maxlength={2048}
            />
          </form>
        </search>
      )}
      <a class="who" href="/console/session">
        {session.operator}
      </a>
    </header>
  );
}

/** A whole page for an operator. */
export function show(page: Page, title: string, contents: Child, status: 200 | 400 | 403 | 404 | 409 | 422 = 200) {
  const document = (
    <Document title={title}>
      <Header session={page.get("session")} path={page.req.path} />
      <main id="main">{contents}</main>
    </Document>
  );
  return page.html(html`<!doctype html>${document}`, status);
}

/** A page for somebody who is not signed in. */
export function showBare(page: Page, title: string, contents: Child, status = 200) {
  const document = (
    <Document title={title}>
      <main id="main" class="bare">
        {contents}
      </main>
    </Document>
  );
  return page.html(html`<!doctype html>${document}`, status as 200);
}

/** A form whose request comes from a page of ours: no other origin knows the token. */
export function Form({
  session,
  action,
  children,
  ...more
}: {
  session: Session;
  action: string;
  children: Child;
  class?: string;
  id?: string;
}) {
  return (
    <form method="post" action={action} {...more}>
      <input type="hidden" name="csrf" value={session.csrf} />
      {children}
    </form>
  );
}
