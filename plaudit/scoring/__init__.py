"""Client of reward servers: sessions, windows, retries, balancing, joining."""
