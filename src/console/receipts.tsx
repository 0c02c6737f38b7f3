import type { Page } from "./env.ts";
import { show } from "./layout.tsx";
import { address, Badge, Copied, Field, Pager, queryOf, Text, Time, Wide } from "./parts.tsx";

const PATH = "/console/receipts";

/** What providers reported of messages that the ledger does not know. */
export async function showReceipts(page: Page) {
  const query = queryOf(page, ["channel", "provider_message_id", "cursor"]);
  const list = await page.get("ask")("getReceipts", { query: { ...query, matched: "false", limit: "50" } });
  return show(
    page,
    "Unmatched receipts",
    <>
      <h1>Unmatched receipts</h1>
      <p>
        Receipts that fit none of the ledger's messages: mostly of messages that others sent through the same account.
        One that comes early is matched by itself when its attempt settles.
      </p>
      <form class="filters" action={PATH}>
        <Field label="Channel" name="channel" value={query["channel"]} />
        <Field label="Message id" name="provider_message_id" value={query["provider_message_id"]} />
        <button type="submit">Search</button>
        {Object.values(query).some(Boolean) && <a href={PATH}>All</a>}
      </form>
      {list.data.length === 0 ? (
        <p class="empty">
          None: whatever came fits a message of the ledger's. (When the latest webhook came, the overview tells.)
        </p>
      ) : (
        <Wide label="unmatched receipts">
          <table>
            <thead>
              <tr>
                <th>Received</th>
                <th>Channel</th>
                <th>Says</th>
                <th>Message id</th>
                <th>Detail</th>
              </tr>
            </thead>
            <tbody>
              {list.data.map((receipt) => (
                <tr>
                  <td>
                    <Time at={receipt.received_at} />
                  </td>
                  <td>{receipt.channel}</td>
                  <td>
                    {receipt.status && <Badge of={receipt.status} />} <Text value={receipt.type} max={100} />
                  </td>
                  <td>
                    {receipt.provider_message_id && (
                      <>
                        <Copied value={receipt.provider_message_id} what="the message id" />{" "}
                        <a href={address("/console/deliveries", { q: receipt.provider_message_id })}>find</a>
                      </>
                    )}
                  </td>
                  <td>
                    {receipt.detail !== null && (
                      <code>
                        <Text
                          value={typeof receipt.detail === "string" ? receipt.detail : JSON.stringify(receipt.detail)}
                          max={300}
                        />
                      </code>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Wide>
      )}
      <Pager path={PATH} query={query} cursor={list.next_cursor} />
    </>,
  );
}
