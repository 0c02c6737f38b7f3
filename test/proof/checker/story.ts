import type { AttemptRow, Call, DeliveryRow, EventRow, Guarantee, History, ItemRow, Notice, Post } from "./history.ts";

/** All that a history says of one delivery. */
export interface Story {
  readonly delivery: DeliveryRow;
  readonly guarantee: Guarantee;
  readonly posts: readonly Post[];
  readonly frozen: readonly unknown[];
  /** In the order in which they reached the provider. */
  readonly calls: readonly Call[];
  /** Of those, the ones that made a message. */
  readonly effects: readonly Call[];
  /** By number. */
  readonly attempts: readonly AttemptRow[];
  readonly items: readonly ItemRow[];
  /** In the order in which they were written. */
  readonly events: readonly EventRow[];
  readonly notices: readonly Notice[];
}

export const nameOf = (one: { readonly producer_id: string; readonly name: string }): string =>
  `${one.producer_id} ${one.name}`;

/** One story a row of `deliveries`. */
export function storiesOf(history: History): readonly Story[] {
  const { tables } = history;
  const posts = Map.groupBy(history.posts, ({ producerId, name }) => nameOf({ producer_id: producerId, name }));
  const calls = Map.groupBy(history.calls, ({ contents }) => contents);
  const frozen = Map.groupBy(tables.messages, (row) => row.delivery_id);
  const attempts = Map.groupBy(tables.attempts, (row) => row.delivery_id);
  const items = Map.groupBy(tables.attention_items, (row) => row.delivery_id);
  const events = Map.groupBy(tables.events, (row) => row.delivery_id);
  const notices = Map.groupBy(history.notices, ({ channel, messageId }) => `${channel} ${messageId}`);
  return tables.deliveries.map((delivery): Story => {
    const posted = posts.get(nameOf(delivery)) ?? [];
    const made = [...(calls.get(posted[0]?.contents ?? "") ?? [])].sort((a, b) => a.at - b.at);
    const effects = made.filter(({ messageId }) => messageId !== null);
    return {
      delivery,
      guarantee: history.channels[delivery.channel] ?? { deduplicates: null },
      posts: posted,
      frozen: (frozen.get(delivery.id) ?? []).map(({ request }) => request),
      calls: made,
      effects,
      attempts: [...(attempts.get(delivery.id) ?? [])].sort((a, b) => a.number - b.number),
      items: items.get(delivery.id) ?? [],
      events: [...(events.get(delivery.id) ?? [])].sort((a, b) => a.id - b.id),
      notices: effects.flatMap(({ channel, messageId }) => notices.get(`${channel} ${messageId}`) ?? []),
    };
  });
}
