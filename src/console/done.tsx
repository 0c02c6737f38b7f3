import { deleteCookie, getCookie, setCookie } from "hono/cookie";
import type { Page } from "./env.ts";
import { isSecure } from "./form.ts";
import { Notice } from "./parts.tsx";
import { counted, UUID } from "./text.ts";

const COOKIE = "ledger_done";

/** What was done, in the words that follow "2 items were". */
const TO_ITEMS: ReadonlyMap<string, string> = new Map([
  ["mark_sent", "marked as sent"],
  ["resend_same_key", "put back to be sent again under the same key; what ends in doubt again comes back here"],
  ["resend", "put back to be sent again under a fresh key; what ends in doubt again comes back here"],
  ["abandon", "abandoned"],
  ["assign", "assigned to you"],
  ["unassign", "given back"],
  ["snooze", "put off"],
  ["wake", "put back into the queue"],
]);

const TO_OTHERS: ReadonlyMap<string, string> = new Map([
  ["note", "The note is added."],
  ["cancel", "The delivery is cancelled: it is never sent."],
  ["suppress", "The recipient is suppressed from now on."],
  ["unsuppress", "The channel may write to the recipient again."],
  ["revoke", "The key is refused from now on."],
]);

interface Extent {
  readonly count?: number;
  /** Items that were left as they are. */
  readonly left?: number;
  /** The only item. */
  readonly about?: string;
}

/** Leads on to a page, which says once what was done. */
export function goOn(page: Page, to: string, what: string, { count = 1, left = 0, about = "" }: Extent = {}): Response {
  setCookie(page, COOKIE, `${what}.${count}.${left}.${about}`, {
    ...{ path: "/console", httpOnly: true, sameSite: "Strict", secure: isSecure(page), maxAge: 60 },
  });
  return page.redirect(to, 303);
}

/** Says what was just done. In no address: a link, or a page that is loaded anew, must not say that it was. */
export function Done({ page }: { page: Page }) {
  const said = getCookie(page, COOKIE);
  if (said === undefined || page.req.header("hx-request") === "true") return null;
  deleteCookie(page, COOKIE, { path: "/console" });
  const [what = "", count, left, about = ""] = said.split(".");
  const words = TO_ITEMS.get(what);
  if (words === undefined) {
    const sentence = TO_OTHERS.get(what);
    return sentence ? <Notice kind="done">{sentence}</Notice> : null;
  }
  return (
    <Notice kind="done">
      {counted(Number(count), "item was", "items were")} {words}.
      {Number(left) > 0 && ` ${counted(Number(left), "was", "were")} not: they are not open any more.`}
      {UUID.test(about) && (
        <>
          {" "}
          <a href={`/console/attention/items/${about}`}>See its delivery</a>
        </>
      )}
    </Notice>
  );
}
