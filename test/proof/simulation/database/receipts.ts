import { byText, columnsOf, type Json, type Model, pairKey, type ReceiptRow, type Result, stripped } from "./model.ts";
import { openItem } from "./settlements.ts";
import type { Statement } from "./statement.ts";
import { Blocked, type Tx } from "./tables.ts";

interface Clue {
  channel: string;
  event_id: string;
  delivery_id: string | null;
  message_id: string | null;
  name: string | null;
  producer_id: string | null;
}

function match(model: Model, tx: Tx, [given]: readonly unknown[]): Result {
  const rows: Json[] = [];
  for (const clue of JSON.parse(given as string) as Clue[]) {
    const [only, rival] = candidates(model, tx, clue);
    if (only && !rival)
      rows.push({ channel: clue.channel, event_id: clue.event_id, id: only.id, producer_id: only.producer_id });
  }
  return { rows };
}

/** The first way that finds any decides: the id, the message's id, the name. */
function candidates(model: Model, tx: Tx, clue: Clue) {
  const own = [...model.deliveries.rows(tx)].filter(
    (row) => row.channel === clue.channel && (clue.producer_id === null || row.producer_id === clue.producer_id),
  );
  if (clue.delivery_id !== null) return own.filter(({ id }) => id === clue.delivery_id);
  const told = new Set(
    [...model.attempts.rows(tx)]
      .filter(({ provider_message_id: id }) => id !== null && id === clue.message_id)
      .map((attempt) => attempt.delivery_id),
  );
  const byMessage = own.filter(({ id }) => told.has(id));
  return byMessage.length > 0 ? byMessage : own.filter(({ name }) => clue.name !== null && name === clue.name);
}

type Given = Omit<ReceiptRow, "received_at" | "look_again_at" | "occurred_at"> & {
  occurred_at: string;
  look_again: boolean;
};

function insert(model: Model, tx: Tx, [given]: readonly unknown[]): Result {
  const rows: Json[] = [];
  const inOrder = (JSON.parse(given as string) as Given[]).sort(
    (a, b) => byText(a.channel, b.channel) || byText(a.event_id, b.event_id),
  );
  for (const { look_again, occurred_at, ...receipt } of inOrder) {
    const { channel, event_id } = receipt;
    const key = pairKey(channel, event_id);
    for (const { row, by } of model.receipts.uncommitted(tx))
      if (pairKey(row.channel, row.event_id) === key) throw new Blocked(by);
    const fresh = {
      ...receipt,
      occurred_at: Date.parse(occurred_at),
      look_again_at: look_again ? tx.now + 2_000 : null,
    };
    // On a conflict the row is locked, whether it is then written or not.
    const known = model.receipts.lock(tx, key);
    if (known) {
      const givesWay =
        known.delivery_id === null &&
        (receipt.delivery_id !== null || (known.producer_id !== null && receipt.producer_id === null));
      if (!givesWay) continue;
    }
    model.receipts.put(tx, key, { ...fresh, received_at: known?.received_at ?? tx.now });
    rows.push({ channel, event_id });
  }
  return { rows };
}

const matched = (row: ReceiptRow): Json => ({
  ...columnsOf(row, "channel", "event_id", "type", "status", "proves_acceptance", "occurred_at", "delivery_id"),
  ...columnsOf(row, "producer_id", "provider_message_id", "suppresses", "recipients", "detail"),
});

interface Settled {
  delivery_id: string;
  producer_id: string;
  channel: string;
  message_id: string | null;
  doubtful: boolean;
}

function attachWaiting(model: Model, tx: Tx, [given]: readonly unknown[]): Result {
  const settled = JSON.parse(given as string) as Settled[];
  // Both halves of the statement see the receipts as they were before it.
  const before = [...model.receipts.rows(tx)];
  const named = before.flatMap((row) => {
    const of = settled.find((one) => isNamed(row, one) && !isAnothers(model, tx, one));
    if (row.delivery_id !== null || !of) return [];
    const change = { delivery_id: of.delivery_id, producer_id: of.producer_id, look_again_at: null };
    return [{ ...matched(model.receipts.update(tx, pairKey(row.channel, row.event_id), change)), fresh: true }];
  });
  const proving = settled.flatMap((one) =>
    before
      .filter((row) => row.delivery_id === one.delivery_id && row.proves_acceptance)
      .filter((row) => one.doubtful || row.provider_message_id !== one.message_id)
      .map((row) => ({ ...matched(row), fresh: false })),
  );
  return { rows: [...named, ...proving] };
}

const isNamed = (row: ReceiptRow, one: Settled): boolean =>
  row.channel === one.channel &&
  one.message_id !== null &&
  row.provider_message_id === one.message_id &&
  (row.producer_id === null || row.producer_id === one.producer_id);

/** Another delivery of the channel has that message's id. */
const isAnothers = (model: Model, tx: Tx, one: Settled): boolean =>
  model.attempts
    .rows(tx)
    .some(
      (attempt) =>
        attempt.provider_message_id === one.message_id &&
        attempt.delivery_id !== one.delivery_id &&
        model.deliveries.find(tx, attempt.delivery_id)?.channel === one.channel,
    );

function record(model: Model, tx: Tx, [standing, told]: readonly unknown[]): Result {
  for (const { id, status, at } of JSON.parse(standing as string) as { id: string; status: string; at: string }[]) {
    model.move(tx, id, { receipt_status: status, receipt_at: Date.parse(at) });
  }
  const events = JSON.parse(told as string) as { type: string; delivery_id: string; producer_id: string; data: Json }[];
  for (const { type, delivery_id, producer_id, data } of events)
    model.tell(tx, type, delivery_id, producer_id, stripped(data));
  return { rows: [], affected: events.length };
}

function contradict(model: Model, tx: Tx, parameters: readonly unknown[]): Result {
  const [deliveryId, messageId, , stopped, id, , producerId, channel, detail] = parameters as string[];
  const isNews = ![...model.items.rows(tx)]
    .filter((item) => item.delivery_id === deliveryId && item.detail !== null)
    .flatMap((item) => [item.detail as Json, ...((item.detail?.["further"] as readonly Json[] | undefined) ?? [])])
    .some((said) => "why" in said && (said["provider_message_id"] ?? null) === (messageId ?? null));
  if (!isNews) return { rows: [], affected: 0 };
  const delivery = model.deliveries.lock(tx, deliveryId as string);
  if (delivery?.state === "pending") {
    model.move(tx, delivery.id, {
      state: "needs_attention",
      next_attempt_at: null,
      hold_reason: null,
      settled_at: tx.now,
    });
    model.tell(tx, "delivery.needs_attention", delivery.id, delivery.producer_id, JSON.parse(stopped as string));
  }
  openItem(model, tx, {
    ...{
      id: id as string,
      delivery_id: deliveryId as string,
      producer_id: producerId as string,
      channel: channel as string,
    },
    ...{ reason: "contradiction", detail: JSON.parse(detail as string) as Json },
  });
  return { rows: [], affected: 1 };
}

function toLookAt(model: Model, tx: Tx, [limit]: readonly unknown[]): Result {
  const due = [...model.receipts.rows(tx)]
    .filter((row) => row.look_again_at !== null && row.look_again_at <= tx.now && row.delivery_id === null)
    .sort((a, b) => (a.look_again_at ?? 0) - (b.look_again_at ?? 0))
    .slice(0, limit as number);
  return {
    rows: due.map((row) => ({
      ...{ channel: row.channel, eventId: row.event_id, providerMessageId: row.provider_message_id },
      ...{ name: row.name, producerId: row.producer_id },
    })),
  };
}

function lookAgain(model: Model, tx: Tx, [given]: readonly unknown[]): Result {
  const looked = JSON.parse(given as string) as Pick<
    ReceiptRow,
    "channel" | "event_id" | "delivery_id" | "producer_id"
  >[];
  const rows: Json[] = [];
  for (const { channel, event_id, delivery_id, producer_id } of looked) {
    const key = pairKey(channel, event_id);
    const row = model.receipts.find(tx, key);
    if (!row || row.delivery_id !== null || row.look_again_at === null || row.look_again_at > tx.now) continue;
    if (model.receipts.isLockedByOther(tx, key)) continue;
    const age = tx.now - row.received_at;
    const again = delivery_id === null && age < 600_000 ? tx.now + 5 * Math.max(age, 2_000) : null;
    rows.push(matched(model.receipts.update(tx, key, { delivery_id, producer_id, look_again_at: again })));
  }
  return { rows };
}

export const RECEIPTS: readonly Statement[] = [
  ["with clue as (", match],
  ["insert into receipts (", insert],
  ["as settled (delivery_id uuid, producer_id uuid, channel text, message_id", attachWaiting],
  ["with standing as (", record],
  ["with news as (\n      select 1 where not exists", contradict],
  ["from receipts where look_again_at <= ledger_now()", toLookAt],
  ["with looked as (", lookAgain],
];
