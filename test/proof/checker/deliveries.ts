import type { Story } from "./story.ts";

/** What must be true of every delivery. Each rule answers in words what is wrong, and nothing when all is well. */
export type Rule = (story: Story) => Iterable<string>;

const CLOSED = ["cancelled", "expired", "suppressed"];

/** What was acknowledged is in the ledger as it was posted. */
export function* frozenAsPosted({ delivery, posts, frozen }: Story): Iterable<string> {
  const [post] = posts;
  if (!post) return yield "nobody posted it";
  if (post.channel !== delivery.channel || post.to !== delivery.recipient)
    yield "its channel or recipient is not the one posted";
  if (frozen.length !== 1) yield `it has ${frozen.length} frozen messages`;
  else if (canonical(frozen[0]) !== canonical(post.request)) yield "its frozen message is not the one posted";
  for (const { id, status } of posts) {
    if (status !== null && status < 300 && id !== delivery.id) yield `its name was acknowledged with another id, ${id}`;
  }
}

function canonical(value: unknown): string {
  return JSON.stringify(value, (_key, member: unknown) =>
    member !== null && typeof member === "object" && !Array.isArray(member)
      ? Object.fromEntries(Object.entries(member).sort(([a], [b]) => (a < b ? -1 : 1)))
      : member,
  );
}

/** One message; a further one only where a person, or the producer beforehand, accepted it. */
export function* oneEffect({ posts, effects, attempts, items }: Story): Iterable<string> {
  const keys = new Set(attempts.map(({ generation }) => generation)).size;
  if (effects.length > keys) yield `${effects.length} messages under ${keys} keys`;
  const accepted = items.filter(({ resolution }) => resolution === "resend").length;
  const most = posts[0]?.onUnknown === "resend" ? Math.max(1, keys) : 1 + accepted;
  if (effects.length > most)
    yield `${effects.length} messages reached the recipient, and ${most - 1} further ones were accepted`;
}

/** A provider that recognises repeats makes one message a key. */
export function* oneEffectAKey({ guarantee, effects }: Story): Iterable<string> {
  if (guarantee.deduplicates === null) return;
  for (const [key, made] of Map.groupBy(effects, (effect) => effect.key)) {
    if (made.length > 1) yield `${made.length} messages under the key ${key}`;
  }
}

/** The state is the truth about the effects. */
export function* stateTellsTheTruth({ delivery, effects, items }: Story): Iterable<string> {
  const { state, failure } = delivery;
  const decided = (action: string) => items.some(({ resolution }) => resolution === action);
  const had = effects.length > 0;
  if (state === "sent") {
    if (!had && !decided("mark_sent")) yield "it is sent, and no provider made a message of it";
  } else if (state === "failed") {
    if (failure === "abandoned" && !decided("abandon")) yield "it is abandoned, and nobody did so";
    if (failure !== "abandoned" && had) yield `it is failed (${failure}), and the message was made`;
  } else if (CLOSED.includes(state)) {
    if (had) yield `it is ${state}, and the message was made`;
  } else if (state !== "needs_attention") {
    yield `it is stuck: ${state}, with all faults over`;
  }
}

/** A message id that the ledger has is one of this delivery's messages, unless a person gave it. */
export function* knowsItsMessages({ delivery, effects, attempts, items }: Story): Iterable<string> {
  const ids = new Set(effects.map(({ messageId }) => messageId));
  for (const { number, verdict, provider_message_id: id } of attempts) {
    if (verdict === "accepted" && id !== null && !ids.has(id))
      yield `attempt ${number} has the message id ${id}, which is none of its`;
  }
  const byPerson = items.some(({ resolution }) => resolution === "mark_sent");
  const { provider_message_id: id } = delivery;
  if (id !== null && !ids.has(id) && !byPerson) yield `it has the message id ${id}, which is none of its`;
}

/** Who must decide, is asked; who need not, is not. */
export function* asksWhenInDoubt({ delivery, items }: Story): Iterable<string> {
  const open = items.filter((item) => item.closed_at === null);
  if (open.length > 1) yield `${open.length} open items`;
  if (delivery.state === "needs_attention" && open.length === 0) yield "it needs attention, and has no open item";
  if (delivery.state !== "needs_attention" && open.some((item) => !isContradiction(item)))
    yield `it is ${delivery.state}, and has an open item (${open[0]?.reason})`;
}

const isContradiction = ({ reason, detail }: { reason: string; detail: unknown }): boolean =>
  reason === "contradiction" || (detail !== null && typeof detail === "object");

/** A proof that reached the ledger has settled the delivery, or is in front of a person. */
export function* evidenceCounts({ delivery, notices, items }: Story): Iterable<string> {
  if (delivery.state === "sent") return;
  const proof = notices.find(
    ({ acknowledged, provesAcceptance, deliveryId }) => acknowledged && provesAcceptance && deliveryId === delivery.id,
  );
  if (proof && !items.some(isContradiction))
    yield `the provider's event ${proof.eventId} proves an acceptance, and it is ${delivery.state}`;
}

/** The feed tells every change, and its last word is the state. */
export function* toldInTheFeed({ delivery, events }: Story): Iterable<string> {
  const accepted = events.filter(({ type }) => type === "delivery.accepted").length;
  if (accepted !== 1) yield `the feed tells ${accepted} times that it was accepted`;
  const states = events.filter(({ type }) => type.startsWith("delivery."));
  const last = states.at(-1)?.type.slice("delivery.".length);
  const told = last === "accepted" ? "pending" : last;
  if (told !== delivery.state) yield `it is ${delivery.state}, and the feed's last word is ${told}`;
}
