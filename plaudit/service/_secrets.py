"""Secrets of a service: read by name from its own environment or secrets folder, and never passed on."""

from __future__ import annotations

import os
import re
import ssl
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from plaudit.errors import FailedPreconditionError

_MAX_BYTES: Final = 64 * 1024
_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,4096}")
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate with the chain behind it, and its private key, both PEM."""

    certificate_file: Path
    key_file: Path
    certificate: bytes
    key: bytes = field(repr=False)


class Secrets:
    """The secrets that a service has, by name. Each is read anew when it is asked for, so it can be rotated.

    Every method raises FailedPreconditionError (reason SECRET_MISSING or SECRET_UNUSABLE), which names the
    secret and where it was looked for.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def token(self, name: str) -> str:
        """The credential `name`: the variable PLAUDIT_CREDENTIAL_{NAME}, else the file `{name}`."""
        variable = f"PLAUDIT_CREDENTIAL_{name.upper().replace('-', '_')}"
        token = os.environ.get(variable, "").strip()
        where = variable
        if not token:
            path = self.folder / name
            token = self._private(path, f'credential "{name}"', f"set {variable}, or write").decode(
                "utf-8", "replace"
            )
            token, where = token.strip(), str(path)
        if not _TOKEN.fullmatch(token):
            raise _unusable(
                f'credential "{name}" in {where} is no token: one line of printable ASCII without blanks'
            )
        return token

    def ca(self, name: str) -> Path:
        """The file `{name}.ca.pem`: certificates that sign a server's."""
        path = self.folder / f"{name}.ca.pem"
        _read(path, f'CA "{name}"', "write")
        try:
            ssl.create_default_context(cafile=str(path))
        except ssl.SSLError as error:
            raise _unusable(f'CA "{name}": {path} holds no certificate in PEM ({_why(error)})') from None
        return path

    def key_pair(self, name: str) -> KeyPair:
        """The files `{name}.cert.pem` and `{name}.key.pem`."""
        return read_key_pair(
            self.folder / f"{name}.cert.pem", self.folder / f"{name}.key.pem", f'client certificate "{name}"'
        )

    def _private(self, path: Path, what: str, way_out: str) -> bytes:
        data = _read(path, what, way_out)
        check_private(path, what)
        return data


def read_key_pair(certificate: Path, key: Path, what: str) -> KeyPair:
    """Reads a certificate and its key, which go together. Raises FailedPreconditionError."""
    pair = KeyPair(certificate, key, _read(certificate, what, "write"), _read(key, what, "write"))
    check_private(key, what)
    try:
        # A key under a password is refused rather than asked for on the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(certificate, key, password=lambda: b"")
    except (ssl.SSLError, ValueError) as error:
        raise _unusable(
            f"{what}: {certificate} and {key} are no certificate and key in PEM that go together "
            f"({_why(error)}); a key has no password here"
        ) from None
    return pair


def check_private(path: Path, what: str) -> None:
    """Raises FailedPreconditionError where others than its owner may read the file."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _OTHERS:
        raise _unusable(f"{what}: {path} can be read by others (mode {mode:04o}); chmod 600 {path}")


def _read(path: Path, what: str, way_out: str) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise FailedPreconditionError(
            f"{what} is missing here: {way_out} {path} (mode 0600)", reason="SECRET_MISSING"
        ) from None
    except OSError as error:
        raise _unusable(f"{what}: {path} cannot be read ({error.strerror})") from None
    if len(data) > _MAX_BYTES:
        raise _unusable(f"{what}: {path} is larger than {_MAX_BYTES:,} bytes")
    return data


def _unusable(message: str) -> FailedPreconditionError:
    return FailedPreconditionError(message, reason="SECRET_UNUSABLE")


def _why(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error) or type(error).__name__
