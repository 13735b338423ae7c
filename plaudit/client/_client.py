"""The clients of a gateway: one that blocks, one of asyncio."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from plaudit.client._access import Access, Tls
from plaudit.client._wire import (
    DEFAULT_RETRY_SECONDS,
    DEFAULT_TIMEOUT_SECONDS,
    AsyncWire,
    BlockingWire,
)
from plaudit.client.resources.datasets import AsyncDatasets, Datasets
from plaudit.client.resources.models import AsyncModels, Models
from plaudit.client.resources.rescores import AsyncRescores, Rescores
from plaudit.client.resources.reward_functions import AsyncRewardFunctions, RewardFunctions
from plaudit.client.resources.reward_servers import AsyncRewardServers, RewardServers
from plaudit.client.resources.tokens import AsyncTokens, Tokens
from plaudit.client.resources.trainers import AsyncTrainers, Trainers
from plaudit.client.resources.training_jobs import AsyncTrainingJobs, TrainingJobs
from plaudit.errors import InvalidArgumentError
from plaudit.service import DEFAULT_ADDRESSES
from plaudit.types.addresses import check_address
from plaudit.types.validation import shown


class Client:
    """A gateway's jobs, datasets, reward servers and models.

    `address` is the gateway's gRPC address; default: PLAUDIT_ADDRESS, or the fixed port on this machine.
    `token`, or the first line of `token_file`, is sent with every call; default: PLAUDIT_TOKEN, or the file
    PLAUDIT_TOKEN_FILE. `tls` speaks TLS; default: PLAUDIT_TLS, PLAUDIT_CA_FILE, PLAUDIT_CLIENT_CERT_FILE,
    PLAUDIT_CLIENT_KEY_FILE and PLAUDIT_SERVER_NAME. A token leaves this machine by TLS only, unless
    `plaintext` (PLAUDIT_PLAINTEXT) is true.
    `timeout_seconds` is the deadline of one call; a call that may be repeated is repeated for `retry_seconds`
    where the gateway is not there. Usable from several threads; close it, or use it as a
    context.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        token: str | None = None,
        token_file: Path | str | None = None,
        tls: Tls | bool | None = None,
        plaintext: bool | None = None,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        retry_seconds: float = DEFAULT_RETRY_SECONDS,
    ) -> None:
        self.address = _checked(address)
        access = Access.find(token, token_file, tls, plaintext)
        self._channel = access.open_channel(self.address)
        wire = self._wire = BlockingWire(
            self._channel,
            target=self.address,
            metadata=access.metadata,
            timeout_seconds=timeout_seconds,
            retry_seconds=retry_seconds,
        )
        self.training_jobs = TrainingJobs(wire)
        self.datasets = Datasets(AsyncDatasets(wire))
        self.reward_servers = RewardServers(AsyncRewardServers(wire))
        self.reward_functions = RewardFunctions(AsyncRewardFunctions(wire))
        self.rescores = Rescores(AsyncRescores(wire))
        self.models = Models(AsyncModels(wire))
        self.tokens = Tokens(AsyncTokens(wire))
        self.trainers = Trainers(AsyncTrainers(wire))

    def close(self) -> None:
        """Ends the connection."""
        self._wire.close()
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient:
    """As `Client`, for asyncio: the same resources and methods, awaited, and lists and streams as
    asynchronous iterators.

    Made where its event loop runs. Close it, or use it as an asynchronous context.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        token: str | None = None,
        token_file: Path | str | None = None,
        tls: Tls | bool | None = None,
        plaintext: bool | None = None,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        retry_seconds: float = DEFAULT_RETRY_SECONDS,
    ) -> None:
        self.address = _checked(address)
        access = Access.find(token, token_file, tls, plaintext)
        self._channel = access.open_aio_channel(self.address)
        wire = self._wire = AsyncWire(
            cast(Any, self._channel),
            target=self.address,
            metadata=access.metadata,
            timeout_seconds=timeout_seconds,
            retry_seconds=retry_seconds,
        )
        self.training_jobs = AsyncTrainingJobs(wire)
        self.datasets = AsyncDatasets(wire)
        self.reward_servers = AsyncRewardServers(wire)
        self.reward_functions = AsyncRewardFunctions(wire)
        self.rescores = AsyncRescores(wire)
        self.models = AsyncModels(wire)
        self.tokens = AsyncTokens(wire)
        self.trainers = AsyncTrainers(wire)

    async def close(self) -> None:
        """Ends the connection."""
        self._wire.close()
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _checked(address: str | None) -> str:
    target = address or os.environ.get("PLAUDIT_ADDRESS") or DEFAULT_ADDRESSES.gateway_grpc
    try:
        check_address(target)
    except ValueError as error:
        raise InvalidArgumentError.of("address", f"{shown(target)} is refused: {error}") from None
    return target
