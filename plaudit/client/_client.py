"""The synchronous client of a gateway."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Self

from plaudit.client._calls import DEFAULT_RETRY_SECONDS, DEFAULT_TIMEOUT_SECONDS, Caller
from plaudit.client.resources.datasets import Datasets
from plaudit.client.resources.reward_servers import RewardServers
from plaudit.client.resources.training_jobs import TrainingJobs
from plaudit.errors import InvalidArgumentError
from plaudit.rpc import open_sync_channel
from plaudit.service import DEFAULT_ADDRESSES
from plaudit.types.addresses import check_address
from plaudit.types.validation import shown


class Client:
    """A gateway's jobs, datasets and reward servers.

    `address` is the gateway's gRPC address; default: PLAUDIT_ADDRESS, or the fixed port on this machine.
    `timeout_seconds` is the deadline of one call; a call that may be repeated is repeated for `retry_seconds`
    where the gateway is not there. Usable from several threads; close it, or use it as a
    context.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        retry_seconds: float = DEFAULT_RETRY_SECONDS,
    ) -> None:
        target = address or os.environ.get("PLAUDIT_ADDRESS") or DEFAULT_ADDRESSES.gateway_grpc
        try:
            check_address(target)
        except ValueError as error:
            raise InvalidArgumentError.of("address", f"{shown(target)} is refused: {error}") from None
        self._channel = open_sync_channel(target)
        caller = Caller(target, timeout_seconds, retry_seconds)
        self.address = target
        self.training_jobs = TrainingJobs(self._channel, caller)
        self.datasets = Datasets(self._channel, caller)
        self.reward_servers = RewardServers(self._channel, caller)

    def close(self) -> None:
        """Ends the connection."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
