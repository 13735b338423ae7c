"""Channels to a server that asks who calls: TLS, client certificate, token."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

import grpc
import grpc.aio

from plaudit.errors import FailedPreconditionError
from plaudit.rpc._channels import open_channel
from plaudit.rpc._options import CHANNEL_OPTIONS
from plaudit.rpc._resolving import Endpoint
from plaudit.service import KeyPair, Secrets
from plaudit.types.access import ServerAccess

Metadata: TypeAlias = tuple[tuple[str, str], ...]

_EXPIRED: Final = 10
_NOT_YET_VALID: Final = 9
_WRONG_NAMES: Final = frozenset({62, 64})
"""OpenSSL's codes of verification: a certificate's times, and its host name or IP address."""


@dataclass(frozen=True, slots=True)
class SecuredChannel:
    """A channel, and the metadata that goes with each call on it: the token, where there is one."""

    channel: grpc.aio.Channel
    metadata: Metadata


@dataclass(frozen=True, slots=True)
class Credentials:
    """What `access` names, read from a service's secrets. Never shown, never sent but to the server."""

    access: ServerAccess
    ca_file: Path | None = None
    key_pair: KeyPair | None = None
    token: str = field(default="", repr=False)

    @classmethod
    def load(cls, access: ServerAccess, secrets: Secrets) -> Credentials:
        """Reads them as they are now. Raises FailedPreconditionError, with the name of what is missing."""
        tls = access.tls
        return cls(
            access,
            ca_file=secrets.ca(tls.ca) if tls is not None and tls.ca else None,
            key_pair=secrets.key_pair(tls.client_certificate) if tls and tls.client_certificate else None,
            token=secrets.token(access.credential) if access.credential else "",
        )

    def open_channel(
        self, endpoint: Endpoint, options: Sequence[tuple[str, str | int]] = ()
    ) -> SecuredChannel:
        """A channel to the checked address of `endpoint`; the server is held to its name.

        `options` are gRPC's. Raises FailedPreconditionError where a token would travel in plain text.
        """
        options = (*options, ("grpc.default_authority", self._authority(endpoint)))
        metadata: Metadata = (("authorization", f"Bearer {self.token}"),) if self.token else ()
        if self.access.tls is None:
            if metadata and not (endpoint.is_loopback or self.access.plaintext):
                raise FailedPreconditionError(
                    f'credential "{self.access.credential}" is not sent in plain text to '
                    f"{endpoint.authority}; "
                    "register it with tls, or with plaintext = true where a proxy or tunnel keeps the token",
                    reason="PLAINTEXT_CREDENTIAL",
                )
            return SecuredChannel(open_channel(endpoint.target, options), metadata)
        return SecuredChannel(
            grpc.aio.secure_channel(
                endpoint.target,
                grpc.ssl_channel_credentials(
                    root_certificates=_authorities(self.ca_file),
                    private_key=self.key_pair.key if self.key_pair else None,
                    certificate_chain=self.key_pair.certificate if self.key_pair else None,
                ),
                options=tuple((dict(CHANNEL_OPTIONS) | dict(options)).items()),
            ),
            metadata,
        )

    async def tls_trouble(self, endpoint: Endpoint, timeout: float) -> str | None:
        """Why `endpoint`, which could not be reached, takes no connection as asked; None: not for TLS.

        gRPC tells failed handshakes in the words of its libraries, or as a closed socket; this shakes hands
        itself and says what to do, within `timeout` seconds.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                if self.access.tls is None:
                    return await self._speaks_tls(endpoint)
                return await self._failed_handshake(endpoint, self._context())
        return None

    def _authority(self, endpoint: Endpoint) -> str:
        """What the server is called: in TLS, and in every call."""
        name = self.access.tls.server_name if self.access.tls is not None else None
        if name is None:
            return endpoint.authority
        port = endpoint.authority.rpartition(":")[2]
        return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca_file) if self.ca_file else None)
        context.set_alpn_protocols(["h2"])
        if self.key_pair is not None:
            context.load_cert_chain(self.key_pair.certificate_file, self.key_pair.key_file)
        return context

    async def _failed_handshake(self, endpoint: Endpoint, context: ssl.SSLContext) -> str | None:
        name = self._authority(endpoint).rpartition(":")[0].strip("[]")
        try:
            greeting = await _shake_hands(endpoint, context, name)
        except ssl.SSLCertVerificationError as error:
            return self._untrusted(error, name)
        except ssl.SSLError as error:
            if "ALERT" in (error.reason or ""):
                return self._refused_certificate()
            return (
                f"it does not speak TLS ({error.reason or error}); serve it with a certificate, or register "
                "it without tls"
            )
        except OSError:
            return None
        return None if greeting else self._refused_certificate()

    def _untrusted(self, error: ssl.SSLCertVerificationError, name: str) -> str:
        if error.verify_code == _EXPIRED:
            return "its certificate has expired; give the server a new one"
        if error.verify_code == _NOT_YET_VALID:
            return "its certificate is not valid yet; check the clocks of both machines"
        if error.verify_code in _WRONG_NAMES:
            return (
                f"its certificate is not for {name}; register it with the name that stands in there "
                "(tls.server_name), or dial it by that name"
            )
        tls = self.access.tls
        signers = f'CA "{tls.ca}"' if tls is not None and tls.ca else "any CA of this machine"
        return (
            f"its certificate is not signed by {signers} ({error.verify_message}); name the CA that signed "
            "it (tls.ca), and put that on every machine that dials it"
        )

    def _refused_certificate(self) -> str:
        tls = self.access.tls
        if tls is None or tls.client_certificate is None:
            return "it asks for a client certificate; register it with one (tls.client_certificate)"
        return (
            f'it refuses the client certificate "{tls.client_certificate}"; have it signed by the CA that '
            "the server trusts"
        )

    async def _speaks_tls(self, endpoint: Endpoint) -> str | None:
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.check_hostname = False
        # Nothing is sent here but hello.
        trusting.verify_mode = ssl.CERT_NONE
        try:
            await _shake_hands(endpoint, trusting, None)
        except ssl.SSLError as error:
            if "ALERT" not in (error.reason or ""):
                return None
        except OSError:
            return None
        return "it speaks TLS, and it is registered for plain text; register it with tls"


LoadCredentials: TypeAlias = Callable[[], Credentials]
"""Reads the credentials of one server anew, as for each connection."""


async def _shake_hands(endpoint: Endpoint, context: ssl.SSLContext, name: str | None) -> bytes:
    """Makes a TLS connection and returns the first byte that the server sends; none where it hangs up."""
    host, port = endpoint.place
    reader, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=name or "")
    try:
        # A server of HTTP/2 speaks at once; one that refuses the certificate ends the connection instead.
        return await reader.read(1)
    finally:
        writer.close()
        with contextlib.suppress(OSError, ssl.SSLError):
            await writer.wait_closed()


def _authorities(ca_file: Path | None) -> bytes | None:
    """The CAs of a file, else of this machine, else (None) those that come with gRPC."""
    path = ca_file or ssl.get_default_verify_paths().cafile
    return Path(path).read_bytes() if path is not None else None
