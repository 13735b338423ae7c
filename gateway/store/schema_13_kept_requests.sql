-- Version 13: a request id is remembered for its 24 hours, also where what it made was deleted.

CREATE TABLE kept_requests (
  request_id TEXT PRIMARY KEY,
  job_key INTEGER REFERENCES jobs (key) ON DELETE SET NULL,  -- NULL: the job was deleted
  job_id TEXT NOT NULL,
  spec_sha256 TEXT NOT NULL,
  created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO kept_requests
  SELECT request_id, job_key, jobs.id, spec_sha256, requests.created_at
  FROM requests JOIN jobs ON jobs.key = job_key;
DROP TABLE requests;
ALTER TABLE kept_requests RENAME TO requests;

CREATE TABLE kept_function_requests (
  request_id TEXT PRIMARY KEY,
  function_key INTEGER REFERENCES reward_functions (key) ON DELETE SET NULL,  -- NULL: it was deleted
  function_id TEXT NOT NULL,
  asked_sha256 TEXT NOT NULL,
  created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO kept_function_requests
  SELECT request_id, function_key, reward_functions.id, asked_sha256, reward_function_requests.created_at
  FROM reward_function_requests JOIN reward_functions ON reward_functions.key = function_key;
DROP TABLE reward_function_requests;
ALTER TABLE kept_function_requests RENAME TO reward_function_requests;
