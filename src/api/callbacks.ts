import type { z } from "zod";
import { isPublicAddress, literalAddress } from "../callbacks/address.ts";
import { messageId, postMessage } from "../callbacks/callbacks.ts";
import { openPoster } from "../callbacks/post.ts";
import { isSecret, newSecret } from "../callbacks/sign.ts";
import {
  type CallbackRow,
  deleteCallback as deleteRow,
  enableCallback,
  findCallback,
  placeBefore,
  putCallback as putRow,
  replayFrom,
  rotateSecret,
  secretsOf,
} from "../store/callbacks.ts";
import { findProducer } from "../store/producers.ts";
import { visibleTo } from "./auth.ts";
import type { ApiContext, ApiDeps, Handler } from "./env.ts";
import { readPosition } from "./events.ts";
import { faultsOf } from "./faults.ts";
import { readJsonBody } from "./json.ts";
import { type Fault, invalid, Problem } from "./problem.ts";
import * as schemas from "./schemas/callbacks.ts";

/** A test answers within the patience of a request. */
const TEST_WITHIN_MS = 5_000;

const text = (at: Date | null): string | null => at?.toISOString() ?? null;

const view = (row: CallbackRow): z.infer<typeof schemas.callback> => ({
  url: row.url,
  types: row.types === null ? null : [...row.types],
  enabled: row.disabled_at === null,
  disabled: row.disabled_at && { at: row.disabled_at.toISOString(), reason: row.disabled_reason ?? "" },
  failing_since: text(row.failing_since),
  last_success_at: text(row.last_success_at),
  last_failure: row.last_failure_at && { at: row.last_failure_at.toISOString(), error: row.last_failure ?? "" },
  old_secret_until: text(row.old_secret_until),
  backlog: row.backlog,
  created_at: row.created_at.toISOString(),
});

const noCallback = () => new Problem("not-found", "the producer has no callback");

export function callbackHandlers(deps: ApiDeps) {
  const { db, allowPrivateCallbacks: allowPrivate } = deps;
  const poster = openPoster({ allowPrivate, timeoutMs: TEST_WITHIN_MS });

  async function producerOf(context: ApiContext) {
    const name = context.req.param("producer") ?? "";
    const row = name.includes("\0") ? null : await findProducer(db, name, visibleTo(context));
    if (!row) throw new Problem("not-found", "there is no such producer");
    return row.id;
  }

  async function find(context: ApiContext): Promise<CallbackRow> {
    const row = await findCallback(db, await producerOf(context));
    if (!row) throw noCallback();
    return row;
  }

  const getCallback: Handler = async (context) => context.json(view(await find(context)));

  const putCallback: Handler = async (context) => {
    const { url, secret = null, types = null } = await read(context, schemas.callbackRequest);
    const faults = [...urlFaults(url, allowPrivate), ...secretFaults(secret)];
    if (faults.length > 0) throw invalid(faults);
    const producerId = await producerOf(context);
    const fallback = newSecret();
    const { isNew } = await putRow(db, { producerId, url, types, secret, fallback });
    const shown = secret ?? (isNew ? fallback : null);
    return context.json({ ...view(await find(context)), ...(shown !== null && { secret: shown }) }, isNew ? 201 : 200);
  };

  const deleteCallback: Handler = async (context) => {
    if (!(await deleteRow(db, await producerOf(context)))) throw noCallback();
    return context.body(null, 204);
  };

  const postCallbackEnable: Handler = async (context) => {
    if (!(await enableCallback(db, await producerOf(context)))) throw noCallback();
    return context.json(view(await find(context)));
  };

  const postCallbackRotate: Handler = async (context) => {
    const secret = newSecret();
    if (!(await rotateSecret(db, await producerOf(context), secret))) throw noCallback();
    return context.json({ ...view(await find(context)), secret });
  };

  const postCallbackTest: Handler = async (context) => {
    const { producer_id: producerId, url } = await find(context);
    const now = new Date();
    const id = { tx: "test", eventId: String(now.getTime()) };
    const body = JSON.stringify({
      type: "ledger.test",
      timestamp: now.toISOString(),
      data: { event_id: messageId(id) },
    });
    const message = { ...id, body, url, secrets: await secretsOf(db, producerId) };
    const { ok, status, error } = await postMessage(poster, message, now);
    return context.json({ ok, status, error });
  };

  const postCallbackReplay: Handler = async (context) => {
    const { after, since } = await read(context, schemas.replayRequest);
    const producerId = await producerOf(context);
    const place = after === undefined ? await placeBefore(db, producerId, new Date(since ?? 0)) : readPosition(after);
    if (place !== null && !(await replayFrom(db, producerId, place))) throw noCallback();
    return context.json(view(await find(context)));
  };

  async function read<S extends z.ZodType>(context: ApiContext, schema: S): Promise<z.infer<S>> {
    const parsed = schema.safeParse(await readJsonBody(context, deps.maxBodyBytes));
    if (!parsed.success) throw invalid(faultsOf(parsed.error, []));
    return parsed.data;
  }

  const settings = { getCallback, putCallback, deleteCallback };
  return { ...settings, postCallbackEnable, postCallbackRotate, postCallbackTest, postCallbackReplay };
}

/** A name's addresses are checked at each post: it can resolve to something else by then. */
function urlFaults(text: string, allowPrivate: boolean): Fault[] {
  const fault = (detail: string): Fault[] => [{ pointer: "/url", detail }];
  if (!URL.canParse(text)) return fault("must be a URL");
  const url = new URL(text);
  if (url.protocol !== "https:" && !(allowPrivate && url.protocol === "http:"))
    return fault("must begin with https://");
  if (url.username !== "" || url.password !== "") return fault("must not contain a user or a password");
  if (url.hash !== "") return fault("must not have a fragment");
  const address = literalAddress(url);
  return allowPrivate || address === null || isPublicAddress(address)
    ? []
    : fault("must not lead to an address that is not public");
}

const secretFaults = (secret: string | null): Fault[] =>
  secret === null || isSecret(secret)
    ? []
    : [{ pointer: "/secret", detail: "must be whsec_ and 24 to 64 bytes in Base64" }];
