"""One connection to a replica: looked up, dialled, described, and a Score stream opened on it."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final, TypeAlias

import grpc
import grpc.aio

from plaudit.errors import FailedPreconditionError
from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.reward.v1 import reward_service_pb2_grpc as pb_grpc
from plaudit.rpc import (
    MAX_MESSAGE_BYTES,
    Credentials,
    Endpoint,
    ForbiddenAddressError,
    LoadCredentials,
    Metadata,
    SecuredChannel,
    error_from_rpc,
    other_protocol,
    resolve,
)
from plaudit.scoring._compatibility import USELESS_STATUSES
from plaudit.types.texts import one_line

ScoreCall: TypeAlias = "grpc.aio.StreamStreamCall[pb.ScoreRequest, pb.ScoreResponse]"

_CLIENT_NAME: Final = f"plaudit/{version('plaudit')}"
_SHOWN_DETAILS: Final = 200
_LONGEST_RETRY_AFTER_SECONDS: Final = 60.0
_TOO_LARGE: Final = "CLIENT: Received message larger than max"
"""Said by this end: a server that says so of what it got says it otherwise."""
_TROUBLE_SECONDS: Final = 2.0
_OWN_ERRORS: Final = frozenset({grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN})
"""How an error that a server did not expect comes out of it; now and then a cut connection looks so too."""
_PINGED_TOO_OFTEN: Final = "too many pings"

RELAXED_KEEPALIVE_MS: Final = 330_000
"""A server that does not know our keepalive settings allows a ping in five minutes, and hangs up on more."""


class LostError(Exception):
    """A connection could not be made, or ended. The message is for people and names no address."""

    def __init__(
        self,
        reason: str,
        *,
        pinged_too_often: bool = False,
        unreadable: bool = False,
        retry_after: float = 0.0,
        failed_to_open: bool = False,
    ) -> None:
        """`unreadable`: because of a frame. `retry_after`, in seconds, is what the server asked for.

        `failed_to_open`: the server is there, and an error of its own kept it from opening the session.
        """
        super().__init__(reason)
        self.pinged_too_often = pinged_too_often
        self.unreadable = unreadable
        self.retry_after = retry_after
        self.failed_to_open = failed_to_open


class RefusedError(Exception):
    """A status came after which coming back is useless."""

    def __init__(self, failure: grpc.aio.AioRpcError, method: str) -> None:
        """`method`: which one of the service ended so."""
        super().__init__(failure.details())
        self.failure = failure
        self.method = method


@dataclass(frozen=True, slots=True)
class Connection:
    """A channel on which the replica has described itself. Whoever made it closes the channel."""

    channel: grpc.aio.Channel
    metadata: Metadata
    """Goes with every call: the token, where there is one."""
    info: pb.GetServerInfoResponse

    async def open(self, frame: pb.ScoreRequest, timeout: float) -> tuple[ScoreCall, pb.SessionOpened]:
        """Opens a session; raises LostError or RefusedError."""
        call = pb_grpc.RewardServiceStub(self.channel).Score(metadata=self.metadata)
        try:
            async with asyncio.timeout(timeout):
                # Where the stream has ended already, reading says why.
                with contextlib.suppress(asyncio.InvalidStateError):
                    await call.write(frame)
                while isinstance(answer := await call.read(), pb.ScoreResponse):
                    kind = answer.WhichOneof("frame")
                    if kind == "opened":
                        return call, answer.opened
                    if kind is not None:  # None: a frame of a later revision
                        raise LostError(f"it answered `open` with `{kind}` instead of `opened`")
                raise LostError("it ended the stream without answering `open`")
        except TimeoutError:
            raise LostError(f"no answer to `open` within {timeout:g} s") from None
        except grpc.aio.AioRpcError as failure:
            end = end_of_call(failure, timeout)
            if isinstance(end, LostError):
                end.failed_to_open = failure.code() in _OWN_ERRORS
            raise end from failure


async def connect(
    address: str, load_credentials: LoadCredentials, timeout: float, *, relaxed_keepalive: bool
) -> Connection:
    """Looks `address` up anew, dials what it leads to in turn, and asks for the server's description.

    Credentials are read anew too, as they may have been rotated. Each part has `timeout` seconds. Raises
    LostError or RefusedError.
    """
    try:
        credentials = load_credentials()
    except FailedPreconditionError as error:
        raise LostError(error.message) from None
    try:
        endpoints = await resolve(address, timeout)
    except TimeoutError:
        raise LostError(f"its name was not resolved within {timeout:g} s") from None
    except OSError as error:
        raise LostError(f"its name cannot be resolved: {error.strerror or error}") from None
    except ForbiddenAddressError as error:
        raise LostError(str(error)) from None
    reasons: list[LostError] = []
    for endpoint in endpoints:
        try:
            return await _dial(endpoint, credentials, timeout, relaxed_keepalive=relaxed_keepalive)
        except LostError as error:
            reasons.append(error)
    raise reasons[-1]


def end_of_call(
    failure: grpc.aio.AioRpcError, timeout: float, method: str = "Score"
) -> LostError | RefusedError:
    """What the end of a call means, in few words where the cause is a common one."""
    if failure.code() in USELESS_STATUSES:
        return RefusedError(failure, method)
    details = failure.details() or ""
    if _is_refused(failure):
        return LostError("connection refused")
    if _TOO_LARGE in details:
        most = MAX_MESSAGE_BYTES // 2**20
        return LostError(f"it sent a frame of more than {most} MiB, which is not read", unreadable=True)
    if failure.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return LostError(f"no answer within {timeout:g} s")
    return LostError(
        f"{failure.code().name}: {one_line(details, _SHOWN_DETAILS)}" if details else failure.code().name,
        pinged_too_often=_PINGED_TOO_OFTEN in details.casefold().replace("_", " "),
        retry_after=min(error_from_rpc(failure).retry_after or 0.0, _LONGEST_RETRY_AFTER_SECONDS),
    )


async def _dial(
    endpoint: Endpoint, credentials: Credentials, timeout: float, *, relaxed_keepalive: bool
) -> Connection:
    options = [("grpc.keepalive_time_ms", RELAXED_KEEPALIVE_MS)] if relaxed_keepalive else []
    try:
        secured = credentials.open_channel(endpoint, options)
    except FailedPreconditionError as error:
        raise LostError(error.message) from None
    try:
        return await _described(secured, timeout)
    except grpc.aio.AioRpcError as failure:
        trouble = None
        if failure.code() is grpc.StatusCode.UNAVAILABLE and not _is_refused(failure):
            patience = min(timeout, _TROUBLE_SECONDS)
            trouble = await credentials.tls_trouble(endpoint, patience)
            if trouble is None and credentials.access.tls is None:
                trouble = await other_protocol(*endpoint.place, patience)
        if trouble is not None:
            raise LostError(trouble) from failure
        raise end_of_call(failure, timeout, "GetServerInfo") from failure


async def _described(secured: SecuredChannel, timeout: float) -> Connection:
    """The connection on a channel, which is closed where none comes about."""
    try:
        info = await pb_grpc.RewardServiceStub(secured.channel).GetServerInfo(
            pb.GetServerInfoRequest(client_name=_CLIENT_NAME), timeout=timeout, metadata=secured.metadata
        )
        if not isinstance(info, pb.GetServerInfoResponse):
            # What gRPC cannot read, it hands over as None.
            raise LostError("its description cannot be read: it is no GetServerInfoResponse, or not in UTF-8")
    except BaseException:
        await secured.channel.close()
        raise
    return Connection(secured.channel, secured.metadata, info)


def _is_refused(failure: grpc.aio.AioRpcError) -> bool:
    return "connection refused" in (failure.details() or "").casefold()
