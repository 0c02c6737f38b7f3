-- Why: the ledger itself. Deliveries, frozen messages, attempts and events, with the invariants that no bug may break.
--
-- Times are timestamptz(3): what JavaScript can hold, so that a cursor made from a row finds that row again. Keys that
-- belong to a delivery end in producer_id, the distribution column of a sharded installation (ARCHITECTURE.md, Growing).

-- The ledger's clock, cut to milliseconds: rounding up would make a row due just after the statement that made it due.
create function ledger_now() returns timestamptz language sql stable parallel safe
  return date_trunc('milliseconds', now());

create table producers (
  id uuid primary key,
  name text not null unique check (char_length(name) between 1 and 100),
  created_at timestamptz(3) not null default ledger_now()
);

-- A key without a producer is an operator's: it sees every producer's deliveries and can post none.
create table api_keys (
  id uuid primary key,
  producer_id uuid references producers (id),
  name text not null check (char_length(name) between 1 and 100),
  key_hash bytea not null unique check (octet_length(key_hash) = 32),
  key_hint text not null,
  scopes text[] not null check (cardinality(scopes) > 0),
  created_at timestamptz(3) not null default ledger_now(),
  revoked_at timestamptz(3)
);

-- What all replicas must know of a channel. Credentials are never here; the fingerprint tells when they have changed.
create table channels (
  id text primary key check (id ~ '^[a-z][a-z0-9_-]{0,62}$'),
  provider text not null,
  paused_at timestamptz(3),
  paused_until timestamptz(3),
  pause_reason text check (pause_reason ~ '^[a-z][a-z0-9_]{0,62}$'),
  pause_note text,
  paused_by text,
  breaker_open_until timestamptz(3),
  paced_until timestamptz(3),
  credential_fingerprint text,
  created_at timestamptz(3) not null default ledger_now(),
  check ((paused_at is null) = (pause_reason is null))
);

create table deliveries (
  id uuid not null,
  producer_id uuid not null,
  name text collate "C" not null check (char_length(name) between 1 and 512),
  request_hash bytea not null check (octet_length(request_hash) = 32),
  schedule text,
  due_at timestamptz(3),
  channel text not null,
  recipient text not null check (octet_length(recipient) between 1 and 2048),
  on_unknown text not null check (on_unknown in ('attention', 'resend')),
  metadata json,
  deliver_at timestamptz(3),
  expires_at timestamptz(3),
  accepted_at timestamptz(3) not null default ledger_now(),
  state text not null default 'pending' check (state in
    ('pending', 'claimed', 'sent', 'failed', 'needs_attention', 'cancelled', 'expired', 'suppressed')),
  failure text check (failure in ('refused', 'exhausted', 'abandoned')),
  hold_reason text check (hold_reason in
    ('scheduled', 'ladder', 'channel_paused', 'channel_unconfigured', 'provider_down', 'quiet_hours', 'rate_limited')),
  next_attempt_at timestamptz(3),
  attempt_count integer not null default 0 check (attempt_count >= 0),
  ladder integer not null default 1 check (ladder >= 1),
  in_doubt boolean not null default false,
  provider_message_id text,
  receipt_status text check (receipt_status in
    ('delivered', 'delayed', 'bounced', 'complained', 'failed', 'suppressed', 'opened', 'clicked')),
  receipt_at timestamptz(3),
  settled_at timestamptz(3),
  primary key (id, producer_id),
  -- One delivery a (producer, name). The collation is the bytes: names that differ in a byte are different names.
  constraint deliveries_name unique (producer_id, name),
  -- No row may wait without a time to wait for: nobody would ever look at it.
  constraint deliveries_due_time check ((state = 'pending') = (next_attempt_at is not null)),
  constraint deliveries_failure check ((state = 'failed') = (failure is not null)),
  constraint deliveries_settled check ((state in ('pending', 'claimed')) = (settled_at is null)),
  constraint deliveries_occurrence check ((schedule is null) = (due_at is null)),
  constraint deliveries_receipt check ((receipt_status is null) = (receipt_at is null)),
  -- A close states that nothing was sent.
  constraint deliveries_closed_without_doubt check (state not in ('cancelled', 'expired', 'suppressed') or not in_doubt),
  constraint deliveries_times check (deliver_at is null or expires_at is null or deliver_at < expires_at)
);

-- The claim reads this index and nothing else: its size is the backlog's, not the history's.
create index deliveries_due on deliveries (channel, next_attempt_at) where state = 'pending';
create index deliveries_expiring on deliveries (expires_at) where state = 'pending' and expires_at is not null;
create index deliveries_by_producer on deliveries (producer_id, id);
create index deliveries_attention on deliveries (id) where state = 'needs_attention';

-- The request exactly as accepted; its member "message" is the frozen message. Apart from the hot status rows, so that
-- retention can drop contents while the ledger stays.
create table messages (
  delivery_id uuid not null,
  producer_id uuid not null,
  request json not null,
  primary key (delivery_id, producer_id),
  foreign key (delivery_id, producer_id) references deliveries (id, producer_id) on delete cascade
);

-- The serialised provider request, frozen before the first call under a key whose provider compares bodies.
create table request_bodies (
  delivery_id uuid not null,
  producer_id uuid not null,
  generation integer not null check (generation >= 1),
  body text not null,
  primary key (delivery_id, generation, producer_id),
  foreign key (delivery_id, producer_id) references deliveries (id, producer_id) on delete cascade
);

create table attempts (
  delivery_id uuid not null,
  producer_id uuid not null,
  number integer not null check (number >= 1),
  ladder integer not null check (ladder >= 1),
  generation integer not null check (generation >= 1),
  idempotency_key text not null check (idempotency_key ~ '^[\x21-\x7e]+$' and char_length(idempotency_key) <= 256),
  recipient text not null,
  claimed_at timestamptz(3) not null default ledger_now(),
  claimed_by text not null,
  lease_expires_at timestamptz(3) not null,
  settled_at timestamptz(3),
  verdict text check (verdict in ('accepted', 'refused', 'deferred', 'unknown')),
  reason text check (reason ~ '^[a-z][a-z0-9_]{0,62}$'),
  counted boolean not null default true,
  phase text check (phase in ('not_sent', 'sent')),
  status_code integer check (status_code between 100 and 999),
  error_code text,
  error_message text,
  provider_message_id text,
  retry_after_s double precision check (retry_after_s >= 0),
  -- When and by what an unknown verdict was replaced.
  evidence_at timestamptz(3),
  evidence text,
  primary key (delivery_id, number, producer_id),
  foreign key (delivery_id, producer_id) references deliveries (id, producer_id) on delete cascade,
  constraint attempts_lease check (lease_expires_at > claimed_at),
  constraint attempts_settled check ((settled_at is null) = (verdict is null) and (verdict is null) = (reason is null)),
  constraint attempts_evidence check ((evidence_at is null) = (evidence is null))
);

-- One unsettled attempt a delivery. This index is the guarded claim: of two deliverers, one inserts, one fails.
create unique index attempts_one_unsettled on attempts (delivery_id, producer_id) where settled_at is null;
create index attempts_leases on attempts (lease_expires_at) where settled_at is null;

create table attention_items (
  id uuid not null,
  delivery_id uuid not null,
  producer_id uuid not null,
  channel text not null,
  reason text not null check (reason ~ '^[a-z][a-z0-9_]{0,62}$'),
  opened_at timestamptz(3) not null default ledger_now(),
  assignee text,
  snoozed_until timestamptz(3),
  closed_at timestamptz(3),
  resolution text check (resolution in ('mark_sent', 'resend', 'abandon', 'evidence')),
  resolved_by text,
  note text,
  primary key (id, producer_id),
  foreign key (delivery_id, producer_id) references deliveries (id, producer_id) on delete cascade,
  constraint attention_items_closed check ((closed_at is null) = (resolution is null))
);
create unique index attention_items_one_open on attention_items (delivery_id, producer_id) where closed_at is null;
create index attention_items_open on attention_items (opened_at, id) where closed_at is null;

create table receipts (
  id uuid not null,
  channel text not null,
  event_id text not null,
  type text not null,
  status text check (status in
    ('delivered', 'delayed', 'bounced', 'complained', 'failed', 'suppressed', 'opened', 'clicked')),
  occurred_at timestamptz(3) not null,
  received_at timestamptz(3) not null default ledger_now(),
  delivery_id uuid,
  producer_id uuid,
  provider_message_id text,
  detail json,
  -- One receipt a provider event id.
  primary key (channel, event_id)
);
create index receipts_by_delivery on receipts (delivery_id) where delivery_id is not null;

create table suppressions (
  channel text not null,
  recipient text not null,
  reason text not null check (char_length(reason) between 1 and 500),
  created_by text not null,
  created_at timestamptz(3) not null default ledger_now(),
  primary key (channel, recipient)
);

-- A recipient that the provider says has moved (a Telegram group that became a supergroup).
create table recipient_moves (
  channel text not null,
  recipient text not null,
  moved_to text not null,
  learned_at timestamptz(3) not null default ledger_now(),
  primary key (channel, recipient)
);

-- A name outlives its delivery: what retention leaves behind, so that a late repeat is still recognised.
create table tombstones (
  producer_id uuid not null,
  name text collate "C" not null,
  request_hash bytea not null check (octet_length(request_hash) = 32),
  delivery_id uuid not null,
  outcome json not null,
  forget_at timestamptz(3) not null,
  primary key (producer_id, name)
);

-- Every change of state, append-only. Readers of the feed go by (tx, id) and stop before the oldest running transaction,
-- so that a late commit is never skipped.
create table events (
  tx xid8 not null default pg_current_xact_id(),
  id bigint generated always as identity,
  at timestamptz(3) not null default ledger_now(),
  type text not null check (type ~ '^[a-z_]+\.[a-z_]+$'),
  delivery_id uuid,
  producer_id uuid not null,
  data json not null,
  primary key (tx, id, producer_id)
);
create index events_by_delivery on events (delivery_id, id) where delivery_id is not null;

create function refuse_change() returns trigger language plpgsql as $$
begin
  raise exception '% rows never change', tg_table_name using errcode = 'restrict_violation';
end $$;

create trigger messages_frozen before update on messages for each row execute function refuse_change();
create trigger request_bodies_frozen before update on request_bodies for each row execute function refuse_change();
create trigger events_append_only before update on events for each row execute function refuse_change();

-- What was accepted never changes, and a state follows only where design.md's section 2 lets it.
create function guard_delivery() returns trigger language plpgsql as $$
begin
  if (new.id, new.producer_id, new.name, new.request_hash, new.channel, new.recipient, new.accepted_at, new.on_unknown)
     is distinct from
     (old.id, old.producer_id, old.name, old.request_hash, old.channel, old.recipient, old.accepted_at, old.on_unknown)
  then
    raise exception 'delivery %: what was accepted never changes', old.id using errcode = 'restrict_violation';
  end if;
  if new.state <> old.state and not (case old.state
    when 'pending' then new.state in ('claimed', 'sent', 'failed', 'needs_attention', 'cancelled', 'expired', 'suppressed')
    when 'claimed' then new.state in ('pending', 'sent', 'failed', 'needs_attention')
    when 'needs_attention' then new.state in ('pending', 'sent', 'failed')
    when 'failed' then new.state in ('pending', 'sent', 'needs_attention')
    else false
  end) then
    raise exception 'delivery %: % does not follow %', old.id, new.state, old.state using errcode = 'restrict_violation';
  end if;
  return new;
end $$;
create trigger deliveries_guard before update on deliveries for each row execute function guard_delivery();

-- An attempt's identity never changes; its verdict is written once; only unknown may be replaced, by evidence.
create function guard_attempt() returns trigger language plpgsql as $$
begin
  if (new.delivery_id, new.producer_id, new.number, new.ladder, new.generation, new.idempotency_key, new.recipient,
      new.claimed_at, new.claimed_by, new.lease_expires_at)
     is distinct from
     (old.delivery_id, old.producer_id, old.number, old.ladder, old.generation, old.idempotency_key, old.recipient,
      old.claimed_at, old.claimed_by, old.lease_expires_at)
  then
    raise exception 'attempt % of %: a claim never changes', old.number, old.delivery_id using errcode = 'restrict_violation';
  end if;
  if old.settled_at is not null then
    if new.settled_at is distinct from old.settled_at then
      raise exception 'attempt % of %: settled once', old.number, old.delivery_id using errcode = 'restrict_violation';
    end if;
    if new.verdict is distinct from old.verdict
       and (old.verdict <> 'unknown' or new.verdict is null or new.evidence is null)
    then
      raise exception 'attempt % of %: % is not replaced by %', old.number, old.delivery_id, old.verdict, new.verdict
        using errcode = 'restrict_violation';
    end if;
  end if;
  return new;
end $$;
create trigger attempts_guard before update on attempts for each row execute function guard_attempt();
