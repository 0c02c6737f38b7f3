import { z } from "zod";
import { type DeliveryId, FAILURES, type ProducerId, RECEIPT_STATUSES, STATES } from "../ledger/delivery.ts";
import { PROVIDERS } from "../providers/index.ts";
import { cancelDelivery } from "../store/cancel.ts";
import { findProviders } from "../store/channels.ts";
import {
  type DeliveryRow,
  findDelivery,
  findMessage,
  listAttempts,
  listDeliveries,
  readTimeline,
} from "../store/deliveries.ts";
import { type Accepted, createAccept } from "./accept.ts";
import { visibleTo } from "./auth.ts";
import { type OpenChannel, readDelivery } from "./delivery-request.ts";
import { attemptView, deliveryView } from "./delivery-view.ts";
import type { ApiContext, ApiDeps, Handler } from "./env.ts";
import { instant } from "./instant.ts";
import { readJsonBody } from "./json.ts";
import { cursor, limit, readCursor, readQuery, wanted, writeCursor } from "./list.ts";
import { invalid, Problem, type ProblemBody, pointerOf } from "./problem.ts";
import type * as schemas from "./schemas.ts";

const MAX_BATCH = 1_000;
const TERMINAL = new Set(["sent", "failed", "cancelled", "expired", "suppressed"]);

const at = instant.transform((text) => new Date(text));
export const listQuery = z.strictObject({
  name: wanted(1_024).optional(),
  state: z.enum(STATES).optional(),
  channel: wanted(63).optional(),
  to: wanted(2_048).optional(),
  schedule: wanted(1_024).optional(),
  accepted_after: at.optional(),
  accepted_before: at.optional(),
  failure: z.enum(FAILURES).optional(),
  receipt: z.enum(RECEIPT_STATUSES).optional(),
  provider_message_id: wanted(255).optional().meta({ description: "of any attempt, or given by a person" }),
  limit,
  cursor,
});

type View = z.infer<typeof schemas.delivery>;
type Answer = { status: 200 | 202; delivery: View | z.infer<typeof schemas.remembered> };
type ItemAnswer = Answer | { status: number; problem: ProblemBody };

export function deliveryHandlers(deps: ApiDeps) {
  const accept = createAccept(deps.db);
  const view = (row: DeliveryRow): View => deliveryView(row, deps.channels.has(row.channel));

  /** A channel that is only in the database (its credentials were taken away) still takes deliveries, and holds them. */
  async function channelsFor(values: readonly unknown[]): Promise<(id: string) => OpenChannel | null> {
    const ids = new Set(values.map((value) => (value as { channel?: unknown } | null)?.channel));
    const elsewhere = [...ids].filter((id) => typeof id === "string").filter((id) => !deps.channels.has(id));
    const found = elsewhere.length === 0 ? new Map<string, string>() : await findProviders(deps.db, elsewhere);
    return (id) => {
      const provider = PROVIDERS[found.get(id) ?? ""];
      return deps.channels.get(id) ?? (provider ? { provider, adapter: null } : null);
    };
  }

  function answerOf({ taken, row }: Accepted, name: string): Answer {
    if (taken.kind === "reused") {
      const errors = taken.pointers.map((pointer) => ({
        pointer,
        detail: "differs from the request that has this name",
      }));
      throw new Problem("name-reused", `the name belongs to another request, accepted as ${taken.id}`, { errors });
    }
    if (taken.kind === "too_late") throw invalid([{ pointer: "/expires_at", detail: "must be in the future" }]);
    if (taken.kind === "remembered" || !row) {
      const outcome = taken.kind === "remembered" ? taken.outcome : null;
      return { status: 200, delivery: { id: taken.id, name, removed: true, outcome } };
    }
    // A repeat re-drives what follows the commit, in case the first did not get that far.
    if (!TERMINAL.has(row.state)) deps.wake([row.channel]);
    return { status: taken.kind === "accepted" ? 202 : 200, delivery: view(row) };
  }

  const postDelivery: Handler = async (context) => {
    const value = await readJsonBody(context, deps.maxBodyBytes);
    const channel = await channelsFor([value]);
    const posted = readDelivery(value, { producerId: producerOf(context), headerName: headerName(context), channel });
    const { status, delivery } = answerOf(await accept.one(posted), posted.name);
    context.set("deliveryId", delivery.id);
    const replayed: Record<string, string> = status === 200 ? { "idempotent-replayed": "true" } : {};
    return context.json(delivery, status, { location: `/v1/deliveries/${delivery.id}`, ...replayed });
  };

  const postBatch: Handler = async (context) => {
    if (context.req.header("idempotency-key") !== undefined) {
      throw new Problem(
        "invalid-parameter",
        "Idempotency-Key names one delivery; in a batch each needs a name of its own",
      );
    }
    const values = await readJsonBody(context, deps.maxBodyBytes);
    if (!Array.isArray(values) || values.length < 1 || values.length > MAX_BATCH) {
      throw invalid([{ pointer: "", detail: `must be a list of 1 to ${MAX_BATCH} deliveries` }]);
    }
    const producerId = producerOf(context);
    const channel = await channelsFor(values);
    const read = values.map((value) => settled(() => readDelivery(value, { producerId, headerName: null, channel })));
    const good = read.flatMap((one) => ("value" in one ? [one.value] : []));
    const accepted = good.length === 0 ? [] : await accept.many(good);
    let next = 0;
    const data = read.map((one): ItemAnswer => {
      if ("problem" in one) return { status: one.problem.status, problem: one.problem.body() };
      const answer = settled(() => answerOf(accepted[next++] as Accepted, one.value.name));
      return "value" in answer ? answer.value : { status: answer.problem.status, problem: answer.problem.body() };
    });
    return context.json({ data });
  };

  async function find(context: ApiContext): Promise<DeliveryRow> {
    const id = context.req.param("id") ?? "";
    const row = z.uuid().safeParse(id).success ? await findDelivery(deps.db, id, visibleTo(context)) : null;
    if (!row) throw new Problem("not-found", "there is no such delivery");
    context.set("deliveryId", row.id);
    return row;
  }

  const getDelivery: Handler = async (context) => {
    const row = await find(context);
    const attempts = await listAttempts(deps.db, row.id);
    return context.json({ ...view(row), attempts: attempts.map(attemptView) });
  };

  const getDeliveries: Handler = async (context) => {
    const { limit: size, cursor: from, ...asked } = readQuery(context, listQuery);
    const { accepted_after, accepted_before, provider_message_id, ...filter } = asked;
    const before = from === undefined ? null : readCursor(from, "deliveries");
    const sought = {
      ...filter,
      acceptedAfter: accepted_after,
      acceptedBefore: accepted_before,
      providerMessageId: provider_message_id,
    };
    const rows = await listDeliveries(deps.db, sought, visibleTo(context), { before, limit: size + 1 });
    const page = rows.slice(0, size);
    const last = page.at(-1);
    return context.json({
      data: page.map(view),
      next_cursor: rows.length > size && last ? writeCursor("deliveries", last.id) : null,
    });
  };

  const getTimeline: Handler = async (context) => {
    const entries = await readTimeline(deps.db, (await find(context)).id);
    return context.json({
      data: entries.map(({ at, type, data }) => ({ ...data, at: at.toISOString(), type })),
      next_cursor: null,
    });
  };

  const getMessage: Handler = async (context) =>
    context.json({ message: await findMessage(deps.db, (await find(context)).id) });

  const postCancel: Handler = async (context) => {
    const row = await find(context);
    await cancelDelivery(deps.db, row.id as DeliveryId, row.producer_id, context.get("principal").keyName);
    const after = await find(context);
    if (after.state === "cancelled") return context.json(view(after));
    if (after.state === "claimed" || (after.state === "pending" && !after.in_doubt)) {
      throw new Problem("already-claimed", "an attempt was under way at that moment");
    }
    if (after.in_doubt) throw new Problem("in-doubt", "an attempt may have been sent; cancelling would deny it");
    throw new Problem("already-settled", `the delivery is ${after.state}`);
  };

  return { postDelivery, postBatch, getDelivery, getDeliveries, getTimeline, getMessage, postCancel };
}

/** The producer in whose name the key posts. */
function producerOf(context: ApiContext): ProducerId {
  const { producerId } = context.get("principal");
  if (producerId === null) throw new Problem("forbidden", "an operator's key belongs to no producer and cannot post");
  return producerId;
}

function headerName(context: ApiContext): string | null {
  const name = context.req.header("idempotency-key");
  if (name === undefined) return null;
  if (!/^[\x20-\x7e]*$/.test(name)) {
    const errors = [
      { pointer: pointerOf(["name"]), detail: "must be ASCII in a header; in the body it may be any text" },
    ];
    throw new Problem("invalid-parameter", "Idempotency-Key must be printable ASCII", { errors });
  }
  return name;
}

function settled<T>(work: () => T): { value: T } | { problem: Problem } {
  try {
    return { value: work() };
  } catch (error) {
    if (error instanceof Problem) return { problem: error };
    throw error;
  }
}
