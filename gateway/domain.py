"""What the edges (gRPC, REST) are given: the gateway's domain, wired together by `gateway.server`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.access import Access
from gateway.datasets import DatasetConnection, DatasetService
from gateway.datasets.token_statistics import PromptTokens
from gateway.event_hub import EventHub
from gateway.jobs.log_lines import JobLog
from gateway.jobs.scheduler import TrainerPlaces
from gateway.jobs.service import JobService
from gateway.models.service import ModelService
from gateway.rescoring.service import RescoreService
from gateway.reward_functions import RewardFunctionService
from gateway.rewards import RewardServerRegistry


@dataclass(frozen=True, slots=True)
class Gateway:
    """The domain. Edges convert, call it, and convert back."""

    jobs: JobService
    events: EventHub
    datasets: DatasetService
    reward_servers: RewardServerRegistry
    rescores: RescoreService
    models: ModelService
    reward_functions: RewardFunctionService
    job_log: JobLog
    dataset_connection: DatasetConnection
    prompt_tokens: PromptTokens
    access: Access
    trainers: Callable[[], Sequence[TrainerPlaces]]
    """The trainers of the settings, as they answered when they were last asked."""
