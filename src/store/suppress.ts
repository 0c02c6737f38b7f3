import { sql, type Transaction } from "kysely";
import type { Schema } from "./schema.ts";

/** A recipient that a channel must not write to, and why. */
export interface Suppression {
  readonly channel: string;
  readonly recipient: string;
  readonly reason: string;
  readonly by: string;
}

/** Adds recipients to their channels' suppression lists; those that are there stay as they are. In order, so that two never wait in a circle. */
export async function suppressRecipients(tx: Transaction<Schema>, wanted: readonly Suppression[]): Promise<void> {
  if (wanted.length === 0) return;
  await sql`
    with wanted as (
      select distinct on (channel, suppression_key(recipient)) channel, suppression_key(recipient) as recipient, reason, by
      from json_to_recordset(${JSON.stringify(wanted)}::text::json)
        as wanted (channel text, recipient text, reason text, by text)
      order by channel, suppression_key(recipient)
    ), added as (
      insert into suppressions (channel, recipient, reason, created_by)
      select channel, recipient, reason, by from wanted order by channel, recipient
      on conflict do nothing
      returning channel, recipient, reason, created_by
    )
    insert into events (type, producer_id, data)
    select 'suppression.added', (select id from producers where name = 'admin'),
      json_build_object('channel', channel, 'recipient', recipient, 'reason', reason, 'by', created_by)
    from added`.execute(tx);
}
