"""host:port and nothing else; link-local and metadata addresses never."""

from __future__ import annotations

import pytest

from plaudit.types.addresses import check_address


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1:7433", "localhost:1", "rewards.example.com:65535", "[::1]:7433", "10.0.0.8:443", "a-b:80"],
)
def test_addresses_that_work(address: str) -> None:
    assert check_address(address) == address


@pytest.mark.parametrize(
    "address",
    [
        "", "localhost", "localhost:", ":7433", "localhost:0", "localhost:65536", "localhost:port",
        "localhost:" + "9" * 5_000,
        "::1:7433", "http://localhost:80", "localhost:80/path", "a b:80", "-a:80", "a..b:80", "user@host:80",
        "unix:/run/x:1", "localhost:\u0662", "169.254.169.254:80", "[fe80::1]:80", "224.0.0.1:80",
        "0.0.0.0:80", "[::]:80", "[a]:80",
    ],
)  # fmt: skip
def test_addresses_that_are_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r"host:port|not dialled|brackets"):
        check_address(address)
