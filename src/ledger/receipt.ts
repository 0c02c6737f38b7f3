import type { Millis, ReceiptStatus } from "./delivery.ts";

/** What the provider says became of a message, and when, by the provider's own clock. */
export interface Reported {
  readonly status: ReceiptStatus;
  readonly at: Millis;
}

/**
 * How much a report weighs. What failed outweighs what arrived: a bounce must never hide behind an opening by somebody's
 * gateway. A complaint is the last word: it can only be about a message that arrived.
 */
const RANK: Readonly<Record<ReceiptStatus, number>> = {
  delayed: 1,
  delivered: 2,
  opened: 3,
  clicked: 4,
  failed: 5,
  suppressed: 5,
  bounced: 5,
  complained: 6,
};
/** Of two that weigh the same and have the same time. */
const TIES: readonly ReceiptStatus[] = ["failed", "suppressed", "bounced"];

/**
 * Which of two reports stands as the delivery's receipt. Rank decides, then time, then a fixed order, so that the result
 * is the same in whatever order reports come, and a receipt never falls back (a late `delivered` does not undo `opened`).
 */
export function standing(held: Reported | null, next: Reported): Reported {
  if (held === null) return next;
  const rank = RANK[next.status] - RANK[held.status];
  if (rank !== 0) return rank > 0 ? next : held;
  if (next.at !== held.at) return next.at > held.at ? next : held;
  return TIES.indexOf(next.status) > TIES.indexOf(held.status) ? next : held;
}
