"""`plaudit doctor` says where the settings of this machine come from."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from plaudit.cli._checks import _configuration


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in [name for name in os.environ if name.startswith("PLAUDIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_defaults_are_told_where_nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAUDIT_TLS", "")
    assert _configuration() == "no plaudit.toml here and no variable, so that every setting has its default"


def test_variables_are_told_by_name_beside_the_file(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("PLAUDIT_TOKEN", "a-secret")
    monkeypatch.setenv("PLAUDIT_DATA_DIR", "/srv/plaudit")
    names = "set by variables, which win: PLAUDIT_DATA_DIR, PLAUDIT_TOKEN"
    assert _configuration() == f"no plaudit.toml here; {names}"
    (folder / "other.toml").touch()
    monkeypatch.setenv("PLAUDIT_CONFIG", "other.toml")
    assert _configuration() == f"{folder / 'other.toml'}; {names}"
