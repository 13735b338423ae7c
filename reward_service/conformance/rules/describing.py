"""Rules about what a server says of itself."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import Final

from jsonschema.exceptions import SchemaError
from jsonschema.validators import validator_for

from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.rpc import LONGEST_DURATION_SECONDS, is_duration
from reward_service.conformance._ledger import shown
from reward_service.conformance._rule import Broken, Need, optional, required
from reward_service.conformance._run import Run

PROTOCOL_VERSION: Final = 1

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_LEAST_FRAME_BYTES: Final = 4096


@required(
    "R01",
    "server-info",
    "Describes the server: its protocol range, rewards, limits and capabilities.",
    "implement GetServerInfo; it takes an empty request too, and answers within seconds",
    need=Need.NOTHING,
)
async def server_info(run: Run) -> str | None:
    """The description arrives."""
    await run.load()
    name = f"{run.info.server_name} {run.info.server_version}".strip()
    count = len(run.info.rewards)
    offered = f"{count} reward{'' if count == 1 else 's'}; checked is {shown(run.reward.name)}"
    return f"{shown(name)}, {offered}" if name else offered


@required(
    "R02",
    "protocol-range",
    "Inclusive range of behaviour revisions of this package that are spoken.",
    "answer min_protocol_version = max_protocol_version = 1",
    need=Need.INFO,
)
async def protocol_range(run: Run) -> str | None:
    """The range is one, and holds the revision that this suite speaks."""
    low, high = run.info.min_protocol_version, run.info.max_protocol_version
    if not 1 <= low <= high:
        raise Broken(f"min_protocol_version {low}, max_protocol_version {high}: no range that begins at 1")
    if low > PROTOCOL_VERSION:
        raise Broken(f"versions {low} to {high} are spoken; clients speak {PROTOCOL_VERSION}")
    return f"{low} to {high}"


@required(
    "R03",
    "reward-names",
    "Names are unique within the server.",
    "offer at least one reward; give each a name of its own, in lower-case letters, digits and _",
    need=Need.INFO,
)
async def reward_names(run: Run) -> str | None:
    """Every reward has a name, and each its own."""
    names = [reward.name for reward in run.info.rewards]
    if not names:
        raise Broken("no reward is on offer")
    for name, count in Counter(names).items():
        if not _NAME.fullmatch(name):
            raise Broken(f"reward name {shown(name)} is not of the form [a-z][a-z0-9_]{{0,62}}")
        if count > 1:
            raise Broken(f"reward name {shown(name)} is there {count} times")
    return ", ".join(names[:8])


@required(
    "R04",
    "reward-fields",
    "Largest value that can be returned. Unset: unbounded.",
    "set scope to SCOPE_COMPLETION or SCOPE_GROUP, and bounds, where there are any, to finite numbers in "
    "order",
    need=Need.INFO,
)
async def reward_fields(run: Run) -> str | None:
    """Scope, bounds and columns are usable."""
    for reward in run.info.rewards:
        where = f"reward {shown(reward.name)}"
        if reward.scope == pb.Reward.SCOPE_UNSPECIFIED:
            raise Broken(f"{where}: scope is SCOPE_UNSPECIFIED")
        for bound in ("min_value", "max_value"):
            if reward.HasField(bound) and not math.isfinite(getattr(reward, bound)):
                raise Broken(
                    f"{where}: {bound} is {getattr(reward, bound)}; leave it unset where there is none"
                )
        if (
            reward.HasField("min_value")
            and reward.HasField("max_value")
            and reward.min_value > reward.max_value
        ):
            raise Broken(f"{where}: min_value {reward.min_value:g} is above max_value {reward.max_value:g}")
        if "" in reward.required_columns:
            raise Broken(f"{where}: a required column has an empty name")
    return None


@required(
    "R05",
    "config-schema",
    "JSON Schema of RewardSelection.config_json. Empty: takes no config.",
    "put a JSON Schema of an object into config_schema_json, or leave it empty",
    need=Need.INFO,
)
async def config_schema(run: Run) -> str | None:
    """Every schema is one."""
    count = 0
    for reward in run.info.rewards:
        if not reward.config_schema_json:
            continue
        count += 1
        where = f"reward {shown(reward.name)}: config_schema_json"
        try:
            schema = json.loads(reward.config_schema_json)
        except (ValueError, RecursionError) as error:
            raise Broken(f"{where} is no JSON: {error}") from None
        if not isinstance(schema, dict):
            raise Broken(f"{where} is no object: {shown(reward.config_schema_json)}")
        try:
            validator_for(schema).check_schema(schema)
        except SchemaError as error:
            raise Broken(f"{where} is no JSON Schema: {shown(error.message)}") from None
    return f"{count} of {len(run.info.rewards)} rewards take a config"


@required(
    "R06",
    "limits",
    "Limits that a client must respect.",
    f"set max_frame_bytes to 0 or to at least {_LEAST_FRAME_BYTES}, and result_retention to a duration above "
    "0, or leave it unset",
    need=Need.INFO,
)
async def limits(run: Run) -> str | None:
    """The limits let work through."""
    most = run.info.limits.max_frame_bytes
    if 0 < most < _LEAST_FRAME_BYTES:
        raise Broken(f"limits.max_frame_bytes is {most}: hardly a completion fits")
    retention = run.info.capabilities.result_retention
    if not is_duration(retention):
        raise Broken(
            f"capabilities.result_retention is {retention.seconds} s and {retention.nanos} ns; it is 0 to "
            f"{LONGEST_DURATION_SECONDS:,} s"
        )
    count = run.info.limits.max_batch_completions or "any number of"
    return f"batches of {count} completions, frames of {run.frame_bytes} bytes"


@optional(
    "O01",
    "described",
    "One sentence on what is rewarded.",
    "fill in server_name, server_version and each reward's description: people read them in lists and logs",
    need=Need.INFO,
)
async def described(run: Run) -> str | None:
    """People are told what this is."""
    empty = [name for name in ("server_name", "server_version") if not getattr(run.info, name)]
    empty += [f"description of {shown(r.name)}" for r in run.info.rewards if not r.description]
    if empty:
        raise Broken(f"empty: {', '.join(empty)}")
    return None


RULES: Final = (server_info, protocol_range, reward_names, reward_fields, config_schema, limits)
OPTIONAL_RULES: Final = (described,)
