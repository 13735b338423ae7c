"""Addresses of services: host:port, and nothing else."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated

from pydantic import AfterValidator

_HOST = re.compile(
    r"^(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$"
)


def check_address(value: str) -> str:
    """Returns `value` where it is `host:port` or `[ipv6]:port`, else raises ValueError with the way out.

    Link-local addresses are refused: they reach a cloud machine's metadata service.
    """
    host, separator, port = value.rpartition(":")
    if not separator or not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65_535:
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
    if address.is_link_local or address.is_multicast or address.is_unspecified:
        raise ValueError(
            "link-local, multicast and unspecified addresses are not dialled; name the server's own address"
        )
    return value


Address = Annotated[str, AfterValidator(check_address)]
"""A validated `host:port`."""
