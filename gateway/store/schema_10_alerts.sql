-- Version 10: alerts, the failure modes that the series of jobs showed, and why jobs were stopped for one.

CREATE TABLE alerts (
  key INTEGER PRIMARY KEY AUTOINCREMENT,
  job_key INTEGER NOT NULL REFERENCES jobs (key) ON DELETE CASCADE,
  kind TEXT NOT NULL,
  subject TEXT NOT NULL,              -- name of the reward that it is of; '': the whole job
  severity TEXT NOT NULL,             -- the worst so far; message, evidence and step are of when it came to that
  message TEXT NOT NULL,
  evidence TEXT NOT NULL,             -- JSON object of finite numbers
  step INTEGER NOT NULL,
  raised_at INTEGER NOT NULL,         -- by the trainer's clock
  ended_step INTEGER                  -- step at which the series no longer showed it; NULL: it goes on
) STRICT;
CREATE INDEX alerts_by_job ON alerts (job_key, key);
CREATE UNIQUE INDEX open_alerts ON alerts (job_key, kind, subject) WHERE ended_step IS NULL;

-- Each as the JSON object that is read of it.
CREATE VIEW alert_objects AS
SELECT key, job_key, ended_step, json_object(
  'kind', kind, 'subject', subject, 'severity', severity, 'message', message, 'evidence', json(evidence),
  'step', step, 'raised_at', raised_at, 'ended_step', ended_step) AS alert
FROM alerts;

ALTER TABLE jobs ADD COLUMN stop_reason TEXT NOT NULL DEFAULT '';  -- why an alert pauses, or has paused, it
