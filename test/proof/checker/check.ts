import { ATTEMPT_RULES } from "./attempts.ts";
import {
  asksWhenInDoubt,
  evidenceCounts,
  frozenAsPosted,
  knowsItsMessages,
  oneEffect,
  oneEffectAKey,
  type Rule,
  stateTellsTheTruth,
  toldInTheFeed,
} from "./deliveries.ts";
import type { History } from "./history.ts";
import { nameOf, type Story, storiesOf } from "./story.ts";

/** A rule that a history breaks. */
export interface Violation {
  /** The rule's function. */
  readonly rule: string;
  readonly delivery: string | null;
  readonly what: string;
}

const RULES: readonly Rule[] = [
  frozenAsPosted,
  oneEffect,
  oneEffectAKey,
  stateTellsTheTruth,
  knowsItsMessages,
  asksWhenInDoubt,
  evidenceCounts,
  toldInTheFeed,
  ...ATTEMPT_RULES,
];

/** Everything that is wrong with a finished run: with all faults over, and time enough passed. Empty: nothing. */
export function check(history: History): readonly Violation[] {
  const stories = storiesOf(history);
  const found: Violation[] = [];
  for (const story of stories) {
    for (const rule of RULES) {
      for (const what of rule(story)) found.push({ rule: rule.name, delivery: story.delivery.name, what });
    }
  }
  for (const rule of [nothingIsLost, nothingFromNowhere, decisionsStand, receiptsAreKept]) {
    for (const what of rule(history, stories)) found.push({ rule: rule.name, delivery: null, what });
  }
  return found;
}

/** Every acknowledged delivery is in the ledger, once. */
function* nothingIsLost({ posts }: History, stories: readonly Story[]): Iterable<string> {
  const rows = Map.groupBy(stories, ({ delivery }) => delivery.id);
  for (const { name, status, id } of posts) {
    if (status === null || status >= 300) continue;
    const found = rows.get(id ?? "") ?? [];
    if (found.length !== 1) yield `${name} was acknowledged, and is ${found.length} times in the ledger`;
    else if (found[0]?.delivery.name !== name)
      yield `${name} was acknowledged with the id of ${found[0]?.delivery.name}`;
  }
  for (const [name, same] of Map.groupBy(stories, ({ delivery }) => nameOf(delivery))) {
    if (same.length > 1) yield `${name} is ${same.length} times in the ledger`;
  }
}

/** Providers were given only what somebody posted, to whom it was posted. */
function* nothingFromNowhere({ posts, calls }: History): Iterable<string> {
  const posted = new Map(posts.map((post) => [post.contents, post]));
  for (const { contents, channel, to } of calls) {
    const post = posted.get(contents);
    if (!post) yield `a provider was given "${contents}", which nobody posted`;
    else if (post.channel !== channel || post.to !== to) yield `"${contents}" went to ${to} on ${channel}`;
  }
}

/** What a person was told is done is done; what the ledger says a person did, a person asked for. */
function* decisionsStand({ decisions, tables }: History): Iterable<string> {
  const items = new Map(tables.attention_items.map((item) => [item.id, item]));
  const deliveries = new Map(tables.deliveries.map((delivery) => [delivery.id, delivery]));
  const asked = new Set<string>();
  for (const decision of decisions) {
    if (decision.kind === "cancel") {
      const state = deliveries.get(decision.deliveryId)?.state;
      if (decision.done && state !== "cancelled") yield `${decision.deliveryId} was cancelled, and is ${state}`;
      continue;
    }
    const { itemId, action, done } = decision;
    asked.add(`${itemId} ${action}`);
    const resolution = items.get(itemId)?.resolution;
    if (done && resolution !== action) yield `the item ${itemId} was resolved by ${action}, and says ${resolution}`;
  }
  for (const { id, resolution } of tables.attention_items) {
    if (resolution !== null && resolution !== "evidence" && !asked.has(`${id} ${resolution}`))
      yield `nobody asked for ${resolution} of the item ${id}`;
  }
}

/** Every event that was answered 2xx is kept, once, and is with the delivery that its tag names. */
function* receiptsAreKept({ notices, tables }: History): Iterable<string> {
  const kept = Map.groupBy(tables.receipts, (row) => `${row.channel} ${row.event_id}`);
  const deliveries = new Set(tables.deliveries.map(({ id }) => id));
  for (const { channel, eventId, deliveryId, acknowledged } of notices) {
    if (!acknowledged) continue;
    const rows = kept.get(`${channel} ${eventId}`) ?? [];
    if (rows.length !== 1) yield `the event ${eventId} was acknowledged, and is kept ${rows.length} times`;
    else if (deliveryId !== null && deliveries.has(deliveryId) && rows[0]?.delivery_id !== deliveryId)
      yield `the event ${eventId} names ${deliveryId}, and is with ${rows[0]?.delivery_id}`;
  }
}
