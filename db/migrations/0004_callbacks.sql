-- Why: producers are told what became of their deliveries, at a URL of theirs.

create table callbacks (
  producer_id uuid primary key references producers (id),
  url text not null check (char_length(url) between 1 and 2048),
  -- The old one also signs until it runs out, so that a receiver can change over without losing a message.
  secret text not null,
  old_secret text,
  old_secret_until timestamptz(3),
  -- A list of event types, or of prefixes that end in ".*"; null: all that concern a producer.
  types json,
  -- Up to this event of the feed messages have been made.
  after_tx xid8 not null,
  after_id bigint not null,
  created_at timestamptz(3) not null default ledger_now(),
  disabled_at timestamptz(3),
  disabled_reason text,
  failing_since timestamptz(3),
  last_success_at timestamptz(3),
  last_failure_at timestamptz(3),
  last_failure text,
  constraint callbacks_old_secret check ((old_secret is null) = (old_secret_until is null)),
  constraint callbacks_disabled check ((disabled_at is null) = (disabled_reason is null))
);

-- One message an event: frozen when it is made, posted until the receiver takes it or the ladder ends.
create table callback_messages (
  producer_id uuid not null references callbacks (producer_id) on delete cascade,
  tx xid8 not null,
  event_id bigint not null,
  type text not null,
  body text not null,
  attempts integer not null default 0,
  replays integer not null default 0,
  -- When it is next posted, or (while it is under way) when whoever posts it is presumed dead; null: never again.
  next_attempt_at timestamptz(3) default ledger_now(),
  last_status integer,
  last_error text,
  delivered_at timestamptz(3),
  given_up_at timestamptz(3),
  created_at timestamptz(3) not null default ledger_now(),
  primary key (producer_id, tx, event_id)
);
create index callback_messages_due on callback_messages (producer_id, next_attempt_at) where next_attempt_at is not null;
create index callback_messages_finished on callback_messages (created_at) where next_attempt_at is null;

-- The keys that were made with every scope have the new ones, too.
update api_keys k set scopes = k.scopes || '{callbacks:read,callbacks:write}'::text[]
from producers p
where p.id = k.producer_id and p.name = 'admin' and 'keys:write' = any (k.scopes) and not 'callbacks:read' = any (k.scopes);
