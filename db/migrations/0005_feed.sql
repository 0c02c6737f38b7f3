-- Why: the feed of events: a producer's own events in the feed's order, and an order that outlives a restore into another cluster.

create index events_by_producer on events (producer_id, tx, id);

-- events.tx is a transaction id of the cluster plus this offset. In another cluster, where a dump was restored, new transactions
-- may have lower ids than the events that came along; then the next start moves the offset above them (store/feed.ts, mendFeed).
create table feed_offset (
  only_row boolean primary key default true check (only_row),
  tx_offset bigint not null default 0 check (tx_offset >= 0),
  -- Which cluster's transactions are counted; null: not known.
  cluster text
);
insert into feed_offset default values;

-- Events below it are all committed and readable: no transaction that is still running, or is yet to come, adds one there. Who
-- reads events in their order reads no further: `tx < (select feed_horizon())`, in the statement that reads them.
create function feed_horizon() returns xid8 language sql stable parallel safe
  return (pg_snapshot_xmin(pg_current_snapshot())::text::bigint
    + (select feed_offset.tx_offset from feed_offset))::text::xid8;

-- The list of suppressions, newest first.
create index suppressions_newest on suppressions (created_at desc, channel, recipient);
