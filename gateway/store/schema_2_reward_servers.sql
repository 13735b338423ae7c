-- Version 2 of the store: how a reward server is spoken to, and what its replicas said of themselves.

ALTER TABLE reward_servers ADD COLUMN access TEXT NOT NULL DEFAULT '{}';  -- ServerAccess as JSON: names only

CREATE TABLE reward_server_replicas (
  server_id TEXT NOT NULL REFERENCES reward_servers (id) ON DELETE CASCADE,
  address TEXT NOT NULL,
  version TEXT NOT NULL,
  rewards TEXT NOT NULL,              -- JSON object: name of a reward to a digest of its description
  PRIMARY KEY (server_id, address)
) STRICT, WITHOUT ROWID;
