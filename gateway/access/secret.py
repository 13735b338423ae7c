"""The secret of a token: how it is made, and what is kept of it."""

from __future__ import annotations

import hashlib
import secrets
import string
from typing import Final

PREFIX: Final = "vk_"
_BYTES: Final = 32
_ALPHABET: Final = string.digits + string.ascii_letters
_LENGTH: Final = 43
"""Digits in base 62 of the largest number of 32 bytes."""


def new_secret() -> str:
    """A new secret: the prefix, by which scanners of leaked secrets know it, and 32 random bytes."""
    number = secrets.randbits(_BYTES * 8)
    digits = []
    for _ in range(_LENGTH):
        number, digit = divmod(number, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return PREFIX + "".join(reversed(digits))


def digest_of(secret: str) -> bytes:
    """What is kept of a secret, and looked up.

    A slow hash protects what people can think of; 256 random bits can not be found by trying, however fast
    the hash. And since whoever guesses can not steer the digest, the time of a look-up tells nothing.
    """
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
