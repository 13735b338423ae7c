"""One address of a reward server: dialled, asked for its description and its health.

The answer comes from somebody else's process: it may be late, wrong or hostile, and is bounded in time and
size. An address where nothing answers is an answer too, never an error.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

import grpc
import grpc.aio
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc

from gateway.jobs.ports import ServerDescription
from gateway.rewards.descriptions import description_of, digests_of
from gateway.store.reward_servers import SeenReplica
from plaudit.errors import FailedPreconditionError, PlauditError, UnauthenticatedError, UnavailableError
from plaudit.reward.v1 import reward_service_pb2, reward_service_pb2_grpc
from plaudit.rpc import (
    Credentials,
    Endpoint,
    ForbiddenAddressError,
    LoadCredentials,
    SecuredChannel,
    error_from_rpc,
    other_protocol,
    resolve,
)

DEADLINE_SECONDS: Final = 3.0
"""Of one check, from the lookup to the last answer."""

log = structlog.get_logger(__name__)

_TROUBLE_SECONDS: Final = 1.5
_OTHER_SECONDS: Final = 1.0
_HEALTH_SECONDS: Final = 1.0
_MAX_ADDRESSES: Final = 4
_MAX_DESCRIPTION_BYTES: Final = 4 * 1024 * 1024
_MAX_TEXT_LENGTH: Final = 1_000
_SERVICE: Final = "plaudit.reward.v1.RewardService"
_OPTIONS: Final = (("grpc.max_receive_message_length", _MAX_DESCRIPTION_BYTES),)

_ANSWERED: Final = frozenset(
    {
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.INTERNAL,
    }
)
"""Statuses that come from something that answers there, and not from the way to it."""


class ReplicaState(StrEnum):
    """What a check found at an address."""

    SERVING = "serving"
    NOT_SERVING = "not_serving"
    """Something answers there, but does not serve us."""
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class ReplicaHealth:
    """An address as it was found at `checked_at`. `reason` is "" where it serves.

    `since` is the first check that found the state, with no other in between; `latency_seconds` the time from
    the lookup of the name to the description, None where there was none.
    """

    address: str
    state: ReplicaState
    reason: str
    since: datetime
    checked_at: datetime
    server_version: str = ""
    latency_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ReplicaCheck:
    """What one check found. `description` is None where the replica did not describe itself; `seen` tells two
    descriptions apart.
    """

    health: ReplicaHealth
    description: ServerDescription | None = None
    seen: SeenReplica | None = None


@dataclass(frozen=True, slots=True)
class _Answer:
    info: reward_service_pb2.GetServerInfoResponse
    latency_seconds: float
    trouble: str
    """Why it does not serve, though it describes itself; "" where it does."""


class _MissedError(Exception):
    """There is no description: why, and whether something answers there at all."""

    def __init__(self, reason: str, *, answered: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.answered = answered


class ReplicaProbe:
    """Checks one address, again and again; remembers since when it is as it is."""

    def __init__(self, address: str, load_credentials: LoadCredentials) -> None:
        self.address = address
        self._load_credentials = load_credentials
        self._last: ReplicaHealth | None = None
        self._parsed: tuple[bytes, ServerDescription, SeenReplica] | None = None

    async def check(self) -> ReplicaCheck:
        """Dials the address and asks. Never raises, and takes DEADLINE_SECONDS or a little more."""
        try:
            answer = await self._ask()
            description, seen = await self._read(answer.info)
        except _MissedError as missed:
            state = ReplicaState.NOT_SERVING if missed.answered else ReplicaState.UNREACHABLE
            return ReplicaCheck(self._health(state, missed.reason))
        except Exception:
            # What somebody else's server makes these libraries raise must not end the watch.
            log.exception("unexpected error while a reward server is checked", address=self.address)
            reason = f"{self.address}: its answer made no sense to the gateway, whose log says more"
            return ReplicaCheck(self._health(ReplicaState.NOT_SERVING, reason))
        reason = description.incompatible or answer.trouble
        return ReplicaCheck(
            self._health(
                ReplicaState.NOT_SERVING if reason else ReplicaState.SERVING,
                reason,
                description.server_version,
                answer.latency_seconds,
            ),
            description,
            seen,
        )

    async def score_once(
        self, request: reward_service_pb2.ScoreOnceRequest
    ) -> reward_service_pb2.ScoreOnceResponse:
        """One call of ScoreOnce. Raises PlauditError, within DEADLINE_SECONDS."""
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                credentials = self._load_credentials()
                endpoint = (await self._endpoints())[0]
                secured = credentials.open_channel(endpoint, _OPTIONS)
                async with secured.channel:
                    return await reward_service_pb2_grpc.RewardServiceStub(secured.channel).ScoreOnce(
                        request, metadata=secured.metadata, timeout=DEADLINE_SECONDS
                    )
        except TimeoutError:
            raise UnavailableError(_silent(self.address)) from None
        except _MissedError as missed:
            raise UnavailableError(missed.reason) from None
        except grpc.aio.AioRpcError as failure:
            raise error_from_rpc(failure, target=self.address) from None

    async def _ask(self) -> _Answer:
        began = asyncio.get_running_loop().time()
        try:
            credentials = self._load_credentials()
        except FailedPreconditionError as error:
            raise _MissedError(f"{self.address} was not dialled: {error.message}") from None
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                missed: _MissedError | None = None
                for endpoint in await self._endpoints():
                    try:
                        return await self._describe(endpoint, credentials, began)
                    except _MissedError as error:
                        missed = error
                raise missed or _MissedError(f"{self.address} has no address that can be dialled")
        except TimeoutError:
            raise _MissedError(_silent(self.address)) from None

    async def _endpoints(self) -> list[Endpoint]:
        """What to dial: numeric addresses only, each of them checked, so that no name resolves twice."""
        try:
            return (await resolve(self.address, DEADLINE_SECONDS))[:_MAX_ADDRESSES]
        except ForbiddenAddressError as error:
            raise _MissedError(str(error)) from None
        except OSError as error:
            raise _MissedError(f"the name in {self.address} can not be resolved ({error.strerror})") from None

    async def _describe(self, endpoint: Endpoint, credentials: Credentials, began: float) -> _Answer:
        try:
            secured = credentials.open_channel(endpoint, _OPTIONS)
        except FailedPreconditionError as error:
            raise _MissedError(f"{self.address} was not dialled: {error.message}") from None
        async with secured.channel:
            try:
                info = await reward_service_pb2_grpc.RewardServiceStub(secured.channel).GetServerInfo(
                    reward_service_pb2.GetServerInfoRequest(client_name="plaudit gateway"),
                    metadata=secured.metadata,
                    timeout=DEADLINE_SECONDS,
                )
            except grpc.aio.AioRpcError as error:
                trouble = None
                if error.code() is grpc.StatusCode.UNAVAILABLE:
                    trouble = await credentials.tls_trouble(endpoint, _TROUBLE_SECONDS)
                    if trouble is None and credentials.access.tls is None:
                        other = await other_protocol(*endpoint.place, _OTHER_SECONDS)
                        if other is not None:
                            raise _MissedError(f"{self.address}: {other}", answered=True) from None
                raise self._missed(error, trouble, credentials) from None
            if not isinstance(info, reward_service_pb2.GetServerInfoResponse):
                # What gRPC can not read, it hands over as None.
                raise _MissedError(
                    f"{self.address} sends a description that can not be read: it is no "
                    "GetServerInfoResponse, or has text that is not UTF-8",
                    answered=True,
                )
            latency = asyncio.get_running_loop().time() - began
            return _Answer(info, latency, await _trouble(secured))

    def _missed(
        self, error: grpc.aio.AioRpcError, trouble: str | None, credentials: Credentials
    ) -> _MissedError:
        address = self.address
        if trouble is not None:
            return _MissedError(f"{address}: {trouble}")
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return _MissedError(
                f"{address} is no reward server: it does not serve plaudit.reward.v1", answered=True
            )
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return _MissedError(_silent(address))
        if "larger than max" in (error.details() or ""):
            return _MissedError(
                f"{address} sends a description of more than {_MAX_DESCRIPTION_BYTES:,} bytes; shorten the "
                "schemas in it, or offer fewer rewards",
                answered=True,
            )
        failure: PlauditError = error_from_rpc(error, target=address)
        answered = error.code() in _ANSWERED
        message = failure.message[:_MAX_TEXT_LENGTH]
        if isinstance(failure, UnauthenticatedError):
            name = credentials.access.credential
            if name is None:
                message = f"{address} asks for a token, and it is registered without a credential ({message})"
            else:
                message = f'{address} refuses the token of credential "{name}" ({message})'
        return _MissedError(message if address in message else f"{address}: {message}", answered=answered)

    async def _read(
        self, info: reward_service_pb2.GetServerInfoResponse
    ) -> tuple[ServerDescription, SeenReplica]:
        digest = hashlib.sha256(info.SerializeToString(deterministic=True)).digest()
        if self._parsed is None or self._parsed[0] != digest:
            # The schemas in it may take a while.
            description = await asyncio.to_thread(description_of, info)
            seen = SeenReplica(description.server_version, digests_of(info))
            self._parsed = digest, description, seen
        return self._parsed[1], self._parsed[2]

    def _health(
        self, state: ReplicaState, reason: str, version: str = "", latency: float | None = None
    ) -> ReplicaHealth:
        now = datetime.now(UTC)
        is_as_before = self._last is not None and self._last.state is state
        since = self._last.since if self._last is not None and is_as_before else now
        if not is_as_before:
            level = logging.INFO if state is ReplicaState.SERVING else logging.WARNING
            log.log(level, "reward server replica", address=self.address, state=state.value, reason=reason)
        self._last = ReplicaHealth(self.address, state, reason, since, now, version, latency)
        return self._last


def _silent(address: str) -> str:
    return f"{address} did not answer within {DEADLINE_SECONDS:g} s"


async def _trouble(secured: SecuredChannel) -> str:
    """Why a server that describes itself does not serve, by its health; "" where it does, or has none."""
    stub = health_pb2_grpc.HealthStub(secured.channel)
    for service in (_SERVICE, ""):
        try:
            answer = await stub.Check(
                health_pb2.HealthCheckRequest(service=service),
                metadata=secured.metadata,
                timeout=_HEALTH_SECONDS,
            )
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                continue
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                return f"its health did not answer within {_HEALTH_SECONDS:g} s: it is overloaded, or stuck"
            return ""
        if answer.status == health_pb2.HealthCheckResponse.SERVING:
            return ""
        status = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
        return f"its health is {status} (grpc.health.v1): it drains, or is not ready"
    return ""
