"""From host:port to the one IP address that is dialled."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from dataclasses import dataclass
from typing import Final

from plaudit.types.addresses import check_address

# Cloud machines hand out credentials here; IPv4's 169.254.169.254 and its like are link-local already.
_METADATA: Final = frozenset(
    ipaddress.ip_address(address) for address in ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200")
)
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A checked address. `target` is what gRPC dials; `authority` the host:port that was asked for."""

    target: str
    authority: str


class ForbiddenAddressError(Exception):
    """A name leads only to addresses that are never dialled."""


async def resolve(address: str, timeout: float) -> list[Endpoint]:
    """Looks up `host:port` and returns those of its addresses that may be dialled, in the resolver's order.

    Raises ForbiddenAddressError where it has only others, OSError where the name leads nowhere, TimeoutError
    after `timeout` seconds.
    """
    check_address(address)
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(timeout):
        found = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    literals = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    allowed = [literal for literal in literals if may_be_dialled(literal)]
    if not allowed:
        raise ForbiddenAddressError(
            f"{address} leads to {', '.join(literals)}: link-local, metadata, multicast and unspecified "
            "addresses are not dialled"
        )
    return [Endpoint(_target(literal, port), address) for literal in allowed]


def may_be_dialled(literal: str) -> bool:
    """Whether an IP address, or the IPv4 address that it carries, is one that a reward server may have."""
    address = ipaddress.ip_address(literal)
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return may_be_dialled(str(address.ipv4_mapped))
        if address in _NAT64:
            return may_be_dialled(str(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)))
    return not (
        address.is_link_local or address.is_multicast or address.is_unspecified or address in _METADATA
    )


def _target(literal: str, port: str) -> str:
    return f"ipv6:[{literal}]:{port}" if ":" in literal else f"ipv4:{literal}:{port}"
