"""What the SDK returns: plain, typed, immutable data."""

from plaudit.client.models._access import AuditEntry, Caller, NewToken, Token
from plaudit.client.models._datasets import Dataset, DatasetRow, TriedSource
from plaudit.client.models._events import (
    Alert,
    AttemptStarted,
    Bookmark,
    CheckpointSaved,
    EventBody,
    JobEvent,
    LogLine,
    MetricSeries,
    RewardOutcome,
    ScoredCompletion,
    StatusChanged,
    StepMetrics,
)
from plaudit.client.models._jobs import JobAlert, JobError, TrainingJob
from plaudit.client.models._models import (
    Checkpoint,
    DownloadProgress,
    Model,
    ModelFile,
    ModelKind,
    ModelStatus,
)
from plaudit.client.models._rescores import Rescore, RescoredReward, RescoreResult, RescoreSummary
from plaudit.client.models._rewards import (
    OfferedReward,
    ReplicaState,
    RewardFunction,
    RewardServer,
    RewardServerReplica,
)
from plaudit.client.models._trainers import Trainer, TrainerState
from plaudit.types.token_statistics import TokenStatistics

__all__ = [
    "Alert",
    "AttemptStarted",
    "AuditEntry",
    "Bookmark",
    "Caller",
    "Checkpoint",
    "CheckpointSaved",
    "Dataset",
    "DatasetRow",
    "DownloadProgress",
    "EventBody",
    "JobAlert",
    "JobError",
    "JobEvent",
    "LogLine",
    "MetricSeries",
    "Model",
    "ModelFile",
    "ModelKind",
    "ModelStatus",
    "NewToken",
    "OfferedReward",
    "ReplicaState",
    "Rescore",
    "RescoreResult",
    "RescoreSummary",
    "RescoredReward",
    "RewardFunction",
    "RewardOutcome",
    "RewardServer",
    "RewardServerReplica",
    "ScoredCompletion",
    "StatusChanged",
    "StepMetrics",
    "Token",
    "TokenStatistics",
    "Trainer",
    "TrainerState",
    "TrainingJob",
    "TriedSource",
]
