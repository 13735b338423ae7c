"""A file that the caller names and that cannot be used is a wrong argument, which names the file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from plaudit.cli import main
from plaudit.client import Client, Tls
from plaudit.errors import InvalidArgumentError


def unusable(folder: Path, kind: str) -> Path:
    path = folder / "token"
    if kind == "folder":
        path.mkdir()
    elif kind != "missing":
        path.write_text("" if kind == "empty" else "two words" if kind == "words" else "token")
        path.chmod(0o644 if kind == "open" else 0o600)
    return path


@pytest.mark.parametrize("kind", ["missing", "folder", "empty", "words", "open"])
def test_of_a_token(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = unusable(tmp_path, kind)
    with pytest.raises(InvalidArgumentError, match=str(path)) as caught:
        Client("127.0.0.1:1", token_file=path)
    assert caught.value.reason == "SECRET_UNUSABLE"
    # The option is put into the environment.
    monkeypatch.setenv("PLAUDIT_TOKEN_FILE", "")
    monkeypatch.setattr(sys, "argv", ["plaudit", "--token-file", str(path), "job", "list"])
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr()
    assert (ended.value.code, told.out) == (2, "")
    assert (
        f"token_file: the token file{':' if kind in ('missing', 'folder', 'open') else ''} {path}" in told.err
    )


@pytest.mark.parametrize(
    "tls", [Tls(ca_file="/nowhere"), Tls(certificate_file="/nowhere", key_file="/nowhere")]
)
def test_of_tls(tls: Tls) -> None:
    with pytest.raises(InvalidArgumentError, match="/nowhere"):
        Client("127.0.0.1:1", tls=tls)
