"""A gateway under load: a long history of metrics, many watchers, and a trainer that follows a script."""
