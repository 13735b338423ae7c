"""Client of reward servers: sessions, windows, retries, balancing, joining.

`RewardScorer` is for synchronous callers: it runs an event loop in a thread of its own, hands completions to
every reward of a run, and gives back one accepted outcome per completion and reward, however servers behave.
"""

from plaudit.scoring._counters import ProtocolCounters
from plaudit.scoring._limits import ScoringLimits
from plaudit.scoring._outcomes import CompletionScores, ScoredOutcome
from plaudit.scoring._scorer import RewardScorer
from plaudit.scoring.combine import CombinedReward, RewardStatus, weighted_sum

__all__ = [
    "CombinedReward",
    "CompletionScores",
    "ProtocolCounters",
    "RewardScorer",
    "RewardStatus",
    "ScoredOutcome",
    "ScoringLimits",
    "weighted_sum",
]
