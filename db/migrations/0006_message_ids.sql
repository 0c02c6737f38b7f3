-- Why: finding a delivery by the message id that a person gave.

-- A message id that no answer brought: a person found it. (The others are found by the attempt.)
create index deliveries_found_by_person on deliveries (provider_message_id)
  where in_doubt and provider_message_id is not null;
