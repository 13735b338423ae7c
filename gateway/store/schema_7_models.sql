-- Version 7: models, the exports of jobs' checkpoints.

CREATE TABLE models (
  key INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  job_key INTEGER NOT NULL REFERENCES jobs (key) ON DELETE CASCADE,
  attempt INTEGER NOT NULL,           -- that took the checkpoint
  step INTEGER NOT NULL,
  is_final INTEGER NOT NULL,          -- 1: the run exported it when its steps were done; 0: asked for
  kind TEXT NOT NULL,
  dtype TEXT NOT NULL,
  status TEXT NOT NULL,
  status_detail TEXT NOT NULL,
  checkpoint_uri TEXT NOT NULL,       -- folders, relative to the artifact root
  uri TEXT NOT NULL,
  files TEXT NOT NULL,                -- JSON array of path, size_bytes and sha256
  created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX models_by_job ON models (job_key, key);
CREATE UNIQUE INDEX final_models ON models (job_key) WHERE is_final;
CREATE INDEX models_by_status ON models (status, key);
