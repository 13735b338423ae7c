"""How a client shows who it is, and knows whom it talks to: token, TLS, client certificate."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

import grpc
import grpc.aio

from plaudit.errors import FailedPreconditionError, FieldViolation, InvalidArgumentError
from plaudit.rpc import CHANNEL_OPTIONS, Metadata, open_channel, open_sync_channel
from plaudit.service import check_private, read_key_pair
from plaudit.types.addresses import is_loopback

_YES: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False, "": False}


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS towards the gateway. Without any field: the machine's own CAs, and the host of the address.

    `ca_file` has the certificates of the CAs that sign the gateway's; `certificate_file` and `key_file` are
    shown to a gateway that asks for them; `server_name` is what its certificate calls it. All are PEM.
    """

    ca_file: Path | str | None = None
    certificate_file: Path | str | None = None
    key_file: Path | str | None = None
    server_name: str | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """What a client shows the gateway. `plaintext` lets the token out of this machine without TLS."""

    token: str = field(default="", repr=False)
    tls: Tls | None = None
    plaintext: bool = False

    @classmethod
    def find(
        cls, token: str | None, token_file: Path | str | None, tls: Tls | bool | None, plaintext: bool | None
    ) -> Self:
        """What was given, else what the environment says. Raises InvalidArgumentError."""
        if token is None:
            file = token_file if token_file is not None or _variable("TOKEN") else _variable("TOKEN_FILE")
            token = _read_token(Path(file).expanduser()) if file else _variable("TOKEN")
        if tls is None:
            tls = _tls_of_environment()
        elif isinstance(tls, bool):
            tls = (_tls_of_environment() or Tls()) if tls else None
        token = token.strip()
        if not _is_visible(token):
            raise InvalidArgumentError.of("token", "is refused; it is printable ASCII without blanks")
        return cls(token, tls, _flag("PLAINTEXT") if plaintext is None else plaintext)

    @property
    def metadata(self) -> Metadata:
        """What goes with every call: the token, where there is one."""
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()

    def open_channel(self, target: str) -> grpc.Channel:
        """A channel that blocks.

        Raises FailedPreconditionError where the token would travel in plain text, and InvalidArgumentError
        (SECRET_UNUSABLE) where a file cannot be used.
        """
        self._check_plaintext(target)
        if self.tls is None:
            return open_sync_channel(target)
        return grpc.secure_channel(target, _credentials(self.tls), options=_options(self.tls))

    def open_aio_channel(self, target: str) -> grpc.aio.Channel:
        """As `open_channel`, of asyncio."""
        self._check_plaintext(target)
        if self.tls is None:
            return open_channel(target)
        return grpc.aio.secure_channel(target, _credentials(self.tls), options=_options(self.tls))

    def _check_plaintext(self, target: str) -> None:
        if self.token and self.tls is None and not (is_loopback(target) or self.plaintext):
            raise FailedPreconditionError(
                f"the token is not sent in plain text to {target}; speak TLS (PLAUDIT_TLS=true, or "
                "PLAUDIT_CA_FILE with the CA of the gateway), or set PLAUDIT_PLAINTEXT=true where a tunnel "
                "keeps it",
                reason="PLAINTEXT_CREDENTIAL",
            )


def _options(tls: Tls) -> tuple[tuple[str, str | int], ...]:
    options: dict[str, str | int] = dict(CHANNEL_OPTIONS)
    if tls.server_name:
        options["grpc.ssl_target_name_override"] = tls.server_name
        options["grpc.default_authority"] = tls.server_name
    return tuple(options.items())


def _credentials(tls: Tls) -> grpc.ChannelCredentials:
    authorities = tls.ca_file or ssl.get_default_verify_paths().cafile
    trusted = _read(Path(authorities), "ca_file", "the CA of the gateway") if authorities else None
    pair = None
    if tls.certificate_file is not None or tls.key_file is not None:
        if tls.certificate_file is None or tls.key_file is None:
            raise InvalidArgumentError.of("tls", "certificate_file and key_file go together; name both")
        try:
            pair = read_key_pair(Path(tls.certificate_file), Path(tls.key_file), "the client certificate")
        except FailedPreconditionError as error:
            raise _unusable("tls", error.message) from None
    return grpc.ssl_channel_credentials(
        root_certificates=trusted,
        private_key=pair.key if pair else None,
        certificate_chain=pair.certificate if pair else None,
    )


def _tls_of_environment() -> Tls | None:
    found = Tls(
        ca_file=_variable("CA_FILE") or None,
        certificate_file=_variable("CLIENT_CERT_FILE") or None,
        key_file=_variable("CLIENT_KEY_FILE") or None,
    )
    if found == Tls() and not _flag("TLS"):
        return None
    return replace(found, server_name=_variable("SERVER_NAME") or None)


def _variable(name: str) -> str:
    return os.environ.get(f"PLAUDIT_{name}", "")


def _flag(name: str) -> bool:
    text = _variable(name)
    if text.lower() not in _YES:
        raise InvalidArgumentError.of(f"PLAUDIT_{name}", f"{text!r} is refused; it is true or false")
    return _YES[text.lower()]


def _read_token(path: Path) -> str:
    data = _read(path, "token_file", "the token file")
    try:
        check_private(path, "the token file")
    except FailedPreconditionError as error:
        raise _unusable("token_file", error.message) from None
    token = data.decode("utf-8", "replace").strip()
    if not token or not _is_visible(token):
        raise _unusable("token_file", f"the token file {path} must hold one line, the token")
    return token


def _is_visible(token: str) -> bool:
    return all("!" <= character <= "~" for character in token)


def _read(path: Path, field: str, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unusable(field, f"{what}: {path} cannot be read ({error.strerror})") from None


def _unusable(field: str, message: str) -> InvalidArgumentError:
    return InvalidArgumentError([FieldViolation(field, message)], reason="SECRET_UNUSABLE")
