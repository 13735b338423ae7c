"""Where services listen unless they are told otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class DefaultAddresses:
    """Fixed ports on loopback, so that nothing has to be told to find a service on the same machine."""

    gateway_grpc: str = "127.0.0.1:7430"
    gateway_http: str = "127.0.0.1:7431"
    trainer: str = "127.0.0.1:7432"
    reward: str = "127.0.0.1:7433"


DEFAULT_ADDRESSES: Final = DefaultAddresses()
