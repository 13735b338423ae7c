-- Version 9: the smallest and the largest value of every 64 steps of a metric, so that a series of a million
-- points is thinned without reading each of them.

CREATE TABLE point_blocks (
  job_key INTEGER NOT NULL REFERENCES jobs (key) ON DELETE CASCADE,
  name_id INTEGER NOT NULL REFERENCES metric_names (id),
  attempt INTEGER NOT NULL,
  block INTEGER NOT NULL,             -- step / 64
  smallest_step INTEGER NOT NULL,
  smallest REAL,                      -- NULL: every value of the block is NaN
  largest_step INTEGER NOT NULL,
  largest REAL,
  PRIMARY KEY (job_key, name_id, attempt, block)
) STRICT, WITHOUT ROWID;

-- SQLite takes the bare columns beside a min() or max() from the row that holds it.
INSERT INTO point_blocks
SELECT job_key, name_id, attempt, block, smallest_step, smallest, largest_step, largest FROM
  (SELECT job_key, name_id, attempt, step / 64 AS block, step AS smallest_step, min(value) AS smallest
   FROM points GROUP BY 1, 2, 3, 4)
  JOIN
  (SELECT job_key, name_id, attempt, step / 64 AS block, step AS largest_step, max(value) AS largest
   FROM points GROUP BY 1, 2, 3, 4)
  USING (job_key, name_id, attempt, block);
