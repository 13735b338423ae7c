-- Version 12: what the training of a job takes in memory.

ALTER TABLE jobs ADD COLUMN memory TEXT;  -- MemoryEstimate as JSON; NULL: it is not known yet
