import { sql } from "kysely";
import type { Db } from "./schema.ts";

/** What a provider says of a recipient: it lets the channel write to it, or not, or it has moved. */
export interface RecipientEvent {
  readonly eventId: string;
  /** Epoch milliseconds, by the provider's clock. */
  readonly occurredAt: number;
  readonly recipient: string;
  readonly change: { readonly to: "blocked" | "unblocked" } | { readonly to: "moved"; readonly movedTo: string };
}

/** The reason under which the ledger suppresses who blocks it; only such a suppression ends with an unblocking. */
const BLOCKED = "recipient_blocked";

/**
 * Applies it, in one commit. The provider's latest word stands, in whatever order its events come; one that says nothing
 * new, or is older than what is known, is a duplicate.
 */
export async function applyRecipientEvent(
  db: Db,
  channel: string,
  event: RecipientEvent,
): Promise<"applied" | "duplicate"> {
  if (event.change.to === "moved") return await rememberMove(db, channel, event.recipient, event.change.movedTo);
  const blocked = event.change.to === "blocked";
  const at = new Date(event.occurredAt);
  const { rows } = await sql<{ news: boolean }>`
    with news as (
      insert into recipient_states (channel, recipient, blocked, as_of, event_id)
      values (${channel}, suppression_key(${event.recipient}), ${blocked}, ${at}, ${event.eventId})
      on conflict (channel, recipient) do update
        set blocked = excluded.blocked, as_of = excluded.as_of, event_id = excluded.event_id
        where (recipient_states.as_of, length(recipient_states.event_id), recipient_states.event_id)
          < (excluded.as_of, length(excluded.event_id), excluded.event_id)
      returning channel, recipient
    ), added as (
      insert into suppressions (channel, recipient, reason, created_by)
      select channel, recipient, ${BLOCKED}, 'ledger' from news where ${blocked}
      on conflict do nothing
      returning channel, recipient, 'suppression.added' as type
    ), removed as (
      delete from suppressions s using news
      where not ${blocked}::boolean and s.channel = news.channel and s.recipient = news.recipient
        and s.reason = ${BLOCKED} and s.created_by = 'ledger' and s.created_at < ${at}::timestamptz + interval '1 second'
      returning s.channel, s.recipient, 'suppression.removed' as type
    ), told as (
      insert into events (type, producer_id, data)
      select type, (select id from producers where name = 'admin'), json_build_object(
        'channel', channel, 'recipient', recipient, 'reason', ${BLOCKED}::text, 'by', 'ledger', 'event_id', ${event.eventId}::text)
      from (select * from added union all select * from removed) as change
    )
    select true as news from news`.execute(db);
  return rows.length > 0 ? "applied" : "duplicate";
}

async function rememberMove(
  db: Db,
  channel: string,
  recipient: string,
  movedTo: string,
): Promise<"applied" | "duplicate"> {
  const { rows } = await sql`
    insert into recipient_moves (channel, recipient, moved_to) values (${channel}, ${recipient}, ${movedTo})
    on conflict (channel, recipient) do update set moved_to = excluded.moved_to, learned_at = ledger_now()
      where recipient_moves.moved_to <> excluded.moved_to
    returning 1`.execute(db);
  return rows.length > 0 ? "applied" : "duplicate";
}
