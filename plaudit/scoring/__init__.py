"""Client of reward servers: sessions, windows, retries, balancing, joining.

`RewardScorer` is for synchronous callers: it runs an event loop in a thread of its own, hands completions to
every reward of a run, and gives back one accepted outcome per completion and reward, however servers behave.
"""

from plaudit.scoring._compatibility import RewardRules, job_field
from plaudit.scoring._counters import CAUSES, PROTOCOL_ERRORS, ProtocolCounters
from plaudit.scoring._examples import KnownTexts
from plaudit.scoring._limits import ScoringLimits
from plaudit.scoring._outcomes import CompletionScores, ScoredOutcome
from plaudit.scoring._scorer import RewardScorer
from plaudit.scoring.combine import CombinedReward, RewardStatus, weighted_sum
from plaudit.types.scoring import PROTOCOL_VERSION

__all__ = [
    "CAUSES",
    "PROTOCOL_ERRORS",
    "PROTOCOL_VERSION",
    "CombinedReward",
    "CompletionScores",
    "KnownTexts",
    "ProtocolCounters",
    "RewardRules",
    "RewardScorer",
    "RewardStatus",
    "ScoredOutcome",
    "ScoringLimits",
    "job_field",
    "weighted_sum",
]
