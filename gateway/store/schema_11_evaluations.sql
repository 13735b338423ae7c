-- Version 11: evaluations on held-out prompts.

CREATE TABLE evaluation_files (        -- as completion_files; step 0 is before the first one
  job_key INTEGER NOT NULL REFERENCES jobs (key) ON DELETE CASCADE,
  attempt INTEGER NOT NULL,
  step INTEGER NOT NULL,
  uri TEXT NOT NULL,
  row_count INTEGER NOT NULL,
  size_bytes INTEGER NOT NULL,
  sha256 TEXT NOT NULL,
  PRIMARY KEY (job_key, attempt, step)
) STRICT, WITHOUT ROWID;

ALTER TABLE jobs ADD COLUMN eval_dataset_id TEXT;  -- what eval_dataset_id named when the job was created; NULL: it has none
