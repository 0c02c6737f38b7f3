import { Problem } from "../api/problem.ts";
import { assigneeOf, Earlier, FILTERS, type Item, MAX_ALL, Preview, QUEUE, Why } from "./attention.tsx";
import { type Answer, isFault, Refused } from "./client.ts";
import { goOn } from "./done.tsx";
import { may, type Page } from "./env.ts";
import { inTurn } from "./in-turn.ts";
import { Form, show } from "./layout.tsx";
import { address, Notice, type Query, queryOf, Text, Time } from "./parts.tsx";
import { counted, duration, UUID } from "./text.ts";
import { actionName, isAction } from "./words.ts";

/** Node takes 16 kB of headers. */
const IDS_IN_AN_ADDRESS = 200;
const SHOWN = 20;
const ITEMS_A_PAGE = 100;

/** What a form or an address names: items, or all of a filter; the filter leads back to where the operator was. */
interface Chosen {
  readonly ids: readonly string[];
  readonly all: boolean;
  readonly action: string;
  readonly filter: Query;
}

function chosenBy(page: Page): Chosen {
  const sent = page.get("sent");
  const ids = [...new Set(sent.many("ids").filter((id) => UUID.test(id)))];
  if (ids.length > MAX_ALL) throw new Problem("invalid-request", `${MAX_ALL} items at most are decided at once`);
  return { ids, all: sent.one("all") !== "", action: sent.one("action"), filter: queryOf(page, FILTERS) };
}

/** Asks for a decision, with the count and the risk in view. Nothing is done yet. */
export async function confirm(page: Page) {
  const chosen = chosenBy(page);
  if (!isAction(chosen.action)) return page.redirect(QUEUE, 303);
  if (!may(page.get("session"), "attention:write")) {
    throw new Problem("forbidden", "this session's key lacks the scope attention:write");
  }
  // An address of its own: going back to it, or loading it again, asks anew and sends nothing.
  if (page.req.method === "POST" && chosen.ids.length <= IDS_IN_AN_ADDRESS)
    return page.redirect(addressOf(chosen), 303);
  const items = await itemsOf(page, chosen);
  return showDecision(page, chosen, items, null);
}

function addressOf({ ids, all, action, filter }: Chosen): string {
  const query = address("", { ...filter, action, ...(all && { all: "1" }) });
  return `${QUEUE}/resolve${query}${(all ? [] : ids).map((id) => `&ids=${id}`).join("")}`;
}

/** A thousand items are half a second's work: in a large incident several operators may ask for them at once. */
const oneListAtATime = inTurn();

const itemsOf = (page: Page, { ids, all, filter }: Chosen): Promise<readonly Item[]> =>
  all ? oneListAtATime(() => allOf(page, filter)) : namedBy(page, ids);

async function allOf(page: Page, filter: Query): Promise<readonly Item[]> {
  const items: Item[] = [];
  const query = { ...filter, ...assigneeOf(filter, page.get("session")), limit: String(ITEMS_A_PAGE) };
  for (let cursor: string | null | undefined; cursor !== null && items.length < MAX_ALL; ) {
    const found: Answer<"getAttention"> = await page.get("ask")("getAttention", { query: { ...query, cursor } });
    items.push(...found.data);
    cursor = found.next_cursor;
  }
  return items.slice(0, MAX_ALL);
}

async function namedBy(page: Page, ids: readonly string[]): Promise<readonly Item[]> {
  const ask = page.get("ask");
  const items: Item[] = [];
  for (let from = 0; from < ids.length; from += ITEMS_A_PAGE) {
    const some = ids.slice(from, from + ITEMS_A_PAGE).join(",");
    items.push(
      ...(await ask("getAttention", { query: { ids: some, snoozed: "true", limit: String(ITEMS_A_PAGE) } })).data,
    );
  }
  return items;
}

function showDecision(page: Page, chosen: Chosen, items: readonly Item[], fault: string | null) {
  const { action, filter } = chosen;
  const session = page.get("session");
  const typed = (name: string) => (fault === null ? undefined : page.get("sent").one(name));
  const possible = items.flatMap((item) => {
    const offer = item.actions.find((one) => one.action === action);
    return offer ? [{ item, offer }] : [];
  });
  const barred = items.filter((item) => !item.actions.some((one) => one.action === action));
  const risky = possible.filter(({ offer }) => offer.may_duplicate);
  const gone = chosen.all ? 0 : chosen.ids.length - items.length;
  const back = address(QUEUE, filter);
  const title = `${actionName(action)}: ${counted(possible.length, "delivery", "deliveries")}`;
  if (items.length === 0 && chosen.ids.length === 0 && !chosen.all) {
    return showNothing(page, back);
  }
  return show(
    page,
    title,
    <div data-keyboard="decision">
      <h1>{title}</h1>
      {fault && <Notice kind="error">{fault}</Notice>}
      {gone > 0 && (
        <Notice>
          {counted(gone, "item is", "items are")} not open any more: resolved by a person, or by evidence.
        </Notice>
      )}
      {barred.length > 0 && (
        <Notice>
          {counted(barred.length, "item is", "items are")} left out:
          <ul>
            {barred.slice(0, 5).map((item) => (
              <li>
                <a href={`/console/deliveries/${item.delivery_id}`}>
                  <Text value={item.to} max={60} />
                </a>
                : {item.not_possible.find((one) => one.action === action)?.why ?? "it is resolved"}
              </li>
            ))}
            {barred.length > 5 && <li>… and {counted(barred.length - 5, "other")}</li>}
          </ul>
        </Notice>
      )}
      {possible.length > 0 && (
        <Form session={session} action={`${QUEUE}/resolutions`} class="stacked decision">
          {FILTERS.map((name) => filter[name] && <input type="hidden" name={name} value={filter[name]} />)}
          <input type="hidden" name="action" value={action} />
          {possible.map(({ item }) => (
            <input type="hidden" name="ids" value={item.id} />
          ))}
          <Risks possible={possible} />
          {action.startsWith("resend") && <p>Each gets up to four more attempts, from now on.</p>}
          {action === "mark_sent" && possible.length === 1 && (
            <label>
              <span>The provider's message id, if you found it</span>
              <input
                name="provider_message_id"
                maxlength={255}
                autocomplete="off"
                value={typed("provider_message_id")}
              />
            </label>
          )}
          <label>
            <span>Why (kept with your name)</span>
            <input name="note" required maxlength={2000} autocomplete="off" autofocus value={typed("note")} />
          </label>
          {risky.length > 0 && (
            <label class="check risk">
              <input type="checkbox" name="acknowledge_duplicate_risk" value="true" required />
              <span>
                I accept that {risky.length === 1 ? "the recipient" : `${risky.length.toLocaleString("en")} recipients`}{" "}
                may get the message again
              </span>
            </label>
          )}
          <p>
            <button type="submit" class={risky.length > 0 ? "primary risky" : "primary"}>
              {actionName(action)}: {counted(possible.length, "delivery", "deliveries")}
            </button>{" "}
            <a href={back} data-back>
              Back, nothing done
            </a>
          </p>
          <p class="quiet">This cannot be taken back: the first resolution of an item stands.</p>
        </Form>
      )}
      {possible.length === 0 && (
        <p class="empty">
          None of the selected items can be resolved in this way.{" "}
          <a href={back} data-back>
            Back
          </a>
        </p>
      )}
      <ol class="items">
        {possible.slice(0, SHOWN).map(({ item }) => (
          <li class="item">
            <div class="what">
              <h2>
                <a href={`/console/deliveries/${item.delivery_id}`}>
                  <Text value={item.to} max={80} />
                </a>{" "}
                <span class="quiet">
                  <Text value={item.delivery.name} max={80} />, {item.channel}, {duration(item.age_s)} ago,{" "}
                  {counted(item.delivery.attempt_count, "attempt")}
                </span>
              </h2>
              {item.preview !== null && (
                <p class="preview">
                  <Preview text={item.preview} />
                </p>
              )}
              <Why item={item} />
              <Earlier item={item} />
            </div>
          </li>
        ))}
      </ol>
      {possible.length > SHOWN && <p>… and {counted(possible.length - SHOWN, "other")}.</p>}
    </div>,
    fault ? 422 : 200,
  );
}

const showNothing = (page: Page, back: string) =>
  show(
    page,
    "Nothing selected",
    <>
      <h1>Nothing selected</h1>
      <Nothing back={back} />
    </>,
    400,
  );

function Nothing({ back }: { back: string }) {
  return (
    <p class="empty">
      There is nothing to decide here. Select items with their checkbox (or <kbd>x</kbd>) first.{" "}
      <a href={back} data-back>
        Back
      </a>
    </p>
  );
}

interface Possible {
  readonly item: Item;
  readonly offer: Item["actions"][number];
}

/** What the action does and risks, said once for all items with the same words. */
function Risks({ possible }: { possible: readonly Possible[] }) {
  const byRisk = [...Map.groupBy(possible, ({ offer }) => `${offer.risk} ${offer.may_duplicate}`).values()];
  return (
    <ul class="risks">
      {byRisk.slice(0, SHOWN).map((some) => {
        const { offer } = some[0] as Possible;
        const until = some
          .map((one) => one.offer.until)
          .filter((at) => at !== null)
          .sort()[0];
        return (
          <li class={offer.may_duplicate ? "risk" : undefined}>
            {possible.length > 1 && <strong>For {counted(some.length, "delivery", "deliveries")}: </strong>}
            {offer.risk}
            {until && (
              <>
                {" "}
                Safe until <Time at={until} />.
              </>
            )}
          </li>
        );
      })}
    </ul>
  );
}

/** Decides. One item or many: each has its own answer, and the first decision of an item stands. */
export async function decide(page: Page) {
  const chosen = chosenBy(page);
  const { ids, action, filter } = chosen;
  if (!isAction(action) || ids.length === 0) return page.redirect(address(QUEUE, filter), 303);
  const sent = page.get("sent");
  const decision = {
    action,
    note: sent.one("note"),
    ...(sent.one("acknowledge_duplicate_risk") === "true" && { acknowledge_duplicate_risk: true }),
  };
  const ask = page.get("ask");
  try {
    const [first = ""] = ids;
    if (ids.length === 1) {
      const messageId = sent.one("provider_message_id");
      const body = { ...decision, ...(messageId && { provider_message_id: messageId }) };
      await ask("postResolve", { params: { id: first }, body });
      return goOn(page, address(QUEUE, filter), action, { about: first });
    }
    const { data } = await ask("postBulkResolve", { body: { ...decision, ids } });
    const refused = data.filter((one) => "problem" in one);
    if (refused.length > 0) return showOutcome(page, chosen, data);
    return goOn(page, address(QUEUE, filter), action, { count: data.length });
  } catch (error) {
    if (!isFault(error)) throw error;
    return await showRefusal(page, chosen, error);
  }
}

/** The API refused the decision: a lost race is told, a fault is put right in the form. */
async function showRefusal(page: Page, chosen: Chosen, { problem }: Refused) {
  const back = address(QUEUE, chosen.filter);
  if (problem.type === "/problems/already-resolved" || problem.status === 404) {
    const resolution = problem["resolution"] as
      | { by: string; action: string; at: string; note: string | null }
      | undefined;
    return show(
      page,
      "Somebody was first",
      <>
        <h1>{problem.title}</h1>
        <Notice kind="error">
          Nothing was done by you.{" "}
          {resolution ? (
            <>
              <strong>
                <Text value={resolution.by} max={160} />
              </strong>{" "}
              decided “{actionName(resolution.action)}” <Time at={resolution.at} />
              {resolution.note !== null && (
                <>
                  : “<Text value={resolution.note} max={2000} />”
                </>
              )}
            </>
          ) : (
            problem.detail
          )}
        </Notice>
        <p>
          <a href={back} data-back>
            Back to the queue
          </a>
        </p>
      </>,
      409,
    );
  }
  const faults = (problem.errors ?? []).map(
    ({ pointer, detail }) => `${pointer.slice(1).replaceAll("_", " ")} ${detail}`,
  );
  const fault = faults.length > 0 ? `${problem.title}: ${faults.join("; ")}.` : `${problem.title}: ${problem.detail}`;
  return showDecision(page, chosen, await itemsOf(page, chosen), `Nothing was done. ${fault}`);
}

function showOutcome(page: Page, { action, filter }: Chosen, data: Answer<"postBulkResolve">["data"]) {
  const refused = data.filter((one) => "problem" in one);
  return show(
    page,
    "What was done",
    <>
      <h1>
        {counted(data.length - refused.length, "delivery", "deliveries")} of {data.length.toLocaleString("en")} resolved
      </h1>
      <Notice kind="error">
        {actionName(action)} was refused for {counted(refused.length, "item")}; nothing was done to them by you:
      </Notice>
      <ul>
        {refused.slice(0, 200).map((one) => (
          <li>
            <a href={`${QUEUE}/items/${one.id}`}>{one.id}</a>: {"problem" in one && one.problem.detail}
          </li>
        ))}
      </ul>
      <p>
        <a href={address(QUEUE, filter)} data-back>
          Back to the queue
        </a>
      </p>
    </>,
    409,
  );
}

/** Does something small to each item; tells how many it was done to. */
async function toEach(page: Page, done: string, one: (id: string) => Promise<unknown>) {
  const chosen = chosenBy(page);
  const { filter } = chosen;
  const ids = chosen.all ? (await itemsOf(page, chosen)).map(({ id }) => id) : chosen.ids;
  const back = page.get("sent").one("back") === "delivery" ? `${QUEUE}/items/${ids[0]}` : address(QUEUE, filter);
  if (ids.length === 0) return showNothing(page, address(QUEUE, filter));
  const results: PromiseSettledResult<unknown>[] = [];
  for (let from = 0; from < ids.length; from += ITEMS_A_PAGE) {
    results.push(...(await Promise.allSettled(ids.slice(from, from + ITEMS_A_PAGE).map(one))));
  }
  const refused = results.filter((result) => result.status === "rejected").map(({ reason }) => reason as unknown);
  const [worst] = refused;
  if (worst !== undefined && (refused.length === results.length || !(worst instanceof Refused))) throw worst;
  return goOn(page, back, done, { count: results.length - refused.length, left: refused.length });
}

export async function assign(page: Page) {
  const to = page.get("sent").one("to");
  const assignee = to === "me" ? page.get("session").operator : null;
  return await toEach(page, assignee === null ? "unassign" : "assign", (id) =>
    page.get("ask")("postAssign", { params: { id }, body: { assignee } }),
  );
}

export async function snooze(page: Page) {
  const seconds = Number(page.get("sent").one("for"));
  const until = seconds > 0 && seconds <= 30 * 86_400 ? new Date(Date.now() + seconds * 1000).toISOString() : null;
  return await toEach(page, until === null ? "wake" : "snooze", (id) =>
    page.get("ask")("postSnooze", { params: { id }, body: { until } }),
  );
}

export async function addNote(page: Page) {
  const note = page.get("sent").one("note");
  return await toEach(page, "note", (id) => page.get("ask")("postNote", { params: { id }, body: { note } }));
}

/** An item's own address: its delivery has everything. */
export async function findItem(page: Page) {
  const item = await page.get("ask")("getAttentionItem", { params: { id: page.req.param("id") ?? "" } });
  return page.redirect(`/console/deliveries/${item.delivery_id}`, 303);
}
