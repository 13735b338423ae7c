"""Asks a reward server what it offers.

The answer comes from somebody else's process: it may be late, wrong or hostile, and is bounded in time and
size. A server that is away is an answer too, never an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

import grpc
import grpc.aio

from gateway.jobs.ports import OfferedReward, ServerDescription
from gateway.rewards.config_schema import parse_config_schema
from plaudit.errors import PlauditError, UnavailableError
from plaudit.reward.v1 import reward_service_pb2, reward_service_pb2_grpc
from plaudit.rpc import Endpoint, ForbiddenAddressError, error_from_rpc, open_channel, resolve

DEADLINE_SECONDS: Final = 3.0
"""For all replicas of a server together, each of which is asked at once."""
PROTOCOL_VERSION: Final = 1
"""Behaviour revision of plaudit.reward.v1 that trainers speak."""

_MAX_ADDRESSES: Final = 4
_MAX_REWARDS: Final = 256
_MAX_TEXT_LENGTH: Final = 1_000
_MAX_COLUMNS: Final = 256
_MAX_SCHEMAS_LENGTH: Final = 256 * 1024


async def describe(addresses: Sequence[str]) -> ServerDescription:
    """What the first replica to answer says of itself, or why none did."""
    asked = [asyncio.create_task(_ask(address)) for address in addresses]
    reasons: list[str] = []
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            for answer in asyncio.as_completed(asked):
                try:
                    return await asyncio.to_thread(_description, await answer)
                except PlauditError as error:
                    reasons.append(error.message)
    except TimeoutError:
        reasons.append(f"{', '.join(addresses)} did not answer within {DEADLINE_SECONDS:g} s")
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    return ServerDescription(reachable=False, unreachable_reason="; ".join(reasons))


async def _ask(address: str) -> reward_service_pb2.GetServerInfoResponse:
    """The description of the server at `host:port`, or a PlauditError that says why there is none."""
    failure: PlauditError | None = None
    for endpoint in await _endpoints(address):
        channel = open_channel(endpoint.target)
        try:
            return await reward_service_pb2_grpc.RewardServiceStub(channel).GetServerInfo(
                reward_service_pb2.GetServerInfoRequest(client_name="plaudit gateway"),
                timeout=DEADLINE_SECONDS,
            )
        except grpc.aio.AioRpcError as error:
            failure = _reason(error, address)
        finally:
            await channel.close()
    raise failure or UnavailableError(f"{address} has no address that can be dialled")


async def _endpoints(address: str) -> list[Endpoint]:
    """What to dial: numeric addresses only, each of them checked, so that no name resolves twice."""
    try:
        return (await resolve(address, DEADLINE_SECONDS))[:_MAX_ADDRESSES]
    except ForbiddenAddressError as error:
        raise UnavailableError(str(error)) from None
    except OSError as error:
        raise UnavailableError(f"the name in {address} can not be resolved ({error.strerror})") from None


def _reason(error: grpc.aio.AioRpcError, address: str) -> PlauditError:
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return UnavailableError(f"{address} is no reward server: it does not serve plaudit.reward.v1")
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return UnavailableError(f"{address} did not answer within {DEADLINE_SECONDS:g} s")
    failure = error_from_rpc(error, target=address)
    return UnavailableError(failure.message[:_MAX_TEXT_LENGTH])


def _description(answer: reward_service_pb2.GetServerInfoResponse) -> ServerDescription:
    lowest, highest = answer.min_protocol_version, answer.max_protocol_version
    if not lowest <= PROTOCOL_VERSION <= highest:
        return ServerDescription(
            reachable=False,
            unreachable_reason=f"it speaks protocol versions {lowest} to {highest} of plaudit.reward.v1, and "
            f"{PROTOCOL_VERSION} is needed",
        )
    version = f"{answer.server_name[:_MAX_TEXT_LENGTH]} {answer.server_version[:_MAX_TEXT_LENGTH]}".strip()
    return ServerDescription(
        reachable=True,
        server_version=version,
        rewards=tuple(_offered_rewards(answer.rewards[:_MAX_REWARDS])),
    )


def _offered_rewards(rewards: Sequence[reward_service_pb2.Reward]) -> Iterator[OfferedReward]:
    room = _MAX_SCHEMAS_LENGTH
    for reward in rewards:
        schema = reward.config_schema_json
        room -= len(schema)
        # Beyond what is checked, the server checks its configurations itself.
        yield _offered(reward, schema if room >= 0 or not schema else "{}")


def _offered(reward: reward_service_pb2.Reward, config_schema: str) -> OfferedReward:
    return OfferedReward(
        name=reward.name[:_MAX_TEXT_LENGTH],
        description=reward.description[:_MAX_TEXT_LENGTH],
        min_value=reward.min_value if reward.HasField("min_value") else None,
        max_value=reward.max_value if reward.HasField("max_value") else None,
        required_columns=tuple(
            column[:_MAX_TEXT_LENGTH] for column in reward.required_columns[:_MAX_COLUMNS]
        ),
        config_schema=parse_config_schema(config_schema, reward.name[:_MAX_TEXT_LENGTH]),
    )
