import { sql, type Transaction } from "kysely";
import type { Millis } from "../ledger/delivery.ts";
import {
  afterCalls,
  callsLeft,
  forgettableAt,
  limitsOf,
  nextCallAt,
  type Pace,
  type Pacing,
  type Rate,
  rateOf,
  turnOf,
} from "../ledger/pacing.ts";
import type { Due } from "./due.ts";
import type { Db, Schema } from "./schema.ts";

/** The pace of one claiming transaction: it holds the channel's row, so that no other replica claims on it meanwhile. */
export interface Pacer {
  /** Claims that the channel's rate allows now. */
  readonly callsLeft: number;
  /** Deliveries to look at beside those that are called: one recipient may have many that must wait for their turns. */
  readonly scanMore: number;
  /** Reads the paces of these deliveries' recipients. */
  look(due: readonly Due[]): Promise<void>;
  /** When this one may be called, after those before it; null: now. */
  pacedUntil(due: Due): Millis | null;
  /** It is called now, or held until its turn. */
  take(due: Due): void;
  /** Writes what was taken. Returns how long the rate allows no further call, and when the next delivery is due. */
  save(claims: number): Promise<{ readonly tokenInMs: number; readonly dueInMs: number | null }>;
}

const SCAN_MORE = 16;
/** Behind a batch of them: so that they get their turns in few commits, and do not hide the others for long. */
const SCAN_CROWD = 256;

const ms = (column: string) => sql<Millis>`(extract(epoch from ${sql.raw(column)}) * 1000)::double precision`;
const time = (at: Millis) => sql`to_timestamp(${at / 1000}::double precision)`;
/** Whoever wants a recipient to be called means the same one, whatever the case of its name. */
const recipientOf = ({ recipient, movedTo }: Due): string => (movedTo ?? recipient).toLowerCase();

/**
 * Locks the channel's row and reads its rate. Null when nothing limits the channel: then nothing is locked either. The clock
 * is read after the lock: a transaction that waited for it began long before its calls.
 */
export async function openPacer(
  tx: Transaction<Schema>,
  { channel, pacing, crowded = false }: { channel: string; pacing: Pacing; crowded?: boolean | undefined },
): Promise<Pacer | null> {
  const { perSecond, perRecipient } = pacing;
  if (perSecond === null && perRecipient.length === 0) return null;
  const always = typeof perSecond === "number" || perRecipient.length > 0;
  const locked = sql`
    select from channels where id = ${channel} and (${always} or learned_rate is not null) for update`.execute(tx);
  const read = sql<{ tat: Millis | null; learned_rate: number | null; now: Millis }>`
    select ${ms("rate_tat")} as tat, learned_rate, ${ms("clock_timestamp()")} as now
    from channels where id = ${channel} and (${always} or learned_rate is not null)`.execute(tx);
  const [, { rows }] = await Promise.all([locked, read]);
  const [row] = rows;
  if (!row) return null;
  const perSecondNow = perSecond === "learned" ? row.learned_rate : perSecond;
  const rate = perSecondNow === null ? null : rateOf(perSecondNow);
  const scanMore = perRecipient.length === 0 ? 0 : crowded ? SCAN_CROWD : SCAN_MORE;
  return { ...pacerOf(tx, channel, pacing, rate, row), scanMore };
}

function pacerOf(
  tx: Transaction<Schema>,
  channel: string,
  { perRecipient }: Pacing,
  rate: Rate | null,
  { tat, now: exactly }: { readonly tat: Millis | null; readonly now: Millis },
): Omit<Pacer, "scanMore"> {
  const now = Math.floor(exactly);
  const paces = new Map<string, Pace>();
  const changed = new Set<string>();
  const left = rate ? callsLeft(rate, tat, exactly) : Number.POSITIVE_INFINITY;

  function turnFor(due: Due) {
    const recipient = recipientOf(due);
    const limits = limitsOf(perRecipient, recipient);
    if (limits.length === 0) return null;
    return turnOf(limits, paces.get(recipient) ?? { calls: [], turns: [] }, due.hasTurn, now);
  }

  return {
    callsLeft: left,

    async look(due) {
      if (perRecipient.length === 0 || due.length === 0) return;
      const recipients = JSON.stringify([...new Set(due.map(recipientOf))]);
      const { rows } = await sql<{ recipient: string } & Pace>`
        select recipient,
          (select coalesce(json_agg(floor(extract(epoch from at) * 1000)), '[]') from unnest(calls) as at) as calls,
          (select coalesce(json_agg(floor(extract(epoch from at) * 1000)), '[]') from unnest(turns) as at) as turns
        from recipient_pace
        where channel = ${channel} and recipient in (select json_array_elements_text(${recipients}::text::json))`.execute(
        tx,
      );
      for (const { recipient, calls, turns } of rows) paces.set(recipient, { calls, turns });
    },

    pacedUntil(due) {
      const turn = turnFor(due);
      return turn && turn.at > now ? turn.at : null;
    },

    take(due) {
      const turn = turnFor(due);
      if (!turn) return;
      paces.set(recipientOf(due), turn.pace);
      changed.add(recipientOf(due));
    },

    async save(claims) {
      const spent = rate && claims > 0 ? afterCalls(rate, tat, claims, exactly) : tat;
      const freeAt = rate ? nextCallAt(rate, spent, exactly) : exactly;
      const [, , { rows }] = await Promise.all([
        rate && claims > 0 && spent !== null
          ? sql`update channels set rate_tat = ${time(spent)}, rate_free_at = ${time(freeAt)} where id = ${channel}`.execute(
              tx,
            )
          : null,
        writePaces(
          tx,
          channel,
          [...changed].map((recipient) => {
            const pace = paces.get(recipient) as Pace;
            return { recipient, ...pace, forget: forgettableAt(limitsOf(perRecipient, recipient), pace) };
          }),
        ),
        sql<{ ms: number | null }>`
          select ${ms("min(next_attempt_at) - clock_timestamp()")} as ms from deliveries
          where channel = ${channel} and state = 'pending' and next_attempt_at > ledger_now()`.execute(tx),
      ]);
      return { tokenInMs: freeAt - exactly, dueInMs: rows[0]?.ms ?? null };
    },
  };
}

async function writePaces(
  tx: Transaction<Schema>,
  channel: string,
  paces: readonly (Pace & { readonly recipient: string; readonly forget: Millis })[],
): Promise<void> {
  if (paces.length === 0) return;
  await sql`
    insert into recipient_pace (channel, recipient, calls, turns, forget_at)
    select ${channel}, recipient,
      array(select to_timestamp(at::double precision / 1000) from json_array_elements_text(calls) as at),
      array(select to_timestamp(at::double precision / 1000) from json_array_elements_text(turns) as at),
      to_timestamp(forget / 1000)
    from json_to_recordset(${JSON.stringify(paces)}::text::json)
      as pace (recipient text, calls json, turns json, forget double precision)
    on conflict (channel, recipient) do update
      set calls = excluded.calls, turns = excluded.turns, forget_at = excluded.forget_at`.execute(tx);
}

/** Forgets recipients that no limit concerns any more. Returns how many. */
export async function forgetPaces(db: Db, limit: number): Promise<number> {
  const { rows } = await sql`
    delete from recipient_pace
    where (channel, recipient) in (
      select channel, recipient from recipient_pace where forget_at < ledger_now() limit ${limit} for update skip locked)
    returning 1`.execute(db);
  return rows.length;
}
