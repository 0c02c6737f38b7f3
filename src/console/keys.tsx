import { apiKey } from "../api/schemas.ts";
import { type Answer, isFault } from "./client.ts";
import { Done, goOn } from "./done.tsx";
import { may, type Page, type Scope } from "./env.ts";
import { inTurn } from "./in-turn.ts";
import { Form, show } from "./layout.tsx";
import { Badge, Copied, Notice, Text, Time, Wide } from "./parts.tsx";

type Key = Answer<"getKeys">["data"][number];

const PATH = "/console/keys";
const SCOPES: readonly Scope[] = apiKey.shape.scopes.element.options;

export async function showKeys(page: Page) {
  return await showAll(page, {});
}

async function showAll(page: Page, { fault, made }: { fault?: string; made?: Answer<"postKey"> }) {
  const ask = page.get("ask");
  const session = page.get("session");
  const [keys, producers] = await Promise.all([
    ask("getKeys"),
    may(session, "producers:read") ? ask("getProducers", { query: { limit: "100" } }) : { data: [], next_cursor: null },
  ]);
  const revoked = keys.data.filter(({ revoked_at }) => revoked_at !== null);
  return show(
    page,
    "Producers and keys",
    <>
      <h1>Producers and keys</h1>
      {fault && <Notice kind="error">{fault}</Notice>}
      <Done page={page} />
      {made && (
        <Notice kind="done">
          The key “<Text value={made.name} />
          ”, shown this once: <Copied value={made.key} what="the key" /> The ledger keeps only its hash: copy it now.
        </Notice>
      )}
      <Make page={page} producers={producers.data.map(({ name }) => name)} />
      <h2>Keys</h2>
      <Table keys={keys.data.filter(({ revoked_at }) => revoked_at === null)} />
      {revoked.length > 0 && (
        <details>
          <summary>{revoked.length} revoked</summary>
          <Table keys={revoked} />
        </details>
      )}
      <h2>Producers</h2>
      {producers.data.length === 0 ? (
        <p class="empty">None to be seen. A producer is made with its first key.</p>
      ) : (
        <ul>
          {producers.data.map(({ name, quiet_hours, created_at }) => (
            <li>
              <strong>
                <Text value={name} />
              </strong>{" "}
              <span class="quiet">
                since <Time at={created_at} />
                {quiet_hours && `, quiet from ${quiet_hours.from} to ${quiet_hours.to} (${quiet_hours.time_zone})`}
              </span>
            </li>
          ))}
          {producers.next_cursor && <li>… and more</li>}
        </ul>
      )}
    </>,
    fault ? 422 : 200,
  );
}

function Make({ page, producers }: { page: Page; producers: readonly string[] }) {
  const sent = page.get("sent");
  const isAgain = page.req.method === "POST" && sent.one("name") !== "";
  const value = (name: string) => (isAgain ? sent.one(name) : "");
  return (
    <details open={isAgain}>
      <summary>Make a key</summary>
      <Form session={page.get("session")} action={`${PATH}/make`} class="stacked">
        <label>
          <span>Name</span>
          <input name="name" required maxlength={100} value={value("name")} autocomplete="off" />
        </label>
        <label>
          <span>Producer (none: an operator's key, which sees all and posts none)</span>
          <input name="producer" maxlength={100} value={value("producer")} list="producers" autocomplete="off" />
        </label>
        <datalist id="producers">
          {producers.map((name) => (
            <option value={name} />
          ))}
        </datalist>
        <fieldset>
          <legend>Scopes</legend>
          {SCOPES.map((scope) => (
            <label class="check">
              <input
                type="checkbox"
                name="scopes"
                value={scope}
                checked={isAgain && sent.many("scopes").includes(scope)}
              />
              <span>{scope}</span>
            </label>
          ))}
        </fieldset>
        <button type="submit" class="primary">
          Make the key
        </button>
      </Form>
    </details>
  );
}

function Table({ keys }: { keys: readonly Key[] }) {
  if (keys.length === 0) return <p class="empty">None, beside the admin key of the configuration (if it has one).</p>;
  return (
    <Wide label="keys">
      <table>
        <thead>
          <tr>
            <th>Name</th>
            <th>Revoke</th>
            <th>Producer</th>
            <th>Ends with</th>
            <th>Scopes</th>
            <th>Made</th>
          </tr>
        </thead>
        <tbody>
          {keys.map((key) => (
            <tr>
              <td>
                <Text value={key.name} max={100} />
              </td>
              <td>{key.revoked_at ? <Time at={key.revoked_at} /> : <a href={`${PATH}/${key.id}/revoke`}>Revoke</a>}</td>
              <td>
                {key.producer === null ? <span class="quiet">operators</span> : <Text value={key.producer} max={100} />}
              </td>
              <td>
                <code>…{key.hint}</code>
              </td>
              <td>{key.scopes.length === SCOPES.length ? "all" : key.scopes.map((scope) => <Badge of={scope} />)}</td>
              <td>
                <Time at={key.created_at} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Wide>
  );
}

const oneKeyAtATime = inTurn();

/** Of two clicks, the second finds the first one's key. */
export const makeKey = (page: Page): Promise<Response> => oneKeyAtATime(() => makeOne(page));

async function makeOne(page: Page): Promise<Response> {
  const sent = page.get("sent");
  const ask = page.get("ask");
  const name = sent.one("name");
  const producer = sent.one("producer") || null;
  try {
    const { data } = await ask("getKeys");
    // A page that shows a new key and is loaded again posts again: it must not make a second one.
    const isTaken = data.some((key) => key.name === name && key.producer === producer && key.revoked_at === null);
    if (isTaken) return await showAll(page, { fault: "There is a key of this name already." });
    const made = await ask("postKey", { body: { name, producer, scopes: sent.many("scopes") } });
    return await showAll(page, { made });
  } catch (error) {
    if (!isFault(error)) throw error;
    const faults = (error.problem.errors ?? []).map(({ pointer, detail }) => `${pointer.slice(1)} ${detail}`);
    return await showAll(page, { fault: faults.length > 0 ? `${faults.join("; ")}.` : error.problem.detail });
  }
}

/** Asks before a key is revoked: who uses it stops at once. */
export async function confirmRevoke(page: Page) {
  const session = page.get("session");
  const id = page.req.param("id") ?? "";
  const { data } = await page.get("ask")("getKeys");
  const key = data.find((one) => one.id === id);
  if (!key || key.revoked_at !== null) return page.redirect(PATH, 303);
  const isOwn = session.principal.keyId === id;
  return show(
    page,
    "Revoke a key",
    <>
      <h1>
        Revoke the key “<Text value={key.name} max={100} />” (…{key.hint})
      </h1>
      <Notice kind="error">
        Whoever uses it is refused at once, and console sessions that were signed in with it end. It cannot be taken
        back.
        {isOwn && " It is the key of this session: you are signed out."}
      </Notice>
      <Form session={session} action={`${PATH}/revoke`} class="buttons">
        <input type="hidden" name="id" value={id} />
        <button type="submit" class="primary risky">
          Revoke it
        </button>
        <a href={PATH} data-back>
          Back, nothing done
        </a>
      </Form>
    </>,
  );
}

export async function revokeKey(page: Page) {
  await page.get("ask")("deleteKey", { params: { id: page.get("sent").one("id") } });
  return goOn(page, PATH, "revoke");
}
