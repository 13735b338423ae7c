-- Version 4: which training methods a dataset serves. All that were stored before had prompts.

ALTER TABLE datasets ADD COLUMN methods TEXT NOT NULL DEFAULT '["grpo"]'; -- JSON array
