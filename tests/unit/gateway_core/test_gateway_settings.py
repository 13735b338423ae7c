"""Settings of the gateway."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.settings import GatewaySettings
from plaudit.errors import InvalidArgumentError


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "plaudit.toml").touch()
    monkeypatch.setenv("PLAUDIT_CONFIG", str(tmp_path / "plaudit.toml"))
    monkeypatch.setenv("PLAUDIT_DATA_DIR", str(tmp_path / "data"))


def test_defaults_find_the_services_of_this_machine(tmp_path: Path) -> None:
    settings = GatewaySettings.load()
    assert settings.trainers == ("127.0.0.1:7432",)
    assert settings.reward_servers == {"builtin": ("127.0.0.1:7433",)}
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
    assert settings.trainers == ("127.0.0.1:4", "127.0.0.1:5")
    assert settings.reward_servers == {"judge": ("10.0.0.6:1", "10.0.0.7:1")}


@pytest.mark.parametrize("address", ["0.0.0.0:7430", "10.0.0.1:7430", "[::]:1", "example.com:1", ":1"])
def test_it_listens_on_loopback_only(address: str) -> None:
    with pytest.raises(InvalidArgumentError, match="neither TLS nor tokens") as refused:
        GatewaySettings.load(grpc_address=address, http_address=address)
    assert [v.field for v in refused.value.violations] == ["gateway.grpc_address", "gateway.http_address"]


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536"])
def test_an_address_has_a_port(address: str) -> None:
    with pytest.raises(InvalidArgumentError, match="port from 0"):
        GatewaySettings.load(grpc_address=address)
