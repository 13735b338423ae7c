"""Settings of the gateway."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.rewards import Registration
from gateway.settings import GatewaySettings
from plaudit.errors import InvalidArgumentError
from plaudit.types.access import OPEN_TO_ALL, TlsAccess


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "plaudit.toml").touch()
    monkeypatch.setenv("PLAUDIT_CONFIG", str(tmp_path / "plaudit.toml"))
    monkeypatch.setenv("PLAUDIT_DATA_DIR", str(tmp_path / "data"))


def test_defaults_find_the_services_of_this_machine(tmp_path: Path) -> None:
    settings = GatewaySettings.load()
    assert [trainer.address for trainer in settings.trainers] == ["127.0.0.1:7432"]
    assert settings.reward_servers == {"builtin": Registration(addresses=("127.0.0.1:7433",))}
    assert settings.trainer_lost_after_seconds == 600
    assert settings.state_dir == tmp_path / "data" / "gateway"
    assert settings.artifacts == tmp_path / "data" / "artifacts"


def test_the_command_line_wins_over_variables_and_these_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plaudit.toml").write_text(
        '[gateway]\ngrpc_address = "127.0.0.1:1"\nhttp_address = "127.0.0.1:2"\n'
        'trainers = ["10.0.0.5:7432"]\nreward_servers = { judge = ["10.0.0.6:1", "10.0.0.7:1"] }\n'
    )
    monkeypatch.setenv("PLAUDIT_GATEWAY_HTTP_ADDRESS", "127.0.0.1:3")
    monkeypatch.setenv("PLAUDIT_GATEWAY_TRAINERS", json.dumps(["127.0.0.1:4", "127.0.0.1:5"]))
    settings = GatewaySettings.load(grpc_address="[::1]:0", http_address=None)
    assert (settings.grpc_address, settings.http_address) == ("[::1]:0", "127.0.0.1:3")
    assert [trainer.address for trainer in settings.trainers] == ["127.0.0.1:4", "127.0.0.1:5"]
    assert settings.reward_servers == {"judge": Registration(addresses=("10.0.0.6:1", "10.0.0.7:1"))}


@pytest.mark.parametrize("address", ["0.0.0.0:7430", "10.0.0.1:7430", "[::]:1", "example.com:1", ":1"])
def test_beyond_loopback_it_needs_a_certificate_and_asks_for_tokens(address: str) -> None:
    with pytest.raises(InvalidArgumentError, match="needs a certificate") as refused:
        GatewaySettings.load(grpc_address=address, http_address=address)
    assert [v.field for v in refused.value.violations] == ["gateway.grpc_address", "gateway.http_address"]
    for security in ({"plaintext": True}, {"tls_cert": "c.pem", "tls_key": "k.pem"}):
        settings = GatewaySettings.load(http_address=address, security=security)
        assert settings.access.require_tokens
    assert not GatewaySettings.load(security={"plaintext": True}).access.require_tokens


def test_a_trainer_is_an_address_or_a_table_of_names() -> None:
    judge = {"address": "10.0.0.5:7432", "tls": {"ca": "trainers"}, "credential": "trainer-a"}
    local, remote = GatewaySettings.load(trainers=["127.0.0.1:7432", judge]).trainers
    assert local.access == OPEN_TO_ALL
    assert (remote.access.tls, remote.access.credential) == (TlsAccess(ca="trainers"), "trainer-a")
    with pytest.raises(InvalidArgumentError, match="would travel in plain text to 10"):
        GatewaySettings.load(trainers=[{"address": "10.0.0.5:7432", "credential": "trainer-a"}])


@pytest.mark.parametrize("host", ["https://plaudit.example", "plaudit.example:443", "Plaudit.example", ""])
def test_an_allowed_host_is_a_name_alone(host: str) -> None:
    with pytest.raises(InvalidArgumentError, match="without scheme and port"):
        GatewaySettings.load(allowed_hosts=[host])


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536"])
def test_an_address_has_a_port(address: str) -> None:
    with pytest.raises(InvalidArgumentError, match="port from 0"):
        GatewaySettings.load(grpc_address=address)
