-- Version 3 of the store: what a job's newest preflight saw, and completions that were scored again.

ALTER TABLE jobs ADD COLUMN preflight TEXT;  -- PreflightReport as JSON; NULL: there was none

CREATE TABLE rescores (
  key INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  job_key INTEGER NOT NULL REFERENCES jobs (key) ON DELETE CASCADE,
  spec TEXT NOT NULL,                 -- RescoreSpec as JSON, every default filled in
  request_id TEXT UNIQUE,             -- NULL: none was sent
  request_sha256 TEXT NOT NULL,       -- of what was asked for
  server_ids TEXT NOT NULL,           -- JSON array: what spec.rewards[].server stood for at creation
  status TEXT NOT NULL,
  status_detail TEXT NOT NULL,
  error_code TEXT,
  error_message TEXT,
  next_step INTEGER NOT NULL,         -- where to go on: the step,
  next_row INTEGER NOT NULL,          -- and the row of its file, from 0
  done_count INTEGER NOT NULL,
  total_count INTEGER NOT NULL,
  tally TEXT NOT NULL,                -- running sums of the summary, JSON
  created_at INTEGER NOT NULL,
  started_at INTEGER,
  finished_at INTEGER
) STRICT;
CREATE INDEX rescores_by_job ON rescores (job_key, key);
CREATE INDEX rescores_by_status ON rescores (status, key);

CREATE TABLE rescore_parts (
  rescore_key INTEGER NOT NULL REFERENCES rescores (key) ON DELETE CASCADE,
  number INTEGER NOT NULL,            -- from 0
  uri TEXT NOT NULL,                  -- Parquet file, relative to the artifact root
  row_count INTEGER NOT NULL,
  PRIMARY KEY (rescore_key, number)
) STRICT, WITHOUT ROWID;
