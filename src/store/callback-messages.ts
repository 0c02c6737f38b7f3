import { sql } from "kysely";
import type { ProducerId } from "../ledger/delivery.ts";
import { wordArray } from "./arrays.ts";
import type { Db } from "./schema.ts";

/** Which events concern a producer: the ends of a delivery, doubt and its end, and what the provider reports. */
const TOLD =
  "^(delivery[.](sent|failed|cancelled|expired|suppressed|needs_attention)|attention[.](resolved|closed)|receipt[.].*)$";

/** An event with its delivery as it stands when the message is made. */
export interface Told {
  readonly tx: string;
  readonly id: string;
  readonly type: string;
  readonly at: Date;
  readonly data: Readonly<Record<string, unknown>>;
  readonly delivery: Readonly<Record<string, unknown>> | null;
}

/**
 * Makes messages of what is new in the feed, and moves the callback's place on: in one commit, by one process at a time for
 * each callback. Reads no further than the horizon, so that a late commit is never skipped. Returns how many events were
 * looked at, over all callbacks; `freeze` makes the body.
 */
export async function fanOut(db: Db, limit: number, freeze: (told: Told) => string): Promise<number> {
  return await db.transaction().execute(async (tx) => {
    const { rows: places } = await sql<{
      producer_id: ProducerId;
      types: readonly string[] | null;
      tx: string;
      id: string;
    }>`
      select c.producer_id, c.types, c.after_tx::text as tx, c.after_id::text as id
      from callbacks c
      where c.disabled_at is null and exists (
        select from events e
        where e.producer_id = c.producer_id and (e.tx, e.id) > (c.after_tx, c.after_id) and e.tx < (select feed_horizon()))
      order by c.producer_id limit 100
      for update of c skip locked`.execute(tx);
    let looked = 0;
    for (const place of places) {
      const { rows: events } = await sql<Told & { wanted: boolean }>`
        with bound as materialized (select feed_horizon() as horizon)
        select e.tx::text, e.id::text, e.type, e.at, e.data, e.type ~ ${wantedTypes(place.types)} as wanted,
          case when d.id is not null then json_build_object(
            'id', d.id, 'name', d.name, 'channel', d.channel, 'state', d.state, 'failure', d.failure,
            'receipt', d.receipt_status, 'metadata', d.metadata) end as delivery
        from events e left join deliveries d on d.id = e.delivery_id and d.producer_id = e.producer_id
        where e.producer_id = ${place.producer_id} and (e.tx, e.id) > (${place.tx}::xid8, ${place.id}::bigint)
          and e.tx < (select horizon from bound)
        order by e.tx, e.id limit ${limit}`.execute(tx);
      const last = events.at(-1);
      if (!last) continue;
      looked += events.length;
      const messages = events
        .filter(({ wanted }) => wanted)
        .map((told) => ({ tx: told.tx, event_id: told.id, type: told.type, body: freeze(told) }));
      // A replay makes a message anew that is there already: under its old id, which the receiver knows.
      await sql`
        with made as (
          insert into callback_messages (producer_id, tx, event_id, type, body)
          select ${place.producer_id}, tx::xid8, event_id, type, body
          from json_to_recordset(${JSON.stringify(messages)}::text::json)
            as message (tx text, event_id bigint, type text, body text)
          on conflict (producer_id, tx, event_id) do update
          set next_attempt_at = ledger_now(), attempts = 0, replays = callback_messages.replays + 1, delivered_at = null,
            given_up_at = null, created_at = ledger_now()
        )
        update callbacks set after_tx = ${last.tx}::xid8, after_id = ${last.id}::bigint
        where producer_id = ${place.producer_id}`.execute(tx);
    }
    return looked;
  });
}

/** A regular expression: the wanted types, of those that concern a producer. */
function wantedTypes(types: readonly string[] | null): string {
  if (types === null) return TOLD;
  const some = types.map((type) => (type.endsWith(".*") ? `${type.slice(0, -2)}[.].*` : type.replace(".", "[.]")));
  return `^(${some.join("|")})$`;
}

/** A message to post: the right to post it once, until the lease runs out. */
export interface ClaimedMessage {
  readonly producerId: ProducerId;
  readonly tx: string;
  readonly eventId: string;
  readonly type: string;
  readonly body: string;
  /** This try's number, from 1; a replay begins anew. */
  readonly attempt: number;
  readonly replays: number;
  readonly url: string;
  readonly secrets: readonly string[];
  readonly failingSince: Date | null;
}

/**
 * Claims messages that are due: at most `perCallback` of each callback, so that a slow receiver holds up nobody else, and
 * none of those in `busy`. A claim that nobody settles is due again when its lease runs out.
 */
export async function claimMessages(
  db: Db,
  request: {
    readonly limit: number;
    readonly perCallback: number;
    readonly leaseS: number;
    readonly busy: readonly ProducerId[];
  },
): Promise<readonly ClaimedMessage[]> {
  const { rows } = await sql<Omit<ClaimedMessage, "secrets"> & { secret: string; old: string | null }>`
    with due as (
      select m.producer_id, m.tx, m.event_id
      from callbacks c cross join lateral (
        select * from callback_messages m
        where m.producer_id = c.producer_id and m.next_attempt_at <= ledger_now()
        order by m.next_attempt_at limit ${request.perCallback}
        for update skip locked
      ) m
      where c.disabled_at is null and not (c.producer_id::text = any(${wordArray(request.busy)}))
      limit ${request.limit}
    )
    update callback_messages m
    set attempts = m.attempts + 1, next_attempt_at = ledger_now() + ${request.leaseS}::double precision * interval '1 second'
    from due join callbacks c using (producer_id)
    where m.producer_id = due.producer_id and m.tx = due.tx and m.event_id = due.event_id
    returning m.producer_id as "producerId", m.tx::text, m.event_id::text as "eventId", m.type, m.body,
      m.attempts as attempt, m.replays, c.url, c.secret, case when c.old_secret_until > ledger_now() then c.old_secret end as old,
      c.failing_since as "failingSince"`.execute(db);
  return rows.map(({ secret, old, ...message }) => ({ ...message, secrets: old === null ? [secret] : [secret, old] }));
}

/** What became of a post. */
export type Outcome =
  | { readonly kind: "delivered"; readonly status: number }
  | {
      readonly kind: "failed";
      readonly status: number | null;
      readonly error: string;
      /** Seconds until it is posted again; null: it is given up. */
      readonly waitS: number | null;
      /** Why the whole callback is disabled with it; null: it is not. */
      readonly disables: string | null;
    };

/** Writes what became of a post, and what that says of its callback. False when the claim was not this process's any more. */
export async function settleMessage(db: Db, message: ClaimedMessage, outcome: Outcome): Promise<boolean> {
  const key = sql`producer_id = ${message.producerId} and tx = ${message.tx}::xid8 and event_id = ${message.eventId}::bigint
    and attempts = ${message.attempt} and replays = ${message.replays} and next_attempt_at is not null`;
  const { rows } =
    outcome.kind === "delivered"
      ? await sql`
          with settled as (
            update callback_messages
            set delivered_at = ledger_now(), next_attempt_at = null, last_status = ${outcome.status}, last_error = null
            where ${key} returning producer_id
          ), well as (
            update callbacks c set failing_since = null, last_success_at = ledger_now()
            from settled where c.producer_id = settled.producer_id
              and (c.failing_since is not null or c.last_success_at is null
                or c.last_success_at < ledger_now() - interval '1 second')
          )
          select 1 from settled`.execute(db)
      : await sql`
          with settled as (
            update callback_messages
            set next_attempt_at = ledger_now() + ${outcome.waitS}::double precision * interval '1 second',
              given_up_at = case when ${outcome.waitS}::double precision is null then ledger_now() end,
              last_status = ${outcome.status}, last_error = ${outcome.error}
            where ${key} returning producer_id
          ), ill as (
            update callbacks c
            set failing_since = coalesce(c.failing_since, ledger_now()), last_failure_at = ledger_now(),
              last_failure = ${outcome.error},
              disabled_at = case when ${outcome.disables}::text is not null then ledger_now() else c.disabled_at end,
              disabled_reason = coalesce(${outcome.disables}::text, c.disabled_reason)
            from settled where c.producer_id = settled.producer_id
          )
          select 1 from settled`.execute(db);
  return rows.length === 1;
}

/** Forgets messages that ended more than a week ago, at most `limit`. Returns how many. */
export async function forgetMessages(db: Db, limit: number): Promise<number> {
  const { rows } = await sql`
    delete from callback_messages m using (
      select producer_id, tx, event_id from callback_messages
      where next_attempt_at is null and created_at < ledger_now() - interval '7 days' limit ${limit}
    ) old
    where m.producer_id = old.producer_id and m.tx = old.tx and m.event_id = old.event_id
    returning 1`.execute(db);
  return rows.length;
}
