import { z } from "zod";
import type { DeliveryId } from "../ledger/delivery.ts";
import { unstorablePath } from "../ledger/storable.ts";
import { findProviders } from "../store/channels.ts";
import { listReceipts, type Receipt, type Received } from "../store/receipts.ts";
import { visibleTo } from "./auth.ts";
import type { ApiContext, ApiDeps, Handler } from "./env.ts";
import { faultsOf } from "./faults.ts";
import { readJsonBody } from "./json.ts";
import { cursor, flag, limit, readCursor, readQuery, wanted, writeCursor } from "./list.ts";
import { type Fault, invalid, Problem, pointerOf } from "./problem.ts";
import { receiptView } from "./receipt-view.ts";
import type { ReceiveReceipts } from "./receive.ts";
import { receiptRequest, type received } from "./schemas/receipts.ts";

const MAX_LIST = 1_000;

export const receiptsQuery = z.strictObject({
  matched: flag.optional().meta({ description: "false: those that fit none of the ledger's messages" }),
  channel: wanted(63).optional(),
  delivery_id: z.uuid().optional(),
  provider_message_id: wanted(255).optional(),
  limit,
  cursor,
});

type Posted = z.infer<typeof receiptRequest>;

export function receiptHandlers(deps: ApiDeps, receive: ReceiveReceipts) {
  const postReceipts: Handler = async (context) => {
    const value = await readJsonBody(context, deps.maxBodyBytes);
    if (!Array.isArray(value)) {
      const posted = readReceipt(value);
      await checkChannels([posted]);
      const [result] = await receive.many([receiptOf(posted, context)]);
      return context.json(answerOf(posted, result as Received));
    }
    if (value.length < 1 || value.length > MAX_LIST) {
      throw invalid([{ pointer: "", detail: `must be a list of 1 to ${MAX_LIST} receipts` }]);
    }
    return context.json({ data: await receiveList(value, context) });
  };

  /** One answer each, in order; a bad one spoils no other. */
  async function receiveList(values: readonly unknown[], context: ApiContext) {
    const read = values.map(settled);
    const good = read.flatMap((one) => ("posted" in one ? [one.posted] : []));
    const known = await knownChannels(good);
    const taken = good.filter(({ channel }) => known.has(channel));
    const results = taken.length === 0 ? [] : await receive.many(taken.map((posted) => receiptOf(posted, context)));
    return read.map((one) => {
      if ("problem" in one) return { status: one.problem.status, problem: one.problem.body() };
      const index = taken.indexOf(one.posted);
      if (index < 0) {
        const problem = unknownChannel();
        return { status: problem.status, problem: problem.body() };
      }
      return { status: 200, receipt: answerOf(one.posted, results[index] as Received) };
    });
  }

  async function knownChannels(posted: readonly Posted[]): Promise<ReadonlySet<string>> {
    const ids = new Set(posted.map(({ channel }) => channel));
    const elsewhere = [...ids].filter((id) => !deps.channels.has(id));
    const found = elsewhere.length === 0 ? new Map<string, string>() : await findProviders(deps.db, elsewhere);
    return new Set([...ids].filter((id) => deps.channels.has(id) || found.has(id)));
  }

  async function checkChannels(posted: readonly Posted[]): Promise<void> {
    const known = await knownChannels(posted);
    if (posted.some(({ channel }) => !known.has(channel))) throw unknownChannel();
  }

  const getReceipts: Handler = async (context) => {
    const { limit: size, cursor: from, ...filter } = readQuery(context, receiptsQuery);
    const before = from === undefined ? null : readCursor(from, "receipts");
    const sought = {
      matched: filter.matched,
      channel: filter.channel,
      deliveryId: filter.delivery_id,
      providerMessageId: filter.provider_message_id,
    };
    const rows = await listReceipts(deps.db, sought, visibleTo(context), { before, limit: size + 1 });
    const last = rows.length > size ? rows[size - 1] : undefined;
    return context.json({
      data: rows.slice(0, size).map(receiptView),
      next_cursor: last ? writeCursor("receipts", last.id) : null,
    });
  };

  return { postReceipts, getReceipts };
}

const unknownChannel = (): Problem =>
  new Problem("unknown-channel", "there is no such channel", {
    errors: [{ pointer: "/channel", detail: "is not a channel of this ledger" }],
  });

function readReceipt(value: unknown): Posted {
  const faults: Fault[] = [];
  const parsed = receiptRequest.safeParse(value);
  if (!parsed.success) faults.push(...faultsOf(parsed.error, []));
  else {
    const found = unstorablePath(parsed.data.detail ?? null);
    if (found) faults.push({ pointer: pointerOf(["detail", ...found.path]), detail: found.fault });
  }
  if (!parsed.success || faults.length > 0) throw invalid(faults);
  return parsed.data;
}

function settled(value: unknown): { posted: Posted } | { problem: Problem } {
  try {
    return { posted: readReceipt(value) };
  } catch (error) {
    if (error instanceof Problem) return { problem: error };
    throw error;
  }
}

function receiptOf(posted: Posted, context: ApiContext): Receipt {
  const { channel, event_id: eventId, status } = posted;
  return {
    channel,
    eventId,
    type: status,
    status: status === "sent" ? null : status,
    provesAcceptance: true,
    occurredAt: Date.parse(posted.occurred_at),
    deliveryId: (posted.delivery_id ?? null) as DeliveryId | null,
    providerMessageId: posted.provider_message_id ?? null,
    name: posted.name ?? null,
    producerId: visibleTo(context),
    suppresses: suppresses(posted),
    recipients: null,
    detail: posted.detail ?? null,
  };
}

const PASSING = /^(transient|soft|undetermined)$/i;

/** Why the recipient is suppressed, or null. A bounce is taken for a hard one unless `detail.type` says otherwise. */
function suppresses({ status, detail }: Posted): string | null {
  const type = typeof detail === "object" ? detail["type"] : null;
  if (status === "bounced") return typeof type === "string" && PASSING.test(type) ? null : "hard_bounce";
  if (status === "complained") return "complaint";
  return status === "suppressed" ? "provider_suppressed" : null;
}

const answerOf = (posted: Posted, { result, deliveryId }: Received): z.infer<typeof received> => ({
  event_id: posted.event_id,
  result,
  delivery_id: deliveryId,
});
