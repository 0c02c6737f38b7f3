import type { z } from "zod";
import { guarantees, meaningOf, offers, refusals, safeRepeatUntil } from "../ledger/attention.ts";
import { PROVIDERS } from "../providers/index.ts";
import type { ItemEvent, ItemRow, NeighbourRow } from "../store/attention.ts";
import type { AttemptRow, DeliveryRow } from "../store/deliveries.ts";
import type { ReceiptRow } from "../store/receipts.ts";
import { doubtfulOf } from "../store/resolutions.ts";
import { attemptView, deliveryView } from "./delivery-view.ts";
import { receiptView } from "./receipt-view.ts";
import type { attentionItem } from "./schemas/attention.ts";

/** What is read of an item beside its row. */
export interface ItemSurroundings {
  readonly delivery: DeliveryRow;
  readonly configured: boolean;
  /** Whether its channel's provider can be asked what became of a message. */
  readonly canLookUp: boolean;
  readonly attempts: readonly AttemptRow[];
  readonly receipts: readonly ReceiptRow[];
  readonly events: readonly ItemEvent[];
  readonly neighbours: readonly NeighbourRow[];
}

type View = z.infer<typeof attentionItem>;

const text = (at: Date | null): string | null => at?.toISOString() ?? null;

/** An item with everything that an operator needs to decide in ten seconds. */
export function itemView(item: ItemRow, around: ItemSurroundings): View {
  const { delivery, configured } = around;
  const provider = PROVIDERS[item.provider];
  const now = item.now.getTime();
  const doubtful = doubtfulOf(item);
  const isOpen = item.closed_at === null;
  const until = provider && isOpen ? safeRepeatUntil(item.history, provider.capability) : null;
  const open = provider && isOpen ? offers(doubtful, provider.capability, now) : [];
  return {
    id: item.id,
    delivery_id: item.delivery_id,
    producer: delivery.producer,
    channel: item.channel,
    to: delivery.recipient,
    preview: provider && item.message !== null ? provider.preview(item.message) : null,
    reason: item.reason,
    why: whyOf(item, around.attempts),
    opened_at: item.opened_at.toISOString(),
    age_s: Math.max(0, Math.floor((now - item.opened_at.getTime()) / 1000)),
    assignee: item.assignee,
    snoozed_until: text(item.snoozed_until),
    same_key_until: until !== null && until > now ? new Date(until).toISOString() : null,
    actions: open.map(({ action, mayDuplicate, until: offeredUntil, risk }) => ({
      action,
      may_duplicate: mayDuplicate,
      until: offeredUntil === null ? null : new Date(offeredUntil).toISOString(),
      risk,
    })),
    not_possible: provider && isOpen ? [...refusals(doubtful, provider.capability, now)] : [],
    guarantees: provider ? [...guarantees(provider.capability)] : [],
    lookup: { asked: item.lookups, next_at: around.canLookUp ? text(item.lookup_after) : null },
    resolution:
      item.closed_at && item.resolution
        ? {
            action: item.resolution,
            by: item.resolved_by ?? "ledger",
            at: item.closed_at.toISOString(),
            note: item.note,
          }
        : null,
    delivery: { ...deliveryView(delivery, configured), attempts: around.attempts.map(attemptView) },
    receipts: around.receipts.map(receiptView),
    history: around.events.map(({ at, type, data }) => ({ ...data, at: at.toISOString(), type })),
    same_recipient: around.neighbours.map(({ id, name, state, accepted_at }) => ({
      ...{ id, name, state },
      accepted_at: accepted_at.toISOString(),
    })),
  };
}

/** Why it is doubtful: which attempt, which phase of which answer; or what contradicts what. */
function whyOf(item: ItemRow, attempts: readonly AttemptRow[]): View["why"] {
  const table = PROVIDERS[item.provider]?.capability;
  const mean = (reason: string) => (table ? meaningOf(reason, table) : reason);
  const doubtful = attempts.findLast(({ verdict }) => verdict === "unknown");
  return {
    text: mean(item.reason),
    attempt: doubtful
      ? {
          number: doubtful.number,
          verdict: doubtful.verdict,
          reason: doubtful.reason,
          phase: doubtful.phase,
          status_code: doubtful.status_code,
          error: attemptView(doubtful).error,
          means: mean(doubtful.reason ?? ""),
        }
      : null,
    contradiction: item.detail,
  };
}
