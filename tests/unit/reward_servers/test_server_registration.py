"""What is registered: the words of settings files, and what does not go together."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.rewards import Registration
from gateway.rewards.registration import registration_violations
from gateway.settings import GatewaySettings
from plaudit.errors import InvalidArgumentError
from plaudit.types.access import ServerAccess, access_violations


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "plaudit.toml"
    monkeypatch.setenv("PLAUDIT_CONFIG", str(path))
    monkeypatch.setenv("PLAUDIT_DATA_DIR", str(tmp_path / "data"))
    return path


def test_a_list_and_a_table_say_the_same(config: Path) -> None:
    config.write_text(
        "[gateway.reward_servers]\n"
        'plain = ["10.0.0.1:1"]\n'
        'table = { addresses = ["10.0.0.1:1"] }\n'
        "[gateway.reward_servers.judge]\n"
        'addresses = ["10.0.0.1:1"]\n'
        'tls = { ca = "judge", server_name = "judge.example" }\n'
        'credential = "judge-a"\n'
    )
    servers = GatewaySettings.load().reward_servers
    assert servers["plain"] == servers["table"] == Registration(addresses=("10.0.0.1:1",))
    judge = {"tls": {"ca": "judge", "server_name": "judge.example"}, "credential": "judge-a"}
    assert servers["judge"].access == ServerAccess.model_validate(judge)


def test_everything_wrong_in_the_settings_is_told_at_once(config: Path) -> None:
    config.write_text(
        "[gateway.reward_servers]\n"
        "seven = 7\n"
        'bare = { credential = "judge" }\n'
        'secret = { addresses = ["10.0.0.1:1"], credential = "Bearer X", tls = { ca = "A B", key = "k" } }\n'
    )
    with pytest.raises(InvalidArgumentError) as refused:
        GatewaySettings.load()
    told = {v.field.removeprefix("gateway.reward_servers."): v.message for v in refused.value.violations}
    assert sorted(told) == ["bare.addresses", "secret.credential", "secret.tls.ca", "secret.tls.key", "seven"]
    assert "must be a list of addresses, or a table" in told["seven"]
    assert "a secret is named here, not held" in told["secret.credential"]


@pytest.mark.parametrize(
    ("access", "address", "wrong"),
    [
        ({"credential": "judge"}, "127.0.0.1:1", []),
        ({"credential": "judge"}, "localhost:1", []),
        ({"credential": "judge"}, "10.0.0.1:1", ["credential"]),
        ({"credential": "judge"}, "judge.example:1", ["credential"]),
        ({"credential": "judge", "plaintext": True}, "judge.example:1", []),
        ({"credential": "judge", "tls": {}}, "judge.example:1", []),
        ({"plaintext": True, "tls": {}}, "judge.example:1", ["plaintext"]),
        ({}, "judge.example:1", []),
    ],
)
def test_where_a_token_may_travel(access: dict[str, object], address: str, wrong: list[str]) -> None:
    found = access_violations(ServerAccess.model_validate(access), [address])
    assert [violation.field for violation in found] == wrong


def test_one_replica_beyond_this_machine_is_enough_to_refuse_a_token() -> None:
    registration = Registration(addresses=("127.0.0.1:1", "10.0.0.1:1"), credential="judge")
    (violation,) = registration_violations("judge", registration)
    assert violation.field == "credential"
    assert "in plain text to 10.0.0.1:1" in violation.message
