import type { Session } from "../api/sessions.ts";
import type { Answer } from "./client.ts";
import { Done } from "./done.tsx";
import { may, type Page } from "./env.ts";
import { Form, show } from "./layout.tsx";
import { address, Badge, Field, Notice, Pager, type Query, queryOf, Text, Time } from "./parts.tsx";
import { counted, duration } from "./text.ts";
import { ACTIONS, actionName, OPEN_AGES, PHASES } from "./words.ts";

type Items = Answer<"getAttention">;
export type Item = Items["data"][number];
type Summary = Answer<"getAttentionSummary">;

export const QUEUE = "/console/attention";
const PAGE_SIZE = "50";
export const FILTERS = ["channel", "reason", "assignee", "producer", "older_than", "snoozed"] as const;

/** The queue, the oldest first. */
export async function showQueue(page: Page) {
  const ask = page.get("ask");
  const session = page.get("session");
  const query = queryOf(page, [...FILTERS, "cursor"]);
  const [items, summary] = await Promise.all([
    ask("getAttention", { query: { ...query, ...assigneeOf(query, session), limit: PAGE_SIZE } }),
    ask("getAttentionSummary"),
  ]);
  return show(
    page,
    items.total === 0 ? "Needs attention" : `${items.total} need attention`,
    <>
      <h1>Needs attention</h1>
      <Done page={page} />
      <Filters query={query} summary={summary} />
      <div id="queue" hx-get={address(QUEUE, query)} hx-trigger="every 5s" hx-select="#queue" hx-swap="outerHTML">
        <Reasons summary={summary} query={query} />
        {items.data.length === 0 ? (
          <Empty summary={summary} query={query} />
        ) : (
          <Queue session={session} items={items} query={query} />
        )}
      </div>
    </>,
  );
}

/** `me`: whoever is signed in. */
export const assigneeOf = (query: Query, session: Session): Query => ({
  assignee: query["assignee"] === "me" ? session.operator : query["assignee"],
});

function Filters({ query, summary }: { query: Query; summary: Summary }) {
  const distinct = (values: readonly string[]) => [...new Set(values)].sort();
  const isFiltered = FILTERS.some((name) => query[name]);
  return (
    <details open={isFiltered}>
      <summary>Filters</summary>
      <form class="filters" action={QUEUE}>
        <Field
          label="Channel"
          name="channel"
          value={query["channel"]}
          list={distinct(summary.data.map((row) => row.channel))}
        />
        <Field
          label="Reason"
          name="reason"
          value={query["reason"]}
          list={distinct(summary.data.map((row) => row.reason))}
        />
        <label>
          <span>Age</span>
          <select name="older_than">
            <option value="">any</option>
            {OPEN_AGES.map(({ seconds, name }) => (
              <option value={seconds} selected={query["older_than"] === seconds}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <Field label="Assignee" name="assignee" value={query["assignee"]} placeholder="me, none, a name" />
        <Field label="Producer" name="producer" value={query["producer"]} />
        <label class="check">
          <input type="checkbox" name="snoozed" value="true" checked={query["snoozed"] === "true"} />
          <span>also those put off or being looked up</span>
        </label>
        <button type="submit">Filter</button>
        {isFiltered && <a href={QUEUE}>All</a>}
      </form>
    </details>
  );
}

function Reasons({ summary, query }: { summary: Summary; query: Query }) {
  if (summary.data.length === 0) return null;
  return (
    <ul class="reasons" aria-label="open items by reason">
      {summary.data.map(({ channel, reason, count, snoozed, oldest_age_s }) => (
        <li>
          <a
            href={address(QUEUE, { channel, reason })}
            aria-current={query["channel"] === channel && query["reason"] === reason ? "true" : undefined}
          >
            <strong>{count.toLocaleString("en")}</strong> {channel}: {reason.replaceAll("_", " ")}
          </a>{" "}
          <span class="quiet">
            oldest {duration(oldest_age_s)}
            {snoozed > 0 && `, ${snoozed} put off or being looked up`}
          </span>
        </li>
      ))}
    </ul>
  );
}

function Empty({ summary, query }: { summary: Summary; query: Query }) {
  const hidden = summary.data.reduce((sum, row) => sum + row.snoozed, 0);
  if (query["cursor"])
    return (
      <p class="empty">
        No more items on this page: <a href={QUEUE}>to the oldest</a>.
      </p>
    );
  if (FILTERS.some((name) => query[name])) {
    return (
      <p class="empty">
        No open item fits this filter. {counted(summary.total, "item is", "items are")} open in all:{" "}
        <a href={QUEUE}>see all</a>.
      </p>
    );
  }
  if (hidden > 0) {
    return (
      <p class="empty">
        Nothing waits for you now. {counted(hidden, "item is", "items are")} put off, or the provider is being asked
        first: <a href={address(QUEUE, { snoozed: "true" })}>see them</a>.
      </p>
    );
  }
  return (
    <p class="empty">
      <strong>Nothing needs attention.</strong> Every delivery that was accepted is sent, proven not sent, closed with a
      reason, or waits for a known time. Nobody has to decide anything.
    </p>
  );
}

function Queue({ session, items, query }: { session: Session; items: Items; query: Query }) {
  const decides = may(session, "attention:write");
  const more = items.total > items.data.length;
  return (
    <Form session={session} action={`${QUEUE}/resolve`} class="queue">
      {FILTERS.map((name) => query[name] && <input type="hidden" name={name} value={query[name]} />)}
      {decides && (
        <fieldset class="bar" aria-label="with the selected items">
          <span class="needs-script" id="selected" hidden aria-live="polite">
            0 selected
          </span>
          {more && !query["cursor"] && (
            <label class="check">
              <input type="checkbox" name="all" value={String(items.total)} />
              <span>
                {items.total > MAX_ALL ? `the oldest ${MAX_ALL.toLocaleString("en")}` : `all ${items.total}`} of this
                filter
              </span>
            </label>
          )}
          {ACTIONS.filter(({ action }) => isOffered(items.data, action)).map(({ action, name, key }) => (
            <button type="submit" name="action" value={action} data-key={key}>
              {name}
            </button>
          ))}
          <button type="submit" formaction={`${QUEUE}/assign`} name="to" value="me" data-key="i">
            Assign to me
          </button>
          <button type="submit" formaction={`${QUEUE}/snooze`} name="for" value="3600" data-key="z">
            Put off 1 h
          </button>
          <button type="button" class="needs-script" data-help hidden aria-expanded="false" aria-controls="keys">
            Keys ( ? )
          </button>
        </fieldset>
      )}
      {!decides && <Notice>This session's key may look and not decide: it lacks the scope attention:write.</Notice>}
      <Keys />
      <p class="quiet">
        {items.total > items.data.length
          ? `${items.data.length} of ${items.total >= 10_000 ? "10,000 or more" : items.total.toLocaleString("en")} items, the oldest first`
          : `${counted(items.total, "item")}, the oldest first`}
      </p>
      <ol class="items">
        {items.data.map((item) => (
          <Row item={item} decides={decides} />
        ))}
      </ol>
      <Pager path={QUEUE} query={query} cursor={items.next_cursor} />
    </Form>
  );
}

/** What no item on the page can be done to is not offered for several. */
const isOffered = (items: readonly Item[], action: string): boolean =>
  items.some(({ actions }) => actions.some((one) => one.action === action));

/** Resolved in one go at most. */
export const MAX_ALL = 1_000;

function Keys() {
  const keys: readonly (readonly [string, string])[] = [
    ["j / k", "next, previous item"],
    ["x", "select"],
    ["o or Enter", "open the delivery"],
    ...ACTIONS.map(({ key, name }) => [key, `${name.toLowerCase()}: the selected items, or this one`] as const),
    ["i", "assign to me"],
    ["z", "put off for an hour"],
    ["/", "find a delivery"],
    ["Esc", "select nothing"],
  ];
  return (
    <div id="keys" hidden>
      <dl class="facts">
        {keys.map(([key, means]) => (
          <div>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{means}</dd>
          </div>
        ))}
      </dl>
    </div>
  );
}

function Row({ item, decides }: { item: Item; decides: boolean }) {
  const title = `item-${item.id}`;
  return (
    <li class="item" id={title} data-id={item.id} tabindex={-1} aria-labelledby={`${title}-title`}>
      {decides && (
        <input
          type="checkbox"
          name="ids"
          value={item.id}
          aria-label={`select the delivery to ${item.to.slice(0, 80)}`}
          autocomplete="off"
        />
      )}
      <div class="what">
        <h2 id={`${title}-title`}>
          <a href={`/console/deliveries/${item.delivery_id}`} data-open>
            <Text value={item.to} max={80} />
          </a>{" "}
          <span class="quiet">
            <Text value={item.delivery.name} max={80} />, {item.channel}, {item.producer}, {duration(item.age_s)} ago
          </span>
        </h2>
        <p class="preview">
          {item.preview === null ? <em>The message is no longer kept.</em> : <Preview text={item.preview} />}
        </p>
        <Why item={item} />
        <Earlier item={item} />
        <Around item={item} />
        {decides && <Offers item={item} />}
      </div>
    </li>
  );
}

/** The API cuts a preview at so many characters. */
const PREVIEW = 200;

export function Preview({ text }: { text: string }) {
  return (
    <>
      <Text value={text} />
      {text.length >= PREVIEW && "…"}
    </>
  );
}

/** Why it is doubtful, in words: enough to decide the simple cases. */
export function Why({ item }: { item: Item }) {
  const { attempt, text, contradiction } = item.why;
  const said = attempt?.error?.message ?? attempt?.error?.code;
  const says = said && !text.includes(said) ? said : null;
  const phase = PHASES[attempt?.phase ?? ""] ?? "whether the request was written is not known";
  return (
    <p class="why">
      <Badge of={item.reason} /> {text}
      {attempt && (
        <>
          {" "}
          (attempt {attempt.number}
          {attempt.means !== text && `: ${attempt.means}`}
          {!text.includes(phase) && `, ${phase}`}
          {attempt.status_code !== null && `, status ${attempt.status_code}`}
          {says && (
            <>
              , “<Text value={says} max={160} />”
            </>
          )}
          )
        </>
      )}
      {contradiction && (
        <>
          .{" "}
          <code>
            <Text value={JSON.stringify(contradiction)} max={300} />
          </code>
        </>
      )}
    </p>
  );
}

function Around({ item }: { item: Item }) {
  const receipts = item.receipts.filter(({ status }) => status !== null);
  return (
    <p class="around quiet">
      {counted(item.delivery.attempt_count, "attempt")}
      {receipts.length > 0 && `; the provider reported ${receipts.map(({ status }) => status).join(", ")}`}
      {item.lookup.asked > 0 && `; the provider was asked ${counted(item.lookup.asked, "time")}`}
      {item.lookup.next_at && (
        <>
          ; it is asked again <Time at={item.lookup.next_at} />
        </>
      )}
      {item.same_recipient.length > 0 && (
        <>
          ; within a day <Others item={item} />
        </>
      )}
      {item.assignee !== null && (
        <>
          ;{" "}
          <strong>
            <Text value={item.assignee} max={60} />
          </strong>{" "}
          is on it
        </>
      )}
      {item.snoozed_until !== null && Date.parse(item.snoozed_until) > Date.now() && (
        <>
          ; put off until <Time at={item.snoozed_until} />
        </>
      )}
    </p>
  );
}

/** The last decision about the same delivery, before this item: it was not the end of it. */
export function Earlier({ item }: { item: Item }) {
  const earlier = item.history.findLast((entry) => entry.type === "attention.resolved" && entry["item"] !== item.id);
  if (!earlier) return null;
  return (
    <p class="earlier">
      It is here again: <Text value={String(earlier["by"])} max={160} /> decided “
      {actionName(String(earlier["action"]))}” <Time at={earlier.at} />: “
      <Text value={String(earlier["note"])} max={300} />”
    </p>
  );
}

/** So many are told at most. */
const MOST_OTHERS = 5;

/** What else the recipient may have got: in what state the others are. */
export function Others({ item }: { item: Item }) {
  const byState = [...Map.groupBy(item.same_recipient, ({ state }) => state)];
  return (
    <>
      {item.same_recipient.length === MOST_OTHERS && "at least "}
      {counted(item.same_recipient.length, "other delivery", "other deliveries")} to this recipient (
      {byState.map(([state, some]) => `${some.length} ${state.replaceAll("_", " ")}`).join(", ")})
    </>
  );
}

/** What may be done now, each with what it risks. */
export function Offers({ item }: { item: Item }) {
  return (
    <ul class="offers">
      {item.actions.map(({ action, may_duplicate, until, risk }) => {
        const { name, key } = ACTIONS.find((one) => one.action === action) ?? { name: action, key: undefined };
        return (
          <li>
            <a
              class={may_duplicate ? "action risky" : "action"}
              href={address(`${QUEUE}/resolve`, { ids: item.id, action })}
              data-key={key}
              title={risk}
            >
              {name}
            </a>
            {may_duplicate && <span class="risk">may send a second message</span>}
            {until && (
              <span class="quiet">
                {" "}
                safe until <Time at={until} />
              </span>
            )}
          </li>
        );
      })}
    </ul>
  );
}
