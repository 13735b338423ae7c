"""Rules about sessions that must not be opened, and frames that come where they must not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import grpc
from jsonschema.validators import validator_for

from plaudit.reward.v1 import reward_service_pb2 as pb
from reward_service.conformance._ledger import shown
from reward_service.conformance._rule import Broken, Skipped, optional, required
from reward_service.conformance._run import Run
from reward_service.conformance._talk import Ending, Late, Talk
from reward_service.conformance.rules.describing import PROTOCOL_VERSION

_WRONG_VALUES: Final[tuple[Any, ...]] = (None, "no such value", -1e18, [[]], {"no_such_setting": []}, True)


@required(
    "R33",
    "bad-config",
    "Configuration that matches Reward.config_schema_json, as a JSON object.",
    "check config_json by the schema when a session opens, and end the stream with INVALID_ARGUMENT where it "
    "does not match: a reward that is set up wrongly teaches the wrong thing",
)
async def bad_config(run: Run) -> str | None:
    """A config that its own schema refuses is refused, where there is a schema."""
    if not run.reward.config_schema_json:
        raise Skipped("the reward takes no config")
    accepted: list[str] = []
    exchange: Sequence[str] = ()
    for config in bad_configs(run.reward.config_schema_json, run.settings.config_json):
        async with run.talk(run.selection(config_json=config)) as talk:
            try:
                ending = await refusal(talk, talk.opening(), run.brief)
            except Broken as broken:
                accepted.append(f"config {shown(config)}: {broken.found}")
                exchange = broken.exchange
                continue
            if ending.code is not grpc.StatusCode.INVALID_ARGUMENT:
                raise talk.broken(
                    f"config {shown(config)} was refused with {ending}, not with INVALID_ARGUMENT"
                )
    if accepted:
        raise Broken("; ".join(accepted), exchange)
    return None


def bad_configs(schema_json: str, config_json: str) -> Iterator[str]:
    """Texts that are no JSON, no object, and an object that the schema refuses, where one is found."""
    yield '{"'
    yield "[1]"
    schema = json.loads(schema_json)
    good = json.loads(config_json or "{}")
    validator = validator_for(schema)(schema)
    names = [*schema.get("properties", {}), "no_such_setting"]
    candidates: Iterator[dict[str, Any]] = (
        {**good, name: value} for name in names for value in _WRONG_VALUES
    )
    wrong = next((candidate for candidate in candidates if not validator.is_valid(candidate)), None)
    if wrong is not None:
        yield json.dumps(wrong)


async def refusal(talk: Talk, opening: pb.SessionOpen, seconds: float) -> Ending:
    """Opens a session that is to be refused; the end of the stream. Raises Broken where it is opened."""
    await talk.write(pb.ScoreRequest(open=opening))
    await talk.wait(lambda: talk.ledger.frames > 0 or talk.ending is not None, "the refusal", seconds)
    if talk.ending is None or talk.ledger.opened is not None:
        raise talk.broken("the session was opened")
    return talk.ending


@optional(
    "O12",
    "protocol-version",
    "FAILED_PRECONDITION is a protocol version outside the range.",
    "end the stream with FAILED_PRECONDITION where open.protocol_version is outside of what you announce",
)
async def protocol_version(run: Run) -> str | None:
    """Another revision of the protocol is refused."""
    for version in (0, max(run.info.max_protocol_version, PROTOCOL_VERSION) + 41):
        async with run.talk() as talk:
            try:
                ending = await refusal(talk, talk.opening(version=version), run.brief)
            except Broken as broken:
                raise Broken(f"protocol_version {version}: {broken.found}", broken.exchange) from None
            if ending.code is not grpc.StatusCode.FAILED_PRECONDITION:
                raise talk.broken(f"protocol_version {version} was refused with {ending}")
    return None


@optional(
    "O13",
    "unknown-reward",
    "What is wrong with it ends the stream with INVALID_ARGUMENT and every wrong field.",
    "end the stream with INVALID_ARGUMENT where open names a reward that is not on offer, an empty key, or "
    "one key twice",
)
async def unknown_reward(run: Run) -> str | None:
    """A session of a reward that is not on offer is refused."""
    wrong = {
        "a reward that is not on offer": [run.selection(name="no_such_reward", config_json="")],
        "one key twice": [run.selection("twin"), run.selection("twin")],
        "an empty key": [run.selection("")],
    }
    for what, selections in wrong.items():
        async with run.talk(*selections) as talk:
            try:
                ending = await refusal(talk, talk.opening(), run.brief)
            except Broken as broken:
                raise Broken(f"{what}: {broken.found}", broken.exchange) from None
            if ending.code is not grpc.StatusCode.INVALID_ARGUMENT:
                raise talk.broken(f"{what} was refused with {ending}")
    return None


@optional(
    "O14",
    "bad-request",
    "INVALID_ARGUMENT carries a BadRequest that names every wrong field of `open`",
    "put a google.rpc.BadRequest with all wrong fields into the status details of INVALID_ARGUMENT",
)
async def bad_request(run: Run) -> str | None:
    """All that is wrong with `open` is named at once."""
    selections = [
        run.selection("a", name="no_such_reward", config_json=""),
        run.selection("b", name="nor_this_one", config_json=""),
    ]
    async with run.talk(*selections) as talk:
        ending = await refusal(talk, talk.opening(), run.brief)
        named = [
            index for index in (0, 1) if any(f"rewards[{index}]" in field for field in ending.bad_fields)
        ]
        if not ending.bad_fields:
            raise talk.broken(f"the stream ended with {ending}, without a BadRequest")
        if named != [0, 1]:
            raise talk.broken(
                f"wrong were rewards[0] and rewards[1]; named are {', '.join(map(shown, ending.bad_fields))}"
            )
    return None


@optional(
    "O15",
    "second-open",
    "The client sends `open`, first and exactly once",
    "end the stream with INVALID_ARGUMENT where open comes again",
)
async def second_open(run: Run) -> str | None:
    """`open` comes once."""
    async with run.talk() as talk:
        await talk.open()
        answered = talk.ledger.frames
        await talk.write(pb.ScoreRequest(open=talk.opening()))
        try:
            await talk.wait(
                lambda: talk.ledger.frames > answered or talk.ending is not None, "the end", run.brief
            )
        except Late:
            raise talk.broken("the second open was ignored") from None
        if talk.ending is None:
            raise talk.broken("the second open was answered")
        if talk.ending.code is not grpc.StatusCode.INVALID_ARGUMENT:
            raise talk.broken(f"the stream ended with {talk.ending}")
    return None


@optional(
    "O16",
    "batch-first",
    "The client speaks first: `open`, once.",
    "end the stream with INVALID_ARGUMENT where the first frame is not open",
)
async def batch_first(run: Run) -> str | None:
    """Nothing comes before `open`."""
    async with run.talk() as talk:
        await talk.send_now(run.work.many(1))
        try:
            await talk.wait(lambda: talk.ledger.frames > 0 or talk.ending is not None, "the end", run.brief)
        except Late:
            raise talk.broken("a batch before open was ignored") from None
        if talk.ending is None:
            raise talk.broken("a batch before open was answered")
        if talk.ending.code is not grpc.StatusCode.INVALID_ARGUMENT:
            raise talk.broken(f"the stream ended with {talk.ending}")
    return None


RULES: Final = (bad_config,)
OPTIONAL_RULES: Final = (
    protocol_version,
    unknown_reward,
    bad_request,
    second_open,
    batch_first,
)
