"""From host:port to the one IP address that is dialled."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from dataclasses import dataclass

from plaudit.types.addresses import may_be_dialled


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A checked address. `target` is what gRPC dials; `authority` the host:port that was asked for."""

    target: str
    authority: str
    is_loopback: bool

    @property
    def place(self) -> tuple[str, int]:
        """The checked address and the port."""
        host, _, port = self.target.partition(":")[2].rpartition(":")
        return host.strip("[]"), int(port)


class ForbiddenAddressError(Exception):
    """A name leads only to addresses that are never dialled."""


async def resolve(address: str, timeout: float) -> list[Endpoint]:
    """Looks up `host:port` and returns those of its addresses that may be dialled, in the resolver's order.

    Raises ForbiddenAddressError where it has only others, OSError where the name leads nowhere, TimeoutError
    after `timeout` seconds.
    """
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(timeout):
        found = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    literals = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    allowed = [literal for literal in literals if may_be_dialled(ipaddress.ip_address(literal))]
    if not allowed:
        raise ForbiddenAddressError(
            f"{address} leads to {', '.join(literals)}: link-local, metadata, multicast and unspecified "
            "addresses are not dialled"
        )
    return [
        Endpoint(_target(literal, port), address, ipaddress.ip_address(literal).is_loopback)
        for literal in allowed
    ]


def _target(literal: str, port: str) -> str:
    return f"ipv6:[{literal}]:{port}" if ":" in literal else f"ipv4:{literal}:{port}"
