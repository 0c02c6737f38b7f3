-- Why: finding deliveries in a large ledger by what few of them have; an empty answer must not read the whole history.

create index deliveries_by_schedule on deliveries (schedule, id) where schedule is not null;
-- What was never sent. (Pending ones, claimed ones and those in needs-attention have indexes of their own.)
create index deliveries_unsent on deliveries (state, id) where state in ('failed', 'cancelled', 'expired', 'suppressed');
-- A delivery's standing receipt is one of its receipts: on this table nothing is updated for it, and deliveries keep their
-- cheap updates.
create index receipts_by_status on receipts (status, delivery_id) where status is not null and delivery_id is not null;
-- A channel may have few deliveries among many of others.
create index deliveries_by_channel on deliveries (channel, id);
-- What held a channel while a delivery waited stands in that delivery's timeline.
create index events_of_channels on events (at) where type like 'channel.%';
