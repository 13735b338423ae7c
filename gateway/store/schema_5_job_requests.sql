-- Version 5: what other clients ask of jobs, functions that score, where datasets came from, and files whose
-- removal is not finished.

ALTER TABLE jobs ADD COLUMN gpu_requested TEXT;  -- JSON object of type and count; NULL: none was asked for
ALTER TABLE jobs ADD COLUMN requires_heartbeat INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN heartbeat_at INTEGER;  -- newest sign of life of its client; NULL: none came yet

CREATE INDEX beating_jobs ON jobs (heartbeat_at) WHERE heartbeat_at IS NOT NULL;

CREATE TABLE reward_functions (
  key INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,                 -- of several with one name, the newest goes by it
  format TEXT NOT NULL,               -- trl or miles
  filename TEXT NOT NULL,
  source TEXT NOT NULL,
  sha256 TEXT NOT NULL,               -- of the source in UTF-8
  created_at INTEGER NOT NULL,
  UNIQUE (name, format, sha256)
) STRICT;

CREATE TABLE reward_function_requests (
  request_id TEXT PRIMARY KEY,
  function_key INTEGER NOT NULL REFERENCES reward_functions (key) ON DELETE CASCADE,
  asked_sha256 TEXT NOT NULL,
  created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

ALTER TABLE datasets ADD COLUMN source TEXT;     -- DatasetSource as JSON; NULL: an upload, or built in

-- Written with the deletion of what owned the files, and deleted once they are gone.
CREATE TABLE removals (
  uri TEXT PRIMARY KEY                -- file or folder, relative to the artifact root
) STRICT, WITHOUT ROWID;

-- Runs of deleted jobs that their trainers may still have.
CREATE TABLE run_removals (
  run_id TEXT PRIMARY KEY,
  trainer_id TEXT NOT NULL
) STRICT, WITHOUT ROWID;
