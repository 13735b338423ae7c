"""The server under test, and how it is reached."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc
import grpc.aio

from plaudit.errors import FieldViolation, InvalidArgumentError
from plaudit.rpc import CHANNEL_OPTIONS
from plaudit.types.addresses import is_loopback

_ANY_SIZE: Final = (("grpc.max_send_message_length", -1),)
"""What is too large for the server is for the server to refuse."""

_NO_PINGS: Final = (("grpc.keepalive_time_ms", 2**31 - 1), ("grpc.keepalive_permit_without_calls", 0))
"""A server that forbids pings must fail the rule about pings, and no other."""


@dataclass(frozen=True, slots=True)
class Target:
    """A server: `host:port`, and what its connection needs.

    `tls` alone trusts the system's authorities, `ca_file` those of a file. `cert_file` and `key_file` are the
    client's own, for mutual TLS; `server_name` is the name in the server's certificate where it is not the
    host. `token` travels as a bearer token.
    """

    address: str
    tls: bool = False
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    server_name: str = ""
    token: str = ""

    @property
    def secure(self) -> bool:
        """Whether the connection is by TLS."""
        return self.tls or self.ca_file is not None or self.cert_file is not None

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What every call carries."""
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()


def open_channel(target: Target, *, ping_every_seconds: int | None = None) -> grpc.aio.Channel:
    """A connection of its own to the server; it sends keepalive pings only where it is told how often.

    Raises InvalidArgumentError where a file of the target cannot be read, or a token would travel openly.
    """
    pings = _NO_PINGS
    if ping_every_seconds is not None:
        pings = (
            ("grpc.keepalive_time_ms", ping_every_seconds * 1000),
            ("grpc.keepalive_permit_without_calls", 1),
        )
    names = (("grpc.ssl_target_name_override", target.server_name),) if target.server_name else ()
    options = tuple((dict(CHANNEL_OPTIONS) | dict(_ANY_SIZE) | dict(pings) | dict(names)).items())
    if not target.secure:
        if target.token and not is_loopback(target.address):
            raise InvalidArgumentError.of(
                "token-file",
                f"a token is not sent in plain text to {target.address}; give --tls or --ca-file",
            )
        return grpc.aio.insecure_channel(target.address, options=options)
    read, wrong = {}, []
    for field in ("ca_file", "cert_file", "key_file"):
        path: Path | None = getattr(target, field)
        try:
            read[field] = None if path is None else path.read_bytes()
        except OSError as error:
            option = field.replace("_", "-")
            wrong.append(FieldViolation(option, f"{path} cannot be read: {error.strerror}"))
    if (target.cert_file is None) != (target.key_file is None):
        wrong.append(FieldViolation("cert-file", "mutual TLS takes a certificate and its key: give both"))
    if wrong:
        raise InvalidArgumentError(wrong)
    credentials = grpc.ssl_channel_credentials(read["ca_file"], read["key_file"], read["cert_file"])
    return grpc.aio.secure_channel(target.address, credentials, options=options)
