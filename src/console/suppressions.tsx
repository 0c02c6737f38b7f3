import { type Answer, isFault } from "./client.ts";
import { Done, goOn } from "./done.tsx";
import { may, type Page } from "./env.ts";
import { Form, show } from "./layout.tsx";
import { address, Field, Notice, Pager, type Query, queryOf, Text, Time, Wide } from "./parts.tsx";

type List = Answer<"getSuppressions">;

const PATH = "/console/suppressions";
const FILTERS = ["channel", "recipient", "reason", "cursor"] as const;

/** Whom the channels do not write to, the newest first. */
export async function showSuppressions(page: Page) {
  return await showList(page, null);
}

async function showList(page: Page, fault: string | null) {
  const query: Query = page.req.method === "GET" ? queryOf(page, FILTERS) : {};
  const ask = page.get("ask");
  const list = await ask("getSuppressions", { query: { ...query, limit: "50" } });
  const writes = may(page.get("session"), "suppressions:write");
  return show(
    page,
    "Suppressions",
    <>
      <h1>Suppressions</h1>
      <p>Recipients that a channel does not write to. Their deliveries close as suppressed, whoever posts them.</p>
      {fault && <Notice kind="error">{fault}</Notice>}
      <Done page={page} />
      <form class="filters" action={PATH}>
        <Field label="Recipient" name="recipient" value={query["recipient"]} />
        <Field label="Channel" name="channel" value={query["channel"]} />
        <Field label="Reason" name="reason" value={query["reason"]} />
        <button type="submit">Search</button>
        {Object.values(query).some(Boolean) && <a href={PATH}>All</a>}
      </form>
      {writes && <Add page={page} />}
      {list.data.length === 0 ? (
        <p class="empty">Nobody is suppressed{Object.values(query).some(Boolean) && " that fits this"}.</p>
      ) : (
        <Table page={page} list={list} writes={writes} />
      )}
      <Pager path={PATH} query={query} cursor={list.next_cursor} />
    </>,
    fault ? 422 : 200,
  );
}

function Add({ page }: { page: Page }) {
  const sent = page.get("sent");
  const value = (name: string) => (page.req.method === "POST" ? sent.one(name) : "");
  return (
    <details open={page.req.method === "POST"}>
      <summary>Suppress a recipient</summary>
      <Form session={page.get("session")} action={`${PATH}/add`} class="row">
        <label>
          <span>Channel</span>
          <input name="channel" required maxlength={63} value={value("channel")} />
        </label>
        <label>
          <span>Recipient</span>
          <input name="recipient" required maxlength={2048} value={value("recipient")} autocomplete="off" />
        </label>
        <label>
          <span>Why</span>
          <input name="reason" required maxlength={500} value={value("reason")} autocomplete="off" />
        </label>
        <button type="submit" class="primary">
          Suppress
        </button>
      </Form>
    </details>
  );
}

function Table({ page, list, writes }: { page: Page; list: List; writes: boolean }) {
  return (
    <Wide label="suppressions">
      <table>
        <thead>
          <tr>
            <th>Recipient</th>
            {writes && <th>Remove</th>}
            <th>Channel</th>
            <th>Reason</th>
            <th>By</th>
            <th>Since</th>
          </tr>
        </thead>
        <tbody>
          {list.data.map(({ channel, recipient, reason, created_by, created_at }) => (
            <tr>
              <td>
                <a href={address("/console/deliveries", { to: recipient })}>
                  <Text value={recipient} max={100} />
                </a>
              </td>
              {writes && (
                <td>
                  <Form session={page.get("session")} action={`${PATH}/remove`} class="row">
                    <input type="hidden" name="channel" value={channel} />
                    <input type="hidden" name="recipient" value={recipient} />
                    <input
                      name="reason"
                      placeholder="why"
                      maxlength={500}
                      required
                      aria-label={`why ${recipient.slice(0, 80)} may be written to again`}
                    />
                    <button type="submit">Remove</button>
                  </Form>
                </td>
              )}
              <td>{channel}</td>
              <td>
                <Text value={reason} max={200} />
              </td>
              <td>
                <Text value={created_by} max={100} />
              </td>
              <td>
                <Time at={created_at} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Wide>
  );
}

export async function addSuppression(page: Page) {
  const sent = page.get("sent");
  const params = { channel: sent.one("channel"), recipient: sent.one("recipient") };
  try {
    await page.get("ask")("putSuppression", { params, body: { reason: sent.one("reason") } });
  } catch (error) {
    if (!isFault(error)) throw error;
    return await showList(page, error.problem.detail);
  }
  return goOn(page, address(PATH, { recipient: params.recipient }), "suppress");
}

export async function removeSuppression(page: Page) {
  const sent = page.get("sent");
  const params = { channel: sent.one("channel"), recipient: sent.one("recipient") };
  await page.get("ask")("deleteSuppression", { params, query: { reason: sent.one("reason") } });
  return goOn(page, PATH, "unsuppress");
}
