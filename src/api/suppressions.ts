import { z } from "zod";
import { PROVIDERS } from "../providers/index.ts";
import type { Provider } from "../providers/provider.ts";
import { CHANNEL_ID, findProviders } from "../store/channels.ts";
import {
  findSuppression,
  listSuppressions,
  putSuppression,
  removeSuppression,
  type SuppressionPlace,
  type SuppressionRow,
} from "../store/suppressions.ts";
import type { ApiContext, ApiDeps, Handler } from "./env.ts";
import { faultsOf } from "./faults.ts";
import { readJsonBody } from "./json.ts";
import { limit, readQuery, wanted } from "./list.ts";
import { invalid, Problem, summary } from "./problem.ts";
import { type suppression, suppressionRequest } from "./schemas/suppressions.ts";

export const suppressionsQuery = z.strictObject({
  channel: wanted(63).optional(),
  recipient: wanted(2_048).optional().meta({ description: "whatever its case" }),
  reason: wanted(500).optional(),
  limit,
  // It holds a recipient, and so is longer than other lists'.
  cursor: z.string().max(4_096).optional().meta({ description: "next_cursor of the page before" }),
});

export const removalQuery = z.strictObject({
  reason: wanted(500).optional().meta({ description: "why, for the record" }),
});

export function suppressionHandlers(deps: ApiDeps) {
  const getSuppressions: Handler = async (context) => {
    const { limit: size, cursor, ...filter } = readQuery(context, suppressionsQuery);
    const after = cursor === undefined ? null : readPlace(cursor);
    const rows = await listSuppressions(deps.db, filter, { after, limit: size + 1 });
    const last = rows.length > size ? rows[size - 1] : undefined;
    return context.json({ data: rows.slice(0, size).map(view), next_cursor: last ? writePlace(last) : null });
  };

  const getSuppression: Handler = async (context) => {
    const { channel, recipient } = target(context);
    const row = canBeListed(recipient) ? await findSuppression(deps.db, channel, recipient) : null;
    if (!row) throw notSuppressed();
    return context.json(view(row));
  };

  const put: Handler = async (context) => {
    const { channel, recipient: given } = target(context);
    const provider = await providerOf(channel);
    if (!provider) throw noSuchChannel();
    const body = suppressionRequest.safeParse(await readJsonBody(context, deps.maxBodyBytes));
    if (!body.success) throw invalid(faultsOf(body.error, []));
    const { reason } = body.data;
    const by = context.get("principal").keyName;
    const recipient = recipientOf(given, provider);
    const { row, added } = await putSuppression(deps.db, { channel, recipient, reason, by });
    const location = `/v1/suppressions/${channel}/${encodeURIComponent(row.recipient)}`;
    return added ? context.json(view(row), 201, { location }) : context.json(view(row), 200);
  };

  const deleteSuppression: Handler = async (context) => {
    const { reason: note = null } = readQuery(context, removalQuery);
    const place = { ...target(context), by: context.get("principal").keyName, note };
    const removed = canBeListed(place.recipient) && (await removeSuppression(deps.db, place));
    if (!removed) throw notSuppressed();
    return context.body(null, 204);
  };

  async function providerOf(channel: string): Promise<Provider | undefined> {
    const here = deps.channels.get(channel)?.provider;
    return here ?? PROVIDERS[(await findProviders(deps.db, [channel])).get(channel) ?? ""];
  }

  return { getSuppressions, getSuppression, putSuppression: put, deleteSuppression };
}

const noSuchChannel = () => new Problem("not-found", "there is no such channel");
const notSuppressed = () => new Problem("not-found", "this recipient is not suppressed on this channel");

const view = (row: SuppressionRow): z.infer<typeof suppression> => ({
  channel: row.channel,
  recipient: row.recipient,
  reason: row.reason,
  created_by: row.created_by,
  created_at: row.created_at.toISOString(),
});

/** From the path as it was sent: the router's own decoding lets what is wrongly encoded through. */
function target(context: ApiContext): { channel: string; recipient: string } {
  const [, , , channel = "", encoded = ""] = new URL(context.req.url).pathname.split("/");
  if (!CHANNEL_ID.test(channel)) throw noSuchChannel();
  try {
    return { channel, recipient: decodeURIComponent(encoded) };
  } catch {
    const errors = [{ pointer: "/recipient", detail: "must be UTF-8, percent-encoded" }];
    throw new Problem("invalid-parameter", summary(errors), { errors });
  }
}

/** No list holds U+0000, and no statement takes it. */
const canBeListed = (recipient: string): boolean => !recipient.includes("\0");

/** The recipient as deliveries on this channel have it. */
function recipientOf(given: string, provider: Provider): string {
  const parsed = provider.recipient.safeParse(given);
  if (parsed.success) return parsed.data;
  const errors = faultsOf(parsed.error, ["recipient"]);
  throw new Problem("invalid-parameter", summary(errors), { errors });
}

const place = z.tuple([z.literal("suppressions"), z.int().min(0).max(99_999_999_999_999), wanted(63), wanted(2_048)]);

const writePlace = ({ created_at: at, channel, recipient }: SuppressionPlace): string =>
  Buffer.from(JSON.stringify(["suppressions", at.getTime(), channel, recipient])).toString("base64url");

function readPlace(cursor: string): SuppressionPlace {
  const parsed = place.safeParse(jsonOf(Buffer.from(cursor, "base64url").toString()));
  if (parsed.success) {
    const [, ms, channel, recipient] = parsed.data;
    const found = { created_at: new Date(ms), channel, recipient };
    if (writePlace(found) === cursor) return found;
  }
  throw new Problem("invalid-cursor", "the cursor is not one of this list");
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
