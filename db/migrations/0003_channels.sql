-- Why: what all replicas share about a channel's health and pace, and when people are not to be disturbed.

alter table channels
  -- The breaker is open while breaker_opened_at is set; breaker_open_until is when the next probe may be made.
  add column breaker_opened_at timestamptz(3),
  -- The latest calls, if they were failing: a 1 each.
  add column recent_calls text not null default '',
  add constraint channels_recent_calls check (recent_calls ~ '^1{0,20}$'),
  -- GCRA's theoretical arrival time: microseconds, for a rate of thousands a second has less than one between two calls.
  add column rate_tat timestamptz(6),
  -- When the rate allows the next call; in the past when it allows one now.
  add column rate_free_at timestamptz(3),
  -- Calls a second, as the provider's answers say.
  add column learned_rate real,
  add constraint channels_learned_rate check (learned_rate > 0);

-- A recipient's pace. Only channels whose provider limits recipients have rows here; they are forgotten when they are over.
create table recipient_pace (
  channel text not null,
  recipient text not null,
  -- The latest claims, oldest first.
  calls timestamptz(3)[] not null,
  -- The latest turns that were given away, oldest first: deliveries are held until theirs.
  turns timestamptz(3)[] not null,
  forget_at timestamptz(3) not null,
  primary key (channel, recipient)
);
create index recipient_pace_forget on recipient_pace (forget_at);

-- How a channel's calls were answered, by the minute. In shards, so that commits do not queue behind one row.
create table call_counts (
  minute timestamptz(0) not null,
  channel text not null,
  verdict text not null check (verdict in ('accepted', 'refused', 'deferred', 'unknown')),
  shard smallint not null,
  calls integer not null,
  latency_ms_sum bigint not null,
  latency_ms_max integer not null,
  -- The minute first: what is counted and what is forgotten are both ranges of time.
  primary key (minute, channel, verdict, shard)
);

-- { from, to, time_zone }. A delivery's: null says nothing (the producer's hold), the JSON value null says none.
alter table deliveries add column quiet_hours json;
alter table producers add column quiet_hours json;

-- The keys that were made with every scope have the new ones, too.
update api_keys k set scopes = k.scopes || '{producers:read,producers:write}'::text[]
from producers p
where p.id = k.producer_id and p.name = 'admin' and 'keys:write' = any (k.scopes) and not 'producers:read' = any (k.scopes);
