"""The gateway: jobs, datasets, metrics and events, by gRPC and REST."""
