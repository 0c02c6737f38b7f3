-- Why: what moves a delivery after its attempts: receipts, attention items and their resolutions, suppressions.

-- Things that belong to no producer (a channel, a suppression) are recorded under this one; producers do not see its events.
insert into producers (id, name) values (gen_random_uuid(), 'admin') on conflict (name) do nothing;

-- How recipients are compared for suppression: addresses and user names regardless of case. Only ASCII is folded, so that
-- every server's locale gives the same.
create function suppression_key(recipient text) returns text language sql immutable parallel safe
  return lower(recipient collate "C");

delete from suppressions s using suppressions t
where s.channel = t.channel and suppression_key(s.recipient) = suppression_key(t.recipient) and s.recipient > t.recipient;
update suppressions set recipient = suppression_key(recipient) where recipient <> suppression_key(recipient);
alter table suppressions add constraint suppressions_key check (recipient = suppression_key(recipient)) not valid;

-- Under which key a new ladder begins: a person's resend takes a fresh one, a repeat under the same key keeps it.
alter table deliveries add column ladder_key text not null default 'fresh' check (ladder_key in ('fresh', 'same'));

alter table attention_items
  -- What an operator must know beside the delivery: for a contradiction, what contradicts what.
  add column detail json,
  -- When the provider is next asked what became of the message; null: never again.
  add column lookup_after timestamptz(3) default ledger_now(),
  add column lookups integer not null default 0,
  drop constraint attention_items_resolution_check,
  add constraint attention_items_resolution_check
    check (resolution in ('mark_sent', 'resend', 'resend_same_key', 'abandon', 'evidence'));
create index attention_items_lookup on attention_items (lookup_after) where closed_at is null and lookup_after is not null;
create index attention_items_by_delivery on attention_items (delivery_id);

alter table receipts
  -- It could not be said of a message that the provider had not accepted.
  add column proves_acceptance boolean not null default false,
  -- By the name, when whoever posted it knew no more.
  add column name text,
  -- Why its recipients go onto the suppression list, and who they are (null: the delivery's), once it is matched.
  add column suppresses text,
  add column recipients json,
  -- A receipt that matched nothing is looked at again: its attempt may have been settling at that very moment.
  add column look_again_at timestamptz(3);
create index receipts_by_id on receipts (id);
create index receipts_unmatched on receipts (id) where delivery_id is null;
create index receipts_unmatched_message on receipts (channel, provider_message_id)
  where delivery_id is null and provider_message_id is not null;
create index receipts_look_again on receipts (look_again_at) where look_again_at is not null;
create index attempts_by_message_id on attempts (provider_message_id) where provider_message_id is not null;
-- An operator's first question: what else did this person get?
create index deliveries_by_recipient on deliveries (recipient, id);

-- Whether a recipient lets the channel write to it, as the provider last said: the latest word stands, in whatever order they come.
create table recipient_states (
  channel text not null,
  recipient text not null,
  blocked boolean not null,
  as_of timestamptz(3) not null,
  event_id text not null,
  primary key (channel, recipient)
);

-- The absence of webhooks is what nobody would notice.
alter table channels add column if not exists last_webhook_at timestamptz(3);

-- The keys that were made with every scope have the new one, too.
update api_keys k set scopes = k.scopes || '{receipts:read}'::text[]
from producers p
where p.id = k.producer_id and p.name = 'admin' and 'keys:write' = any (k.scopes) and not 'receipts:read' = any (k.scopes);
