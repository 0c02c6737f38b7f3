import { sql } from "kysely";
import { uuidv7 } from "uuidv7";
import type { DeliveryId, OnUnknown, ProducerId, State } from "../ledger/delivery.ts";
import { differingPointers, requestHash } from "../ledger/name.ts";
import type { QuietHours } from "../ledger/quiet-hours.ts";
import type { Db } from "./schema.ts";

/** A delivery as it was posted and found good. */
export interface Posted {
  readonly producerId: ProducerId;
  readonly name: string;
  readonly channel: string;
  readonly recipient: string;
  readonly onUnknown: OnUnknown;
  readonly metadata: unknown;
  readonly deliverAt: Date | null;
  readonly expiresAt: Date | null;
  readonly occurrence: { readonly schedule: string; readonly dueAt: Date } | null;
  /** Null: none. Absent: the producer's. */
  readonly quietHours?: QuietHours | null;
  /** The whole request, exactly as posted: its member `message` is what is frozen. */
  readonly request: Readonly<Record<string, unknown>>;
}

/** What became of one posted delivery; after the commit. */
export type Taken =
  | { readonly kind: "accepted"; readonly id: DeliveryId }
  /** The name is known and the request is the same. */
  | { readonly kind: "known"; readonly id: DeliveryId; readonly state: State }
  /** The name is known and the request differs there; no pointers when the contents are no longer kept. */
  | { readonly kind: "reused"; readonly id: DeliveryId; readonly pointers: readonly string[] }
  /** The delivery is gone, its name is remembered. */
  | { readonly kind: "remembered"; readonly id: DeliveryId; readonly outcome: unknown }
  /** A new name whose time had run out when it came: not taken. A repeat of a known name is answered, however late. */
  | { readonly kind: "too_late"; readonly id: null };

interface Candidate extends Posted {
  readonly id: DeliveryId;
  readonly hash: Buffer;
}

const keyOf = (posted: { producerId: string; name: string }): string => `${posted.producerId}/${posted.name}`;

/**
 * Accepts deliveries in one commit, one answer each, in order. The unique (producer, name) decides who was first: also
 * between two of one list, where the first wins.
 */
export async function intake(db: Db, posted: readonly Posted[]): Promise<readonly Taken[]> {
  const all = posted.map((one): Candidate => ({ ...one, id: uuidv7() as DeliveryId, hash: requestHash(one.request) }));
  const firsts = new Map<string, Candidate>();
  for (const one of all) if (!firsts.has(keyOf(one))) firsts.set(keyOf(one), one);
  const inserted = await insertNew(db, [...firsts.values()]);
  const rest = all.filter(({ id }) => !inserted.has(id));
  const known = rest.length === 0 ? new Map<string, KnownRow>() : await readKnown(db, rest);
  // Behind one that came too late, the next of its name is the first.
  const behind = rest.filter((one) => !known.has(keyOf(one)) && firsts.get(keyOf(one)) !== one);
  const later = behind.length === 0 ? [] : await intake(db, behind);
  return all.map((one) => {
    if (inserted.has(one.id)) return { kind: "accepted", id: one.id };
    const row = known.get(keyOf(one));
    return row ? answer(one, row) : (later[behind.indexOf(one)] ?? tooLate(one));
  });
}

function tooLate(one: Candidate): Taken {
  if (one.expiresAt === null) throw new Error("a name was neither inserted nor found: retention took it in between");
  return { kind: "too_late", id: null };
}

function answer(one: Candidate, row: KnownRow): Taken {
  if (!row.request_hash.equals(one.hash)) {
    const { name: _posted, ...posted } = one.request;
    const { name: _held, ...held } = row.request ?? {};
    return { kind: "reused", id: row.id, pointers: row.request === null ? [] : differingPointers(held, posted) };
  }
  if (row.state === null) return { kind: "remembered", id: row.id, outcome: row.outcome };
  return { kind: "known", id: row.id, state: row.state };
}

/**
 * Delivery, frozen message and event in one statement; names that exist are left alone. Inserted in the order of their
 * names, so that two statements with names in common never wait for each other in a circle.
 */
async function insertNew(db: Db, candidates: readonly Candidate[]): Promise<ReadonlySet<DeliveryId>> {
  const rows = candidates.map((one) => ({
    id: one.id,
    producer_id: one.producerId,
    name: one.name,
    request_hash: one.hash.toString("hex"),
    schedule: one.occurrence?.schedule ?? null,
    due_at: one.occurrence?.dueAt ?? null,
    channel: one.channel,
    recipient: one.recipient,
    on_unknown: one.onUnknown,
    metadata: one.metadata ?? null,
    deliver_at: one.deliverAt,
    expires_at: one.expiresAt,
    // As text: of two members that are null, only one says that there are none.
    quiet_hours: one.quietHours === undefined ? null : JSON.stringify(one.quietHours),
    request: one.request,
  }));
  const { rows: inserted } = await sql<{ id: DeliveryId }>`
    with posted as (
      select * from json_to_recordset(${JSON.stringify(rows)}::text::json) as posted (
        id uuid, producer_id uuid, name text, request_hash text, schedule text, due_at timestamptz, channel text,
        recipient text, on_unknown text, metadata json, deliver_at timestamptz, expires_at timestamptz,
        quiet_hours text, request json)
    ), accepted as (
      insert into deliveries (id, producer_id, name, request_hash, schedule, due_at, channel, recipient, on_unknown,
        metadata, deliver_at, expires_at, quiet_hours, next_attempt_at, hold_reason)
      select id, producer_id, name, decode(request_hash, 'hex'), schedule, due_at, channel, recipient, on_unknown,
        case when json_typeof(metadata) <> 'null' then metadata end, deliver_at, expires_at, quiet_hours::json,
        greatest(deliver_at, ledger_now()), case when deliver_at > ledger_now() then 'scheduled' end
      from posted p
      where (expires_at is null or expires_at > ledger_now()) and not exists (
        select from tombstones t where t.producer_id = p.producer_id and t.name = p.name and t.forget_at > ledger_now())
      order by producer_id, name collate "C"
      on conflict (producer_id, name) do nothing
      returning id
    ), frozen as (
      insert into messages (delivery_id, producer_id, request)
      select id, producer_id, request from posted join accepted using (id)
    ), logged as (
      insert into events (type, delivery_id, producer_id, data)
      select 'delivery.accepted', id, producer_id, json_build_object('name', name, 'channel', channel)
      from posted join accepted using (id)
    )
    select id from accepted`.execute(db);
  return new Set(inserted.map(({ id }) => id));
}

interface KnownRow {
  producer_id: ProducerId;
  name: string;
  id: DeliveryId;
  state: State | null;
  request_hash: Buffer;
  request: Record<string, unknown> | null;
  outcome: unknown;
}

/** In a statement of its own: a fresh snapshot sees the row that won the race. */
async function readKnown(db: Db, candidates: readonly Candidate[]): Promise<ReadonlyMap<string, KnownRow>> {
  const names = JSON.stringify(candidates.map(({ producerId, name }) => ({ producer_id: producerId, name })));
  const { rows } = await sql<KnownRow>`
    with wanted as (
      select distinct producer_id, name from json_to_recordset(${names}::text::json) as wanted (producer_id uuid, name text)
    )
    select d.producer_id, d.name, d.id, d.state, d.request_hash, m.request, null as outcome
    from wanted join deliveries d using (producer_id, name)
    left join messages m on m.delivery_id = d.id and m.producer_id = d.producer_id
    union all
    select t.producer_id, t.name, t.delivery_id, null, t.request_hash, null, t.outcome
    from wanted join tombstones t using (producer_id, name) where t.forget_at > ledger_now()`.execute(db);
  return new Map(rows.map((row) => [keyOf({ producerId: row.producer_id, name: row.name }), row]));
}
