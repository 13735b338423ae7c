"""How a reward server is spoken to: TLS, client certificate, token. Secrets are named here, never held."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from plaudit.errors import FieldViolation
from plaudit.types.addresses import is_loopback

_SECRET_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_SERVER_NAME: Final = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9]([A-Za-z0-9.:-]*[A-Za-z0-9])?")


def check_secret_name(value: str) -> str:
    """Returns `value` where it can name a secret, else raises ValueError with the way out."""
    if not _SECRET_NAME.fullmatch(value):
        raise ValueError(
            "a secret is named here, not held: 1 to 63 small letters, digits, underscores and dashes, "
            'starting with a letter; for example "judge-a"'
        )
    return value


def check_server_name(value: str) -> str:
    """Returns `value` where it can stand in a certificate as a host, else raises ValueError."""
    if not _SERVER_NAME.fullmatch(value):
        raise ValueError("must be a host name or an IP address, as it stands in the server's certificate")
    return value


SecretName = Annotated[str, AfterValidator(check_secret_name)]
"""Name of a token, CA or certificate that each service has in its own environment or secrets folder."""

ServerName = Annotated[str, AfterValidator(check_server_name)]
"""Host name or IP address in a certificate."""


class TlsAccess(BaseModel):
    """TLS towards a server. Without any field: the machine's own CAs, the host of the address as its name."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    ca: SecretName | None = Field(
        default=None,
        description="Name of the CA that signs the server's certificate. null: the machine's own CAs.",
        examples=["judge-a"],
    )
    client_certificate: SecretName | None = Field(
        default=None,
        description="Name of the certificate and key that are shown to the server. null: none.",
        examples=["trainer"],
    )
    server_name: ServerName | None = Field(
        default=None,
        description="Name in the server's certificate. null: the host of its address.",
        examples=["judge.example"],
    )


class ServerAccess(BaseModel):
    """What it takes to be let in by a server, by name."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    tls: TlsAccess | None = Field(default=None, description="TLS. null: plain text.", examples=[{}])
    credential: SecretName | None = Field(
        default=None,
        description="Name of the token that is sent as `authorization: Bearer`. null: none.",
        examples=["judge-a"],
    )
    plaintext: bool = Field(
        default=False,
        description="Whether the token may travel in plain text beyond this machine, as to a proxy that "
        "speaks TLS onwards.",
        examples=[False],
    )


OPEN_TO_ALL: Final = ServerAccess()
"""Plain text, and no credential."""


def access_violations(access: ServerAccess, addresses: Sequence[str]) -> Iterator[FieldViolation]:
    """What does not go together in `access` and the host:port of the server's replicas."""
    if access.plaintext and access.tls is not None:
        yield FieldViolation("plaintext", "true, and tls is asked for too; leave one of them out")
    if access.credential is None or access.tls is not None or access.plaintext:
        return
    open_to_all = [address for address in addresses if not is_loopback(address)]
    if open_to_all:
        yield FieldViolation(
            "credential",
            f'"{access.credential}" would travel in plain text to {open_to_all[0]}, where all on the way can '
            "read it; add tls, or say plaintext = true where a proxy or tunnel keeps it",
        )
