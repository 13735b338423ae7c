"""What a server needs before it listens, and whom it lets in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plaudit.errors import FailedPreconditionError, InvalidArgumentError
from plaudit.rpc import GrpcServer, ListenSecurity

CERTIFICATE = {"tls_cert": Path("c.pem"), "tls_key": Path("k.pem")}
TOKEN = {"token_file": Path("tokens")}
CLIENTS = {"client_ca": Path("ca.pem")}
PLAIN = {"plaintext": True}


@pytest.mark.parametrize(
    ("given", "lacking"),
    [
        ({}, ["a certificate", "a token"]),
        (TOKEN, ["a certificate"]),
        (CERTIFICATE, ["a token"]),
        (PLAIN, ["a token"]),
        ({**CERTIFICATE, **TOKEN}, []),
        ({**CERTIFICATE, **CLIENTS}, []),
        ({**PLAIN, **TOKEN}, []),
    ],
)
def test_beyond_loopback_a_server_needs_tls_and_to_know_who_calls(
    given: dict[str, Any], lacking: list[str]
) -> None:
    security = ListenSecurity(**given)
    for address in ("0.0.0.0:50061", "10.0.0.1:1", "[::]:0", "judge.example:1"):
        told = security.refusal(address)
        assert (told is None) == (not lacking)
        for what in ("a certificate", "a token"):
            assert (what in (told or "")) == (what in lacking)
    for address in ("127.0.0.1:0", "localhost:1", "[::1]:1"):
        assert security.refusal(address) is None


@pytest.mark.parametrize(
    "given",
    [
        {"tls_cert": "c.pem"},
        {"tls_key": "k.pem"},
        {"client_ca": "ca.pem"},
        {"tls_cert": "c.pem", "tls_key": "k.pem", "plaintext": True},
        {"tls_certificate": "c.pem"},
    ],
)
def test_what_does_not_go_together_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        ListenSecurity.of(given)


async def test_the_server_itself_refuses_an_open_address() -> None:
    server = GrpcServer([])
    with pytest.raises(InvalidArgumentError, match="can be reached from other machines"):
        await server.start("0.0.0.0:0")


@pytest.mark.parametrize(
    ("data", "mode", "told"),
    [
        (b"", 0o600, "must hold 16 or more characters"),
        (b"too-short\n", 0o600, "must hold 16 or more characters"),
        (b"long-enough-to-be-a-token\nwith a blank in it, though\n", 0o600, "must hold 16"),
        (b"long-enough-to-be-a-token\n", 0o644, "chmod 600"),
        (None, 0o600, "cannot be read"),
    ],
)
async def test_a_file_of_tokens_is_checked_before_the_server_listens(
    tmp_path: Path, data: bytes | None, mode: int, told: str
) -> None:
    path = tmp_path / "tokens"
    if data is not None:
        path.write_bytes(data)
        path.chmod(mode)
    with pytest.raises(FailedPreconditionError, match=told) as refused:
        GrpcServer([], security=ListenSecurity(token_file=path))
    assert "too-short" not in refused.value.message
