-- Version 8: tokens of those who may call, who made what, and the audit log.

CREATE TABLE tokens (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  role TEXT NOT NULL,
  digest BLOB NOT NULL UNIQUE,        -- SHA-256 of the secret, which is 256 random bits
  created_at INTEGER NOT NULL,
  expires_at INTEGER,                 -- NULL: never
  created_by TEXT NOT NULL,           -- name of the token that made it; '': none did
  last_used_at INTEGER                -- to the minute; NULL: never
) STRICT, WITHOUT ROWID;

CREATE TABLE audit (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  time INTEGER NOT NULL,
  token_id TEXT NOT NULL,             -- '': no tokens were asked for
  caller TEXT NOT NULL,
  role TEXT NOT NULL,
  peer TEXT NOT NULL,
  call TEXT NOT NULL,
  subject TEXT NOT NULL,
  outcome TEXT NOT NULL
) STRICT;

-- Name of a token; '': none was asked for, or it was made before there were any.
ALTER TABLE jobs ADD COLUMN created_by TEXT NOT NULL DEFAULT '';
CREATE INDEX jobs_by_maker ON jobs (created_by, status);
