"""Links to files that authorise themselves for a while: whoever has one may read that file, and no other."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from plaudit.errors import PermissionDeniedError
from plaudit.service import check_private, unusable_folder

LIFETIME_SECONDS: Final = 3600
KEY_FILE: Final = "link_key"

_KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class SignedAddress:
    """The address of a file below the artifact root, with what shows that it was given out.

    `expires` is in seconds since 1970.
    """

    address: str
    expires: int
    signature: str


class Links:
    """Signs addresses with a key that this gateway keeps, so that links outlive a restart."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    @classmethod
    def open(cls, state_dir: Path) -> Links:
        """With the key in the state directory (mode 0600), which is made where there is none. Blocks.

        Raises FailedPreconditionError where it can be read by others, or is none.
        """
        path = state_dir / KEY_FILE
        try:
            with contextlib.suppress(FileExistsError):
                _write_new(path, secrets.token_bytes(_KEY_BYTES))
            key = path.read_bytes()
        except OSError as error:
            raise unusable_folder(state_dir, error) from None
        check_private(path, "the key of download links")
        return cls(key)

    def sign(self, address: str) -> SignedAddress:
        """The address, good for LIFETIME_SECONDS."""
        expires = int(time.time()) + LIFETIME_SECONDS
        return SignedAddress(address, expires, self._signature(address, expires))

    def check(self, link: SignedAddress) -> None:
        """Raises PermissionDeniedError (LINK_INVALID, LINK_EXPIRED), which says how to get another."""
        if not hmac.compare_digest(
            link.signature.encode(), self._signature(link.address, link.expires).encode()
        ):
            raise PermissionDeniedError(
                "this link was not given out by this gateway, or was changed; ask for the model or "
                "checkpoint again to get another",
                reason="LINK_INVALID",
            )
        if time.time() >= link.expires:
            raise PermissionDeniedError(
                f"this link has expired: links are good for {LIFETIME_SECONDS // 60} minutes; ask for the "
                "model or checkpoint again to get another",
                reason="LINK_EXPIRED",
            )

    def _signature(self, address: str, expires: int) -> str:
        return hmac.new(self._key, f"{expires}\n{address}".encode(), hashlib.sha256).hexdigest()


def _write_new(path: Path, key: bytes) -> None:
    """Appears whole: a gateway that is killed here leaves no short key. Raises FileExistsError."""
    if path.exists():
        raise FileExistsError(path)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, key)
        os.fsync(file)
    finally:
        os.close(file)
    partial.rename(path)
