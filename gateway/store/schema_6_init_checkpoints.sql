-- Version 6: the checkpoints of other jobs that a job starts from, in the job's own folder.

CREATE TABLE init_checkpoints (
  job_key INTEGER NOT NULL REFERENCES jobs (key) ON DELETE CASCADE,
  position INTEGER NOT NULL,          -- each is put onto what the ones before it made of the base model
  uri TEXT NOT NULL,                  -- folder, relative to the artifact root
  on_four_bits INTEGER NOT NULL,      -- 1: adapters that were trained on a base of 4 bits
  PRIMARY KEY (job_key, position)
) STRICT, WITHOUT ROWID;
