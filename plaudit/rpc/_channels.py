"""Channels to a service. One place decides options and credentials."""

from __future__ import annotations

from collections.abc import Sequence

import grpc
import grpc.aio

from plaudit.rpc._options import CHANNEL_OPTIONS


def open_channel(address: str, options: Sequence[tuple[str, str | int]] = ()) -> grpc.aio.Channel:
    """An asyncio channel to `host:port`, in plain text; the connection is made on first use.

    `options` are gRPC's, and win over those that all our channels have.
    """
    return grpc.aio.insecure_channel(address, options=tuple((dict(CHANNEL_OPTIONS) | dict(options)).items()))


def open_sync_channel(address: str) -> grpc.Channel:
    """As `open_channel`, for code without an event loop."""
    return grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
