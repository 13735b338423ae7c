"""What the edges (gRPC, REST) are given: the gateway's domain, wired together by `gateway.server`."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.datasets import DatasetService
from gateway.events import EventHub
from gateway.jobs.service import JobService
from gateway.rewards import RewardServerRegistry


@dataclass(frozen=True, slots=True)
class Gateway:
    """The domain. Edges convert, call it, and convert back."""

    jobs: JobService
    events: EventHub
    datasets: DatasetService
    reward_servers: RewardServerRegistry
