"""What goes wrong before a gateway is asked is told in one line each, in the words of this command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from plaudit.cli import main

PLAUDIT = Path(sys.executable).parent / "plaudit"


@pytest.mark.parametrize("arguments", [["version"], ["--help"], ["reward", "test", "--help"]], ids=" ".join)
def test_output_that_cannot_be_written_is_told_in_one_line(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [PLAUDIT, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert done.returncode == 1
    assert done.stderr == (
        "error: the output cannot be written (No space left on device); make room for it\n"
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("token create --role boss --expires banana", ["option '--name'", "'boss'", '"banana"']),
        (
            "dataset tokens --max-prompt-length -1",
            ["argument 'DATASET'", "'--model'", "or equal to 1"],
        ),
        ("job list --status bad --limit 0", ["'bad' is not one of", "for '--limit'"]),
        (
            "dataset connect x --hub a/b --path c --map d --map e=f --map g",
            ["--hub: goes not with --path", '--path: "c"', '--map: "d"', '--map: "g"'],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_wrong_option_is_told(
    arguments: str,
    told: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PLAUDIT_ADDRESS", "127.0.0.1:1")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "argv", ["plaudit", *arguments.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "Value error" not in said
    assert all(said.count(each) == 1 for each in told), said


@pytest.mark.parametrize(
    ("arguments", "says", "says_not"),
    [
        (["token", "create", "--name", "x", "--role", "king"], "'king' is not one of", "Value error"),
        (["job", "list", "--status", "bad"], "'bad' is not one of", "Value error"),
        (["job", "submit", "missing.toml"], "'missing.toml' cannot be read (No such file or", "Errno"),
        (["job", "submit", "."], "'.' cannot be read (Is a directory)", "Errno"),
        (["reward-function", "upload", "missing.py"], "(No such file or directory)", "Errno"),
        (["job", "metrics", "job_1", "--csv", "--json"], "--csv: goes not with --json", "cannot be reached"),
        (["job", "get", ""], 'id: "" names nothing', "cannot be reached"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_wrong_usage_is_told_plainly(
    arguments: list[str],
    says: str,
    says_not: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLAUDIT_ADDRESS", "127.0.0.1:1")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "argv", ["plaudit", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr()
    assert (ended.value.code, told.out) == (2, "")
    assert says in told.err
    assert says_not not in told.err
