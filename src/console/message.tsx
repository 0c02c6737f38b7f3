import type { Page } from "./env.ts";
import { harmless } from "./harmless.ts";
import { Facts, Text } from "./parts.tsx";

type Frozen = Readonly<Record<string, unknown>>;

const SHOWN = 20_000;
const LONG: readonly string[] = ["text", "html", "attachments"];

const words = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value));

/** The frozen message. Its html is shown in a frame where nothing runs and nothing is loaded. */
export function Message({ id, message }: { id: string; message: Frozen | null }) {
  return (
    <section aria-labelledby="message-title">
      <h2 id="message-title">Message</h2>
      {message === null ? <p class="empty">The message is no longer kept.</p> : <Contents id={id} message={message} />}
    </section>
  );
}

function Contents({ id, message }: { id: string; message: Frozen }) {
  const fields = Object.entries(message).filter(([name]) => !LONG.includes(name));
  const { text, html, attachments } = message;
  return (
    <>
      <Facts rows={fields.map(([name, value]) => [name, <Text value={words(value)} max={1_000} />] as const)} />
      {typeof text === "string" && (
        <>
          <h3>Text</h3>
          <pre class="message" dir="auto" tabindex={0}>
            <Text value={text} max={SHOWN} />
          </pre>
        </>
      )}
      {typeof html === "string" && (
        <details>
          <summary>HTML, without what it would load from elsewhere</summary>
          <iframe
            src={`/console/deliveries/${id}/html`}
            sandbox=""
            loading="lazy"
            title="the message's HTML"
            referrerpolicy="no-referrer"
          ></iframe>
        </details>
      )}
      {Array.isArray(attachments) && (
        <>
          <h3>Attachments</h3>
          <ul>
            {attachments.map((attachment: Frozen) => (
              <li>
                <Text value={String(attachment["filename"] ?? "without a name")} max={255} />{" "}
                <span class="quiet">
                  {typeof attachment["path"] === "string"
                    ? `from ${attachment["path"].slice(0, 200)}`
                    : `${Math.round((words(attachment["content"] ?? "").length * 3) / 4).toLocaleString("en")} bytes`}
                </span>
              </li>
            ))}
          </ul>
        </>
      )}
    </>
  );
}

/** The message's HTML, for the frame; its answer's headers keep it from doing anything. In a window of its own its links would lead away. */
export async function showHtml(page: Page) {
  if (page.req.header("sec-fetch-dest") === "document") {
    return page.redirect(`/console/deliveries/${page.req.param("id")}`, 303);
  }
  const { message } = await page.get("ask")("getMessage", { params: { id: page.req.param("id") ?? "" } });
  const html = message?.["html"];
  return page.body(typeof html === "string" ? harmless(html) : "", 200, { "content-type": "text/html; charset=utf-8" });
}
