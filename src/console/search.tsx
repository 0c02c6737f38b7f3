import { FAILURES, RECEIPT_STATUSES, STATES } from "../ledger/delivery.ts";
import { type Answer, type Ask, Refused } from "./client.ts";
import type { Page } from "./env.ts";
import { show } from "./layout.tsx";
import { Badge, Field, Notice, Pager, type Query, queryOf, Text, Time, Wide } from "./parts.tsx";
import { UUID } from "./text.ts";

type Found = Answer<"getDeliveries">["data"];

const PATH = "/console/deliveries";
const FILTERS = [
  "name",
  "to",
  "provider_message_id",
  "schedule",
  "state",
  "channel",
  "failure",
  "receipt",
  "accepted_after",
  "accepted_before",
] as const;
const PAGE_SIZE = "50";

/** Deliveries, the newest first; or wherever a word leads: an id, a name, a recipient, a provider's message id. */
export async function search(page: Page) {
  const query = queryOf(page, ["q", ...FILTERS, "cursor"]);
  const ask = page.get("ask");
  const { q } = query;
  if (q) {
    const found = await anywhere(ask, q);
    const [only] = found;
    if (only && found.length === 1) return page.redirect(`${PATH}/${only.id}`, 303);
    return showFound(page, query, { data: found, next_cursor: null }, null);
  }
  try {
    const times = {
      accepted_after: instant(query["accepted_after"]),
      accepted_before: instant(query["accepted_before"]),
    };
    return showFound(
      page,
      query,
      await ask("getDeliveries", { query: { ...query, ...times, limit: PAGE_SIZE } }),
      null,
    );
  } catch (error) {
    if (!(error instanceof Refused) || error.problem.status !== 400) throw error;
    return showFound(page, query, { data: [], next_cursor: null }, faultOf(error));
  }
}

function faultOf({ problem }: Refused): string {
  const isTime = /accepted_(after|before)/.test(problem.detail);
  return isTime ? "A time is written like 2026-12-04 or 2026-12-04 22:30, in UTC." : problem.detail;
}

/** A time as it is typed: `2026-12-04` and `2026-12-04 22:30` are UTC. */
function instant(typed: string | undefined): string | undefined {
  if (typed === undefined) return undefined;
  const [, date, time, seconds] = /^(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d)(:\d\d)?)?$/.exec(typed) ?? [];
  return date === undefined ? typed : `${date}T${time ?? "00:00"}${seconds ?? ":00"}Z`;
}

async function anywhere(ask: Ask, q: string): Promise<Found> {
  const lists = await Promise.all([
    UUID.test(q) ? ask("getDelivery", { params: { id: q } }).then((one) => [one], none) : [],
    ...(["name", "to", "provider_message_id"] as const).map((field) =>
      ask("getDeliveries", { query: { [field]: q, limit: PAGE_SIZE } }).then(({ data }) => data, none),
    ),
  ]);
  const byId = new Map(lists.flat().map((delivery) => [delivery.id, delivery]));
  return [...byId.values()].sort((a, b) => (a.id < b.id ? 1 : -1));
}

/** What cannot be a name, say, is none: too long, or not to be stored. */
function none(error: unknown): [] {
  if (error instanceof Refused && error.problem.status < 500) return [];
  throw error;
}

function showFound(page: Page, query: Query, found: Answer<"getDeliveries">, fault: string | null) {
  return show(
    page,
    "Deliveries",
    <>
      <h1>Deliveries</h1>
      <Filters query={query} />
      {fault && <Notice kind="error">{fault}</Notice>}
      {query["q"] && (
        <p>
          Whose name, id, recipient or message id is “<Text value={query["q"]} max={120} />
          ”:
        </p>
      )}
      {found.data.length === 0 ? (
        !fault && (
          <p class="empty">
            No delivery fits. Names, ids and recipients are compared as a whole, and as they are written.
          </p>
        )
      ) : (
        <Table found={found.data} />
      )}
      <Pager path={PATH} query={query} cursor={found.next_cursor} />
    </>,
    fault ? 400 : 200,
  );
}

function Filters({ query }: { query: Query }) {
  const isSearch = Object.values(query).some(Boolean);
  return (
    <details open={!isSearch}>
      <summary>Search by</summary>
      <form class="filters" action={PATH}>
        <Field label="Name" name="name" value={query["name"]} />
        <Field label="Recipient" name="to" value={query["to"]} />
        <Field label="Message id" name="provider_message_id" value={query["provider_message_id"]} />
        <Field label="Schedule" name="schedule" value={query["schedule"]} />
        <Field label="State" name="state" value={query["state"]} list={STATES} />
        <Field label="Failure" name="failure" value={query["failure"]} list={FAILURES} />
        <Field label="Receipt" name="receipt" value={query["receipt"]} list={RECEIPT_STATUSES} />
        <Field label="Channel" name="channel" value={query["channel"]} />
        <Field
          label="Accepted after (UTC)"
          name="accepted_after"
          value={query["accepted_after"]}
          placeholder="2026-12-04 22:30"
        />
        <Field
          label="Accepted before (UTC)"
          name="accepted_before"
          value={query["accepted_before"]}
          placeholder="2026-12-05"
        />
        <button type="submit">Search</button>
        {isSearch && <a href={PATH}>All</a>}
      </form>
    </details>
  );
}

function Table({ found }: { found: Found }) {
  return (
    <Wide label="deliveries">
      <table>
        <thead>
          <tr>
            <th>Name</th>
            <th>Recipient</th>
            <th>Channel</th>
            <th>State</th>
            <th>Accepted</th>
          </tr>
        </thead>
        <tbody>
          {found.map((delivery) => (
            <tr>
              <td>
                <a href={`${PATH}/${delivery.id}`}>
                  <Text value={delivery.name} max={80} />
                </a>
              </td>
              <td>
                <Text value={delivery.to} max={80} />
              </td>
              <td>{delivery.channel}</td>
              <td>
                <Badge of={delivery.state} /> {delivery.failure && <Badge of={delivery.failure} />}{" "}
                {delivery.receipt && <Badge of={delivery.receipt.status} />}
              </td>
              <td>
                <Time at={delivery.accepted_at} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Wide>
  );
}
