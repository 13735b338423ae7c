"""Processes that do what cannot be trusted to end: a fixed pool, a hard deadline, SIGKILL."""

from reward_service.workers._pool import WorkerPool
from reward_service.workers._worker import Canary, WorkerDiedError, WorkerTimeoutError

__all__ = ["Canary", "WorkerDiedError", "WorkerPool", "WorkerTimeoutError"]
