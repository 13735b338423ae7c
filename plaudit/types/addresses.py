"""Addresses of services: host:port, and nothing else."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated

from pydantic import AfterValidator

_HOST = re.compile(
    r"^(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$"
)


_PORT = re.compile(r"[0-9]{1,5}")

# Cloud machines hand out credentials here; 169.254.169.254 and its like are link-local already.
_METADATA_SERVICES = frozenset(
    ipaddress.ip_address(address) for address in ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200")
)
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def may_be_dialled(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether our services open connections to `address`, or to the IPv4 address that it carries.

    Link-local and metadata addresses reach what hands out a cloud machine's credentials; multicast and
    unspecified ones name no server.
    """
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return may_be_dialled(address.ipv4_mapped)
        if address in _NAT64:
            return may_be_dialled(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF))
    return not (
        address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or address in _METADATA_SERVICES
    )


def check_address(value: str) -> str:
    """Returns `value` where it is `host:port` or `[ipv6]:port`, else raises ValueError with the way out.

    Link-local addresses are refused: they reach a cloud machine's metadata service.
    """
    host, separator, port = value.rpartition(":")
    if not separator or not _PORT.fullmatch(port) or not 1 <= int(port) <= 65_535:
        raise ValueError("must be host:port with a port from 1 to 65535, for example 127.0.0.1:50061")
    literal = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        address = ipaddress.ip_address(literal)
    except ValueError:
        if literal != host or not _HOST.match(host):
            raise ValueError(
                "must be host:port with a host name or an IP address, for example 127.0.0.1:50061; "
                "no scheme, no path"
            ) from None
        return value
    if address.version == 6 and literal == host:
        raise ValueError("an IPv6 address stands in brackets, for example [::1]:50061")
    if not may_be_dialled(address):
        raise ValueError(
            "link-local, multicast and unspecified addresses are not dialled; name the server's own address"
        )
    return value


Address = Annotated[str, AfterValidator(check_address)]
"""A validated `host:port`."""


def is_loopback(value: str) -> bool:
    """Whether the host of `host:port` is this machine, and reached from it alone."""
    host = value.rpartition(":")[0]
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_bind_address(value: str) -> str:
    """Returns `value` where it is `host:port`, port 0 included, else raises ValueError."""
    _, separator, port = value.rpartition(":")
    if not separator or not _PORT.fullmatch(port) or int(port) > 65_535:
        raise ValueError("must be host:port with a port from 0 (any that is free) to 65535")
    return value


BindAddress = Annotated[str, AfterValidator(check_bind_address)]
"""`host:port` of this machine, to listen on; port 0 takes a free one."""


def check_host_name(value: str) -> str:
    """Returns `value` where it is a host name without a port, in small letters, else raises ValueError."""
    if not _HOST.match(value) or value != value.lower():
        raise ValueError(
            "must be a host name in small letters, without scheme and port; for example plaudit.example"
        )
    return value


HostName = Annotated[str, AfterValidator(check_host_name)]
"""A validated host name."""
