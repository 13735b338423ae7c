"""Secrets of tokens: what they look like, and what is kept of them."""

from __future__ import annotations

import hashlib
import re

import pytest

from gateway.access import secret
from gateway.access.secret import digest_of, new_secret


def test_a_secret_has_256_bits_in_43_digits() -> None:
    made = {new_secret() for _ in range(500)}
    assert len(made) == 500
    assert all(re.fullmatch(r"vk_[0-9a-zA-Z]{43}", each) for each in made)
    # 62 ** 42 < 2 ** 256 <= 62 ** 43
    assert 62**42 < 2**256 <= 62**43


@pytest.mark.parametrize("number", [0, 1, 61, 62, 2**256 - 1, 0x123456789ABCDEF << 190])
def test_no_bit_is_lost(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(secret.secrets, "randbits", lambda bits: number if bits == 256 else None)
    digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    value = 0
    for character in new_secret().removeprefix("vk_"):
        value = value * 62 + digits.index(character)
    assert value == number


def test_the_digest_is_sha_256_of_all_of_it() -> None:
    assert digest_of("vk_abc") == hashlib.sha256(b"vk_abc").digest()
    assert digest_of("\udcff\udcfe") == hashlib.sha256(b"\xff\xfe").digest()
