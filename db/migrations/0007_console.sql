-- Why: operators' sessions in the console.

-- Only hashes are kept: who reads the table can neither sign in nor go on with a session.
create table console_sessions (
  token_hash bytea primary key check (length(token_hash) = 32),
  -- The API key that it was signed in with: revoking the key ends the session.
  key_hash bytea not null check (length(key_hash) = 32),
  -- The operator's own name.
  operator text not null,
  created_at timestamptz(3) not null default ledger_now(),
  used_at timestamptz(3) not null default ledger_now()
);
create index console_sessions_by_key on console_sessions (key_hash);
