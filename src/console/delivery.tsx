import type { Child } from "hono/jsx";
import { Attempts, type Delivery } from "./attempts.tsx";
import { Earlier, type Item, Offers, Others, Why } from "./attention.tsx";
import type { Answer, Ask } from "./client.ts";
import { Done, goOn } from "./done.tsx";
import { may, type Page } from "./env.ts";
import { Form, show } from "./layout.tsx";
import { Message } from "./message.tsx";
import { address, Badge, Copied, Facts, Text, Time } from "./parts.tsx";
import { Timeline } from "./timeline.tsx";
import { Windows } from "./windows.tsx";
import { actionName, HOLDS } from "./words.ts";

const addressOf = (id: string): string => `/console/deliveries/${id}`;

/** One delivery: where it stands, what may come, everything that happened, and the message. */
export async function showDelivery(page: Page) {
  const ask = page.get("ask");
  const params = { id: page.req.param("id") ?? "" };
  const [delivery, timeline, message, providers] = await Promise.all([
    ask("getDelivery", { params }),
    ask("getTimeline", { params }),
    ask("getMessage", { params }),
    ask("getProviders"),
  ]);
  const item = await openItem(ask, delivery);
  return show(
    page,
    `${delivery.name.slice(0, 60)}: ${delivery.state}`,
    <>
      <h1>
        <Text value={delivery.name} max={120} />
      </h1>
      <Done page={page} />
      <div id="now" hx-get={addressOf(delivery.id)} hx-trigger="every 5s" hx-select="#now" hx-swap="outerHTML">
        <Now page={page} delivery={delivery} item={item} timeline={timeline.data} />
        {delivery.attempts.length > 0 && <Attempts attempts={delivery.attempts} />}
        <Windows delivery={delivery} providers={providers} />
        <Timeline entries={timeline.data} delivery={delivery} />
      </div>
      <Identity delivery={delivery} />
      <Message id={delivery.id} message={message.message} />
      <p>
        <a href={`${addressOf(delivery.id)}/raw`}>Raw JSON</a>: the delivery with its attempts, its timeline and its
        message.
      </p>
    </>,
  );
}

async function openItem(ask: Ask, { attention }: Delivery): Promise<Item | null> {
  return attention ? await ask("getAttentionItem", { params: { id: attention.id } }) : null;
}

interface Standing {
  readonly delivery: Delivery;
  readonly item: Item | null;
  readonly timeline: Answer<"getTimeline">["data"];
}

function Now({ page, delivery, item, timeline }: Standing & { page: Page }) {
  const session = page.get("session");
  return (
    <section aria-labelledby="now-title" class="now">
      <h2 id="now-title">
        <Badge of={delivery.state} /> {delivery.failure && <Badge of={delivery.failure} />}{" "}
        {delivery.receipt && <Badge of={delivery.receipt.status} title="what the provider reported" />}
      </h2>
      <p class="next">
        <Next delivery={delivery} item={item} timeline={timeline} />
      </p>
      {item && (
        <>
          <Why item={item} />
          <Earlier item={item} />
          <ul class="guarantees">
            {item.guarantees.map((guarantee) => (
              <li>{guarantee}</li>
            ))}
          </ul>
          {may(session, "attention:write") && item.resolution === null && <Decide page={page} item={item} />}
        </>
      )}
      {delivery.state === "pending" && may(session, "deliveries:write") && (
        <details data-keep="cancel">
          <summary>Cancel it</summary>
          <Form session={session} action={`${addressOf(delivery.id)}/cancel`} class="buttons">
            <button type="submit" class="primary risky">
              Cancel: it is never sent
            </button>
          </Form>
        </details>
      )}
      {item && item.same_recipient.length > 0 && (
        <details data-keep="same-recipient">
          <summary>
            Within a day <Others item={item} />
          </summary>
          <ul>
            {item.same_recipient.map(({ id, name, state, accepted_at }) => (
              <li>
                <a href={addressOf(id)}>
                  <Text value={name} max={100} />
                </a>{" "}
                <Badge of={state} /> <Time at={accepted_at} />
              </li>
            ))}
          </ul>
        </details>
      )}
    </section>
  );
}

function Decide({ page, item }: { page: Page; item: Item }) {
  const session = page.get("session");
  const isSnoozed = item.snoozed_until !== null && Date.parse(item.snoozed_until) > Date.now();
  const mine = item.assignee === session.operator;
  return (
    <>
      <Offers item={item} />
      {item.not_possible.length > 0 && (
        <ul class="quiet">
          {item.not_possible.map(({ action, why }) => (
            <li>
              Not possible: {actionName(action).toLowerCase()} ({why})
            </li>
          ))}
        </ul>
      )}
      <div class="buttons">
        <Small page={page} item={item} action="assign" name="to" value={mine ? "nobody" : "me"} hotkey="i">
          {mine ? "Give it back" : "Assign to me"}
        </Small>
        <Small page={page} item={item} action="snooze" name="for" value={isSnoozed ? "0" : "3600"} hotkey="z">
          {isSnoozed ? "Back into the queue" : "Put off 1 h"}
        </Small>
        {item.assignee !== null && (
          <span>
            <Text value={item.assignee} max={60} /> is on it
          </span>
        )}
        {isSnoozed && (
          <span>
            put off until <Time at={item.snoozed_until} />
          </span>
        )}
      </div>
      <Form session={session} action="/console/attention/notes" class="note" id="note-form">
        <input type="hidden" name="ids" value={item.id} />
        <input type="hidden" name="back" value="delivery" />
        <label>
          <span>Note for the others</span>
          <input name="note" required maxlength={2000} autocomplete="off" />
        </label>
        <button type="submit">Add note</button>
      </Form>
    </>
  );
}

function Small({
  page,
  item,
  action,
  name,
  value,
  hotkey,
  children,
}: {
  page: Page;
  item: Item;
  action: string;
  name: string;
  value: string;
  hotkey: string;
  children: Child;
}) {
  return (
    <Form session={page.get("session")} action={`/console/attention/${action}`}>
      <input type="hidden" name="ids" value={item.id} />
      <input type="hidden" name="back" value="delivery" />
      <button type="submit" name={name} value={value} data-key={hotkey}>
        {children}
      </button>
    </Form>
  );
}

/** What may happen next, and when, in words. */
function Next({ delivery, item, timeline }: Standing) {
  const { state, hold, next_attempt_at, expires_at, attempts, failure, receipt } = delivery;
  const latest = attempts.at(-1);
  const isDoubtful = attempts.some(({ verdict }) => verdict === "unknown");
  const sameKey = item?.actions.find(({ action }) => action === "resend_same_key");
  switch (state) {
    case "pending":
      return (
        <>
          {hold ? `It is held: ${HOLDS[hold.reason]}` : "It waits for a free worker"}
          {hold?.until && (
            <>
              , until <Time at={hold.until} />
            </>
          )}
          . Attempt {delivery.attempt_count + 1} is next
          {next_attempt_at && (
            <>
              , not before <Time at={next_attempt_at} />
            </>
          )}
          . {isDoubtful && <Doubt delivery={delivery} timeline={timeline} />}
          {expires_at && (
            <>
              {" "}
              If that is not by <Time at={expires_at} />, it {isDoubtful ? "needs a person's attention" : "expires"}.
            </>
          )}
        </>
      );
    case "claimed":
      return (
        <>
          Attempt {latest?.number} is under way since <Time at={latest?.claimed_at} />. If nothing is heard of it by{" "}
          <Time at={latest?.lease_expires_at} />, its worker is presumed dead and the attempt's outcome is unknown.
        </>
      );
    case "sent":
      return (
        <>
          <SentBy delivery={delivery} timeline={timeline} /> Nothing more is sent.{" "}
          {receipt ? (
            <>
              Its latest word is “{receipt.status}”, <Time at={receipt.at} />.
            </>
          ) : (
            "What became of it the provider has not reported (yet)."
          )}
          {item && " But evidence contradicts the ledger: somebody has to look at it."}
        </>
      );
    case "failed":
      return failure === "abandoned" ? (
        <>
          A person abandoned it: no further attempt is made. Whether it was sent is not known; evidence may still say
          so.
        </>
      ) : (
        <>
          It was not sent: {failure === "refused" ? "the provider refused it" : "four attempts, and none was accepted"}.
          Nothing more happens by itself; post it under a new name to try again.
        </>
      );
    case "needs_attention":
      return (
        <>
          It may or may not have been sent. Nothing more is sent until a person decides, or evidence settles it.
          {item?.lookup.next_at && (
            <>
              {" "}
              The provider is asked what became of it <Time at={item.lookup.next_at} />.
            </>
          )}
          {sameKey?.until && (
            <>
              {" "}
              A repeat under the same key is safe until <Time at={sameKey.until} />.
            </>
          )}
        </>
      );
    case "cancelled":
      return <>It was cancelled before anything was sent. It stays so.</>;
    case "expired":
      return <>Its time ran out before anything was sent. It stays so.</>;
    case "suppressed":
      return <>The recipient is on the channel's suppression list: nothing was sent. It stays so.</>;
    default:
      throw new Error(`no words for ${state satisfies never}`);
  }
}

/** It waits for another attempt, and an earlier one may have gone through. */
function Doubt({ delivery, timeline }: Pick<Standing, "delivery" | "timeline">) {
  const { attempts, on_unknown } = delivery;
  const latest = attempts.at(-1);
  const numbers = attempts.filter(({ verdict }) => verdict === "unknown").map(({ number }) => number);
  const decided = timeline.findLast((entry) => entry.type === "attention.resolved");
  const isDecided = decided && latest?.settled_at && decided.at >= latest.settled_at;
  return (
    <>
      <strong>It may have been sent already</strong>: what became of attempt {numbers.join(" and ")} is not known.{" "}
      {isDecided ? (
        <>
          <Text value={String(decided["by"])} max={160} /> decided “{actionName(String(decided["action"]))}”.
        </>
      ) : on_unknown === "resend" ? (
        "The next attempt may send it a second time: its producer prefers a duplicate to a gap."
      ) : latest?.verdict === "unknown" ? (
        "The next attempt repeats it under the same key: the provider sends it once at most."
      ) : null}
    </>
  );
}

/** Who says that it is sent: the provider, or a person. */
function SentBy({ delivery, timeline }: Pick<Standing, "delivery" | "timeline">) {
  if (delivery.attempts.some(({ verdict }) => verdict === "accepted")) return <>The provider has accepted it.</>;
  const marked = timeline.findLast((entry) => entry.type === "attention.resolved" && entry["action"] === "mark_sent");
  if (!marked) return <>It is sent.</>;
  return (
    <>
      <Text value={String(marked["by"])} max={160} /> marked it as sent <Time at={marked.at} />: “
      <Text value={String(marked["note"])} max={2000} />
      ”. The provider has not confirmed it.
    </>
  );
}

function Identity({ delivery }: { delivery: Delivery }) {
  const rows: (readonly [string, Child])[] = [
    ["Id", <Copied value={delivery.id} what="the id" />],
    ["Name", <Copied value={delivery.name} what="the name" />],
    [
      "Recipient",
      <>
        <Copied value={delivery.to} what="the recipient" />{" "}
        <a href={address("/console/deliveries", { to: delivery.to })}>everything it was sent</a>
      </>,
    ],
    ["Channel", `${delivery.channel} (${delivery.provider})`],
    ["Producer", <Text value={delivery.producer} />],
    ["Accepted", <Time at={delivery.accepted_at} />],
    ["When in doubt", delivery.on_unknown === "resend" ? "a duplicate is preferred to a gap" : "a person decides"],
  ];
  if (delivery.provider_message_id) {
    rows.push([
      "Provider's message id",
      <Copied value={delivery.provider_message_id} what="the provider's message id" />,
    ]);
  }
  if (delivery.occurrence) {
    const { schedule, due_at } = delivery.occurrence;
    rows.push([
      "Occurrence",
      <>
        <a href={address("/console/deliveries", { schedule })}>
          <Text value={schedule} max={120} />
        </a>{" "}
        due <Time at={due_at} />
      </>,
    ]);
  }
  if (delivery.deliver_at) rows.push(["Not before", <Time at={delivery.deliver_at} />]);
  if (delivery.expires_at) rows.push(["Expires", <Time at={delivery.expires_at} />]);
  if (delivery.quiet_hours) {
    const { from, to, time_zone } = delivery.quiet_hours;
    rows.push(["Quiet hours", `${from} to ${to}, ${time_zone}`]);
  }
  if (delivery.metadata) {
    rows.push([
      "Metadata",
      <code>
        <Text value={JSON.stringify(delivery.metadata)} max={2000} />
      </code>,
    ]);
  }
  return (
    <section aria-labelledby="identity-title">
      <h2 id="identity-title">Delivery</h2>
      <Facts rows={rows} />
    </section>
  );
}

/** Cancels what waits; the API refuses it where something may have been sent. */
export async function cancel(page: Page) {
  const id = page.req.param("id") ?? "";
  await page.get("ask")("postCancel", { params: { id } });
  return goOn(page, addressOf(id), "cancel");
}

/** Everything as the API answers it. */
export async function showRaw(page: Page) {
  const ask = page.get("ask");
  const params = { id: page.req.param("id") ?? "" };
  const [delivery, timeline, message] = await Promise.all([
    ask("getDelivery", { params }),
    ask("getTimeline", { params }),
    ask("getMessage", { params }),
  ]);
  const body = JSON.stringify({ delivery, timeline: timeline.data, message: message.message }, null, 2);
  return page.body(body, 200, { "content-type": "application/json; charset=utf-8" });
}
