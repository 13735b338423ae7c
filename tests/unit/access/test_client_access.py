"""How a client finds its token and its way of TLS."""

from __future__ import annotations

from pathlib import Path

import pytest

from plaudit.client import Client, Tls
from plaudit.client._access import Access
from plaudit.errors import FailedPreconditionError, InvalidArgumentError


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOKEN", "TOKEN_FILE", "TLS", "CA_FILE", "CLIENT_CERT_FILE", "SERVER_NAME", "PLAINTEXT"):
        monkeypatch.delenv(f"PLAUDIT_{name}", raising=False)


def token_file(path: Path, text: str = "vk_file\n", mode: int = 0o600) -> Path:
    path.touch(mode=mode)
    path.write_text(text)
    return path


def test_what_is_given_wins_over_the_environment_and_a_token_over_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = token_file(tmp_path / "token")
    assert Access.find(None, None, None, None) == Access()
    monkeypatch.setenv("PLAUDIT_TOKEN_FILE", str(file))
    assert Access.find(None, None, None, None).token == "vk_file"
    monkeypatch.setenv("PLAUDIT_TOKEN", "vk_variable")
    assert Access.find(None, None, None, None).token == "vk_variable"
    assert Access.find(None, file, None, None).token == "vk_file"
    assert Access.find("vk_given", file, None, None).token == "vk_given"
    assert Access.find("", None, None, None).token == ""
    assert "vk_variable" not in repr(Access.find(None, None, None, None))


def test_tls_is_asked_for_by_any_of_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAUDIT_SERVER_NAME", "gateway.example")
    assert Access.find(None, None, None, None).tls is None
    monkeypatch.setenv("PLAUDIT_TLS", "true")
    assert Access.find(None, None, None, None).tls == Tls(server_name="gateway.example")
    monkeypatch.setenv("PLAUDIT_CA_FILE", "ca.pem")
    assert Access.find(None, None, True, None).tls == Tls(ca_file="ca.pem", server_name="gateway.example")
    assert Access.find(None, None, False, None).tls is None
    assert Access.find(None, None, Tls(), None).tls == Tls()
    monkeypatch.setenv("PLAUDIT_TLS", "maybe")
    monkeypatch.delenv("PLAUDIT_CA_FILE")
    with pytest.raises(InvalidArgumentError, match="PLAUDIT_TLS"):
        Access.find(None, None, None, None)


@pytest.mark.parametrize("address", ["10.0.0.9:7430", "gateway.example:7430"])
def test_a_token_leaves_this_machine_by_tls_only(address: str) -> None:
    with pytest.raises(FailedPreconditionError, match="not sent in plain text"):
        Client(address, token="vk_x")
    Client(address, token="vk_x", plaintext=True).close()
    Client(address).close()
    for loopback in ("127.0.0.1:1", "localhost:1", "[::1]:1"):
        Client(loopback, token="vk_x").close()


@pytest.mark.parametrize(
    ("text", "mode", "told"),
    [("vk_x\n", 0o644, "chmod 600"), ("", 0o600, "one line"), ("a b", 0o600, "one line")],
)
def test_a_token_file_is_private_and_holds_a_token(tmp_path: Path, text: str, mode: int, told: str) -> None:
    with pytest.raises(InvalidArgumentError, match=told):
        Client("127.0.0.1:1", token_file=token_file(tmp_path / "token", text, mode))
    with pytest.raises(InvalidArgumentError, match="cannot be read"):
        Client("127.0.0.1:1", token_file=tmp_path / "nowhere")


def test_a_token_that_no_header_takes_is_refused() -> None:
    for token in ("vk_a b", "vk_ä", "vk_\n_x"):
        with pytest.raises(InvalidArgumentError, match="printable ASCII"):
            Client("127.0.0.1:1", token=token)


def test_files_of_tls_are_read_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"the CA of the gateway"):
        Client("127.0.0.1:1", tls=Tls(ca_file=tmp_path / "ca.pem"))
    with pytest.raises(InvalidArgumentError, match="go together"):
        Client("127.0.0.1:1", tls=Tls(certificate_file=tmp_path / "c.pem"))
