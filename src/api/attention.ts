import { z } from "zod";
import type { DeliveryId, ProducerId } from "../ledger/delivery.ts";
import { capabilityOf } from "../providers/index.ts";
import {
  countItems,
  findItemIds,
  findItems,
  type ItemFilter,
  type ItemRow,
  listItemEvents,
  listItems,
  listNeighbours,
  summarizeItems,
} from "../store/attention.ts";
import { findDeliveries, listAttemptsOf } from "../store/deliveries.ts";
import { listReceiptsOf } from "../store/receipts.ts";
import { type Decided, type Handling, handleItem, type Resolved, resolveItems } from "../store/resolutions.ts";
import { itemView } from "./attention-view.ts";
import { visibleTo } from "./auth.ts";
import { deliveryView } from "./delivery-view.ts";
import type { ApiContext, ApiDeps, Handler } from "./env.ts";
import { faultsOf } from "./faults.ts";
import { readJsonBody } from "./json.ts";
import { cursor, flag, limit, readQuery, readTimeCursor, wanted, writeTimeCursor } from "./list.ts";
import { invalid, Problem } from "./problem.ts";
import * as schemas from "./schemas/attention.ts";

const MAX_BULK = 1_000;

const MAX_IDS = 100;

export const attentionQuery = z.strictObject({
  ids: z
    .string()
    .transform((text) => text.split(","))
    .pipe(z.array(z.uuid()).max(MAX_IDS, `must be at most ${MAX_IDS} ids`))
    .optional()
    .meta({ override: { type: "string" }, description: `up to ${MAX_IDS}, with commas between them` }),
  channel: wanted(63).optional(),
  reason: wanted(63).optional(),
  assignee: wanted(100).optional().meta({ description: "none: nobody's" }),
  producer: wanted(100).optional(),
  older_than: z
    .string()
    .regex(/^\d{1,9}$/, "must be a whole number of seconds")
    .transform(Number)
    .optional()
    .meta({ override: { type: "integer", minimum: 0 }, description: "seconds" }),
  snoozed: flag.optional().meta({ description: "true: also those that were put off, or are being looked up" }),
  limit,
  cursor,
});

const noSuchItem = () => new Problem("not-found", "there is no such item");

export function attentionHandlers(deps: ApiDeps) {
  const askedFirst = [...deps.channels].filter(([, { canLookUp }]) => canLookUp).map(([id]) => id);

  /** Items as they are answered, with all that is around them: a few statements, however many items. */
  async function views(items: readonly ItemRow[], producerId: ProducerId | null) {
    if (items.length === 0) return [];
    const ids = items.map(({ delivery_id }) => delivery_id);
    const [deliveries, attempts, receipts, events, neighbours] = await Promise.all([
      findDeliveries(deps.db, ids),
      listAttemptsOf(deps.db, ids),
      listReceiptsOf(deps.db, ids),
      listItemEvents(deps.db, ids),
      listNeighbours(deps.db, ids, producerId),
    ]);
    return items.flatMap((item) => {
      const delivery = deliveries.get(item.delivery_id);
      if (!delivery) return [];
      const channel = deps.channels.get(delivery.channel);
      return itemView(item, {
        delivery,
        configured: channel !== undefined,
        canLookUp: channel?.canLookUp ?? false,
        attempts: attempts.get(item.delivery_id) ?? [],
        receipts: receipts.get(item.delivery_id) ?? [],
        events: events.filter(({ delivery_id }) => delivery_id === item.delivery_id),
        neighbours: neighbours.filter(({ to_id }) => to_id === item.delivery_id),
      });
    });
  }

  function itemId(context: ApiContext): string {
    const id = context.req.param("id") ?? "";
    if (!z.uuid().safeParse(id).success) throw noSuchItem();
    return id.toLowerCase();
  }

  async function readItem(context: ApiContext, id: string) {
    const producerId = visibleTo(context);
    const item = (await findItems(deps.db, [id], producerId)).get(id);
    const [view] = item ? await views([item], producerId) : [];
    if (!item || !view) throw noSuchItem();
    context.set("deliveryId", item.delivery_id);
    return { item, view };
  }

  const getAttention: Handler = async (context) => {
    const {
      limit: size,
      cursor: from,
      older_than: olderThanS,
      snoozed = false,
      ...filter
    } = readQuery(context, attentionQuery);
    const place = from === undefined ? null : readTimeCursor(from, "attention");
    const producerId = visibleTo(context);
    const sought: ItemFilter = { ...filter, olderThanS, snoozed, askedFirst };
    const after = place && { openedAt: place.at, id: place.id };
    const [rows, total] = await Promise.all([
      listItems(deps.db, sought, producerId, { after, limit: size + 1 }),
      countItems(deps.db, sought, producerId),
    ]);
    const last = rows.length > size ? rows[size - 1] : undefined;
    return context.json({
      data: await views(rows.slice(0, size), producerId),
      next_cursor: last ? writeTimeCursor("attention", last.opened_at, last.id) : null,
      total,
    });
  };

  const getAttentionSummary: Handler = async (context) => {
    const rows = await summarizeItems(deps.db, visibleTo(context));
    const data = rows.map((row) => ({ ...row, oldest_at: row.oldest_at.toISOString() }));
    return context.json({ total: rows.reduce((sum, { count }) => sum + count, 0), data });
  };

  const getAttentionItem: Handler = async (context) => context.json((await readItem(context, itemId(context))).view);

  /** Decisions, in one commit; wakes the workers for what may be attempted now. */
  async function resolve(context: ApiContext, decisions: readonly Decided[]): Promise<readonly Resolved[]> {
    const results = await resolveItems(deps.db, decisions, visibleTo(context), capabilityOf);
    const woken = results.flatMap((result) => (result.kind === "resolved" && result.attempts ? [result.channel] : []));
    if (woken.length > 0) deps.wake(new Set(woken));
    for (const [index, result] of results.entries()) {
      if (result.kind !== "resolved") continue;
      const { action, by, itemId: item } = decisions[index] as Decided;
      deps.log.warn(
        { event: "attention.resolved", delivery_id: result.deliveryId, item, action, by },
        "a person decided",
      );
    }
    return results;
  }

  const postResolve: Handler = async (context) => {
    const body = await readBodyOf(context, deps, schemas.resolveRequest);
    const id = itemId(context);
    const [result] = await resolve(context, [decisionOf(id, body, context)]);
    const deliveryId = deliveryOf(result as Resolved);
    context.set("deliveryId", deliveryId);
    return context.json(await deliveryAfter(deliveryId));
  };

  async function deliveryAfter(id: DeliveryId) {
    const row = (await findDeliveries(deps.db, [id])).get(id);
    if (!row) throw noSuchItem();
    return deliveryView(row, deps.channels.has(row.channel));
  }

  const postBulkResolve: Handler = async (context) => {
    const body = await readBodyOf(context, deps, schemas.bulkResolveRequest);
    const ids = body.ids?.map((id) => id.toLowerCase()) ?? (await filteredIds(context, body));
    const results = await resolve(
      context,
      ids.map((id) => decisionOf(id, body, context)),
    );
    const resolved = results.flatMap((result) => (result.kind === "resolved" ? [result.deliveryId] : []));
    const rows = await findDeliveries(deps.db, resolved);
    const data = results.map((result, index) => {
      const id = ids[index] as string;
      try {
        const row = rows.get(deliveryOf(result));
        if (!row) throw noSuchItem();
        return { id, status: 200, delivery: deliveryView(row, deps.channels.has(row.channel)) };
      } catch (error) {
        if (!(error instanceof Problem)) throw error;
        return { id, status: error.status, problem: error.body() };
      }
    });
    return context.json({ data });
  };

  /** The items of a filter, if they are as many as the caller thinks. */
  async function filteredIds(
    context: ApiContext,
    { filter = {}, expected_count: expected = 0 }: z.infer<typeof schemas.bulkResolveRequest>,
  ): Promise<readonly string[]> {
    const { older_than: olderThanS, ...rest } = filter;
    const sought = { ...rest, olderThanS, snoozed: false, askedFirst };
    const ids = await findItemIds(deps.db, sought, visibleTo(context), MAX_BULK + 1);
    if (ids.length !== expected) {
      const extensions = { actual_count: ids.length };
      const detail = `the filter names ${ids.length > MAX_BULK ? `more than ${MAX_BULK}` : ids.length} items, not ${expected}`;
      throw new Problem("count-mismatch", detail, { extensions });
    }
    return ids;
  }

  async function handle(context: ApiContext, handling: Handling): Promise<Response> {
    const id = itemId(context);
    const done = await handleItem(deps.db, id, visibleTo(context), context.get("principal").keyName, handling);
    const { view } = await readItem(context, id);
    if (!done && view.resolution) throw alreadyResolved(view.resolution);
    return context.json(view);
  }

  const postAssign: Handler = async (context) => {
    const { assignee } = await readBodyOf(context, deps, schemas.assignRequest);
    return await handle(context, { kind: "assigned", assignee });
  };
  const postSnooze: Handler = async (context) => {
    const { until } = await readBodyOf(context, deps, schemas.snoozeRequest);
    return await handle(context, { kind: "snoozed", until: until === null ? null : new Date(until) });
  };
  const postNote: Handler = async (context) => {
    const { note } = await readBodyOf(context, deps, schemas.noteRequest);
    return await handle(context, { kind: "noted", note });
  };

  const reads = { getAttention, getAttentionSummary, getAttentionItem };
  return { ...reads, postResolve, postBulkResolve, postAssign, postSnooze, postNote };
}

/** A body by its schema, or a problem that names each fault. */
async function readBodyOf<S extends z.ZodType>(context: ApiContext, deps: ApiDeps, schema: S): Promise<z.infer<S>> {
  const parsed = schema.safeParse(await readJsonBody(context, deps.maxBodyBytes));
  if (!parsed.success) throw invalid(faultsOf(parsed.error, []));
  return parsed.data;
}

interface DecisionBody {
  readonly action: Decided["action"];
  readonly note: string;
  readonly acknowledge_duplicate_risk?: boolean | undefined;
  readonly provider_message_id?: string | undefined;
}

const decisionOf = (itemId: string, body: DecisionBody, context: ApiContext): Decided => ({
  itemId,
  action: body.action,
  note: body.note,
  by: context.get("principal").keyName,
  providerMessageId: body.provider_message_id ?? null,
  acknowledgesDuplicateRisk: body.acknowledge_duplicate_risk === true,
});

function alreadyResolved(resolution: { action: string; by: string; at: string; note: string | null }): Problem {
  const { action, by, at } = resolution;
  const extensions = { resolution };
  return new Problem("already-resolved", `${by} was first: ${action} at ${at}`, { extensions });
}

/** The delivery of a resolution that stands; a problem says why there is none. */
function deliveryOf(result: Resolved): DeliveryId {
  switch (result.kind) {
    case "resolved":
      return result.deliveryId;
    case "not_found":
      throw noSuchItem();
    case "already_resolved": {
      const { action, by, at, note } = result;
      throw alreadyResolved({ action, by, at: at.toISOString(), note });
    }
    case "not_possible":
      throw new Problem("not-possible", result.why);
    case "duplicate_risk": {
      const errors = [{ pointer: "/acknowledge_duplicate_risk", detail: "must be true to accept that risk" }];
      throw new Problem("duplicate-risk", result.risk, { errors });
    }
    default:
      throw new Error(`no answer for ${result satisfies never}`);
  }
}
