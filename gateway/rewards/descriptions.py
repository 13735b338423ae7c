"""Reads what a reward server says of itself.

It comes from somebody else's process, and may be wrong or hostile: it is bounded in size, what makes no sense
in it is told, and nothing of it is believed that a job could stumble over.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from gateway.jobs.ports import OfferedReward, ServerDescription
from gateway.rewards.config_schema import parse_config_schema
from plaudit.reward.v1 import reward_service_pb2
from plaudit.scoring import PROTOCOL_VERSION
from plaudit.types.texts import one_line
from plaudit.types.validation import shown

_MAX_REWARDS: Final = 256
_MAX_TEXT_LENGTH: Final = 1_000
_MAX_NAME_LENGTH: Final = 200
_MAX_COLUMNS: Final = 256
_MAX_SCHEMAS_LENGTH: Final = 256 * 1024
_NAMES_SHOWN: Final = 3
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")


def description_of(answer: reward_service_pb2.GetServerInfoResponse) -> ServerDescription:
    """What `answer` offers to jobs, and what is odd in it. Takes up to some seconds, for its schemas."""
    told = (answer.server_name, answer.server_version)
    version = " ".join(filter(None, (one_line(text, _MAX_NAME_LENGTH) for text in told)))
    lowest, highest = answer.min_protocol_version, answer.max_protocol_version
    if not lowest <= PROTOCOL_VERSION <= highest:
        incompatible = (
            f"it speaks protocol versions {lowest} to {highest} of plaudit.reward.v1, and trainers speak "
            f"{PROTOCOL_VERSION} to {PROTOCOL_VERSION}; upgrade the older of the two"
        )
        return ServerDescription(
            reachable=False,
            unreachable_reason=incompatible,
            server_version=version,
            incompatible=incompatible,
        )
    named, warnings = _usable_names(answer.rewards)
    rewards, schema_warnings = _offered_rewards(named)
    return ServerDescription(
        reachable=True,
        server_version=version,
        rewards=rewards,
        warnings=(*warnings, *schema_warnings),
    )


def digests_of(answer: reward_service_pb2.GetServerInfoResponse) -> dict[str, str]:
    """A digest of each reward's description, by name: equal where the reward is described as before."""
    rewards, _ = _usable_names(answer.rewards)
    return {
        reward.name: hashlib.sha256(reward.SerializeToString(deterministic=True)).hexdigest()
        for reward in rewards
    }


def _usable_names(
    rewards: Sequence[reward_service_pb2.Reward],
) -> tuple[list[reward_service_pb2.Reward], list[str]]:
    """The rewards that a job can name, the first of each name, and what is told of the others."""
    warnings = []
    kept: dict[str, reward_service_pb2.Reward] = {}
    for reward in rewards:
        if _NAME.fullmatch(reward.name):
            kept.setdefault(reward.name, reward)
    counts = Counter(reward.name for reward in rewards)
    unusable = [name for name in counts if name not in kept]
    if unusable:
        warnings.append(
            f"{len(unusable)} rewards have names that no job can use ({_some(unusable)}): a name has 1 to 63 "
            "small letters, digits and underscores, and starts with a letter"
        )
    doubled = [name for name in kept if counts[name] > 1]
    if doubled:
        warnings.append(
            f"{len(doubled)} names stand for several rewards ({_some(doubled)}); the first of each is shown"
        )
    if len(kept) > _MAX_REWARDS:
        warnings.append(f"it offers {len(kept):,} rewards; the first {_MAX_REWARDS} are shown")
    if not kept:
        warnings.append("it offers no reward")
    return list(kept.values())[:_MAX_REWARDS], warnings


def _offered_rewards(
    rewards: Sequence[reward_service_pb2.Reward],
) -> tuple[tuple[OfferedReward, ...], list[str]]:
    room = _MAX_SCHEMAS_LENGTH
    offered, unchecked = [], []
    for reward in rewards:
        schema = reward.config_schema_json
        room -= len(schema)
        # Beyond what is checked here, the server checks its configurations itself.
        offer = _offered(reward, schema if room >= 0 or not schema else "{}")
        if schema.strip() not in ("", "{}") and offer.config_schema == {}:
            unchecked.append(reward.name)
        offered.append(offer)
    warnings = [f"{offer.name}: {offer.problem}" for offer in offered if offer.problem]
    if unchecked:
        warnings.append(
            f"the config_schema_json of {len(unchecked)} rewards can not be used ({_some(unchecked)}): it is "
            "no JSON Schema, or too large; their configurations are checked by the server alone"
        )
    return tuple(offered), warnings


def _offered(reward: reward_service_pb2.Reward, config_schema: str) -> OfferedReward:
    low = reward.min_value if reward.HasField("min_value") else None
    high = reward.max_value if reward.HasField("max_value") else None
    return OfferedReward(
        name=reward.name,
        description=one_line(reward.description, _MAX_TEXT_LENGTH),
        min_value=_bound(low),
        max_value=_bound(high),
        required_columns=needed_columns(reward.required_columns),
        config_schema=parse_config_schema(config_schema, reward.name),
        problem=_range_problem(low, high),
    )


def needed_columns(told: Sequence[str]) -> tuple[str, ...]:
    """Columns that a server says it needs, as many as are looked at."""
    return tuple(column[:_MAX_TEXT_LENGTH] for column in told[:_MAX_COLUMNS])


def _bound(value: float | None) -> float | None:
    """A bound as it can be shown: JSON has neither NaN nor infinities."""
    return value if value is not None and math.isfinite(value) else None


def _range_problem(low: float | None, high: float | None) -> str:
    lowest = -math.inf if low is None else low
    highest = math.inf if high is None else high
    if lowest <= highest and lowest < math.inf and highest > -math.inf:
        return ""
    return (
        f"no value lies in its range, {lowest:g} to {highest:g}; mend min_value and max_value in the "
        "server's description"
    )


def _some(names: Sequence[str]) -> str:
    more = ", …" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(shown(name) for name in names[:_NAMES_SHOWN]) + more
