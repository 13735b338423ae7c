"""Settings of judges: what is refused, and that no key can stand in them."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from plaudit.errors import InvalidArgumentError
from reward_service.judge import JudgeProfile
from reward_service.settings import RewardSettings


def test_defaults_are_the_providers() -> None:
    assert JudgeProfile(model="m").base_url == "https://api.openai.com/v1"
    assert JudgeProfile(model="m", provider="anthropic").base_url == "https://api.anthropic.com"
    assert (
        JudgeProfile(model="m", base_url="http://127.0.0.1:8000/v1/").base_url == "http://127.0.0.1:8000/v1"
    )


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("base_url", "api.example/v1", "must be http:// or https://"),
        ("base_url", "ftp://api.example", "must be http:// or https://"),
        ("base_url", "https://", "must be http:// or https://"),
        ("base_url", "https://api.example/v1?key=sk-secret", "without query"),
        ("base_url", "https://user:sk-secret@api.example", "name the key in credential"),
        ("base_url", "https://api.example:99999", "range"),
        ("credential", "sk-Very-Secret", "named here, not held"),
        ("provider", "bard", "openai"),
        ("concurrency", 0, "greater than or equal to 1"),
        ("api_key", "sk-secret", "Extra inputs"),
    ],
)
def test_what_is_wrong_is_refused(field: str, value: object, told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        JudgeProfile.model_validate({"model": "m", field: value})


def test_no_key_travels_in_plain_text_beyond_this_machine() -> None:
    with pytest.raises(ValidationError, match=r"plain text to judge\.example"):
        JudgeProfile(model="m", base_url="http://judge.example/v1")
    JudgeProfile(model="m", base_url="http://judge.example/v1", plaintext=True)
    JudgeProfile(model="m", base_url="http://[::1]:8000/v1")
    JudgeProfile(model="m", base_url="http://localhost:8000/v1")


def test_they_stand_in_the_operators_file(
    tmp_path: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "plaudit.toml"  # type: ignore[operator]
    monkeypatch.setenv("PLAUDIT_CONFIG", str(file))
    file.write_text(
        '[reward.judge.profiles.main]\nmodel = "gpt-4.1-mini"\ncredential = "openai"\ninput_price = 0.4\n'
        'output_price = 1.6\n[reward.judge.profiles.local]\nmodel = "m"\nbase_url = "http://127.0.0.1:1/v1"\n'
    )
    profiles = RewardSettings.load().judge.profiles
    assert list(profiles) == ["main", "local"]
    # 1,000 tokens at 0.4 and 100 at 1.6 a million
    assert profiles["main"].cost(1000, 100) == pytest.approx(0.00056)
    assert not profiles["local"].has_prices

    file.write_text('[reward.judge.profiles.Main]\nmodel = ""\nbase_url = "x"\n')
    with pytest.raises(InvalidArgumentError) as raised:
        RewardSettings.load()
    assert "reward.judge.profiles" in str(raised.value)
