-- Version 1 of the store. Times are microseconds since 1970, UTC. Later versions are further scripts
-- (see _migrations.py): this one never changes once it is released.

CREATE TABLE identity (
  store_id TEXT NOT NULL              -- prefixes cursors, so that one of another store is told apart
) STRICT;

CREATE TABLE jobs (
  key INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  spec TEXT NOT NULL,                 -- TrainingJobSpec as JSON, every default filled in
  dataset_id TEXT NOT NULL,           -- what spec.dataset_id named when the job was created
  status TEXT NOT NULL,
  status_detail TEXT NOT NULL,
  error_code TEXT,
  error_message TEXT,
  current_step INTEGER NOT NULL,
  total_steps INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  run_id TEXT,                        -- the one run whose entries move this job; NULL: none does
  deaths INTEGER NOT NULL,            -- runs that died since the newest checkpoint
  metrics TEXT NOT NULL,              -- newest value of every metric, JSON with NaN
  latest_checkpoint_id TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  started_at INTEGER,
  finished_at INTEGER
) STRICT;
CREATE INDEX jobs_by_status ON jobs (status, key);
CREATE INDEX current_runs ON jobs (run_id) WHERE run_id IS NOT NULL;

CREATE TABLE job_reward_servers (
  job_key INTEGER NOT NULL REFERENCES jobs (key) ON DELETE CASCADE,
  position INTEGER NOT NULL,          -- index into spec.rewards
  server_id TEXT NOT NULL,
  PRIMARY KEY (job_key, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE requests (
  request_id TEXT PRIMARY KEY,
  job_key INTEGER NOT NULL REFERENCES jobs (key) ON DELETE CASCADE,
  spec_sha256 TEXT NOT NULL,
  created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE trainers (
  id TEXT PRIMARY KEY,                -- GetTrainerInfoResponse.trainer_id
  address TEXT NOT NULL,
  last_contact_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE runs (
  key INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  job_key INTEGER NOT NULL REFERENCES jobs (key) ON DELETE CASCADE,
  attempt INTEGER NOT NULL,
  trainer_id TEXT NOT NULL,
  from_step INTEGER NOT NULL,         -- step of the checkpoint that it continues; 0: the base model
  checkpoint_uri TEXT NOT NULL,
  spec TEXT NOT NULL,                 -- RunSpec as JSON: a repeated StartRun sends the same
  phase TEXT NOT NULL,
  state TEXT,                         -- newest state in its journal; NULL: no entry yet
  last_sequence INTEGER NOT NULL,     -- newest journal entry that is stored
  created_at INTEGER NOT NULL,
  UNIQUE (job_key, attempt)
) STRICT;
CREATE INDEX open_runs ON runs (trainer_id) WHERE phase <> 'forgotten';

CREATE TABLE journal (
  run_key INTEGER NOT NULL REFERENCES runs (key) ON DELETE CASCADE,
  sequence INTEGER NOT NULL,
  kind TEXT NOT NULL,
  written_at INTEGER NOT NULL,        -- by the trainer's clock
  PRIMARY KEY (run_key, sequence)
) STRICT, WITHOUT ROWID;

CREATE TABLE metric_names (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE job_metric_names (
  job_key INTEGER NOT NULL REFERENCES jobs (key) ON DELETE CASCADE,
  name_id INTEGER NOT NULL REFERENCES metric_names (id),
  PRIMARY KEY (job_key, name_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE points (
  job_key INTEGER NOT NULL REFERENCES jobs (key) ON DELETE CASCADE,
  name_id INTEGER NOT NULL REFERENCES metric_names (id),
  attempt INTEGER NOT NULL,
  step INTEGER NOT NULL,
  value REAL,                         -- NULL is NaN, which SQLite can not hold
  PRIMARY KEY (job_key, name_id, attempt, step)
) STRICT, WITHOUT ROWID;

CREATE TABLE checkpoints (
  job_key INTEGER NOT NULL REFERENCES jobs (key) ON DELETE CASCADE,
  attempt INTEGER NOT NULL,
  step INTEGER NOT NULL,
  uri TEXT NOT NULL,
  size_bytes INTEGER NOT NULL,
  sha256 TEXT NOT NULL,
  saved_at INTEGER NOT NULL,
  removed_at INTEGER,
  PRIMARY KEY (job_key, attempt, step)
) STRICT, WITHOUT ROWID;

CREATE TABLE completion_files (
  job_key INTEGER NOT NULL REFERENCES jobs (key) ON DELETE CASCADE,
  attempt INTEGER NOT NULL,
  step INTEGER NOT NULL,
  uri TEXT NOT NULL,
  row_count INTEGER NOT NULL,
  size_bytes INTEGER NOT NULL,
  sha256 TEXT NOT NULL,
  PRIMARY KEY (job_key, attempt, step)
) STRICT, WITHOUT ROWID;

-- AUTOINCREMENT: a number is never given twice, not even after the newest events were deleted.
CREATE TABLE events (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  job_key INTEGER NOT NULL REFERENCES jobs (key) ON DELETE CASCADE,
  kind TEXT NOT NULL,
  time INTEGER NOT NULL,
  body TEXT NOT NULL
) STRICT;
CREATE INDEX events_by_job ON events (job_key, number);
CREATE INDEX events_by_kind ON events (job_key, kind, number);

CREATE TABLE datasets (
  key INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL UNIQUE,
  source_type TEXT NOT NULL,
  row_count INTEGER NOT NULL,
  columns TEXT NOT NULL,              -- JSON array
  size_bytes INTEGER NOT NULL,
  sha256 TEXT NOT NULL,
  uri TEXT NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE reward_servers (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  addresses TEXT NOT NULL,            -- JSON array
  configured INTEGER NOT NULL,
  created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
