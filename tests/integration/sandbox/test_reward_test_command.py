"""`plaudit reward test` as a user runs it: exit status, table, findings, JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sandbox_server import SandboxServer, needs_bwrap

from plaudit.rpc import open_channel
from plaudit.trial._asking import Asker, try_function
from plaudit.trial._findings import findings_of
from plaudit.trial._rows import read_rows

REWARDS = """
import random, re, time

def good(completions, answer, **columns):
    print("seen", len(completions))
    found = [re.search("<answer>(.*?)</answer>", c) for c in completions]
    return [float(bool(f) and f.group(1) == str(a)) for f, a in zip(found, answer)]

def constant(completions):
    return [1.0 for _ in completions]

def longer(completions):
    return [len(c) / 1000 for c in completions]

def shorter(completions):
    return [1 / (1 + len(c)) for c in completions]

def rolls_dice(completions):
    return [random.random() for _ in completions]

def centred(completions):
    mean = sum(map(len, completions)) / len(completions)
    return [len(c) - mean for c in completions]

def wrong_length(completions):
    return [1.0, 2.0]

def one_for_all(completions):
    return [len(completions[0]) * 7919 % 13 / 13]

def too_large(completions, answer, **columns):
    return [2e6 if text == str(right) else 0.0 for text, right in zip(completions, answer)]


def enormous(completions, answer, **columns):
    return [1e308 if text == str(right) else 0.0 for text, right in zip(completions, answer)]


def not_finite(completions):
    return [float("nan") if "13" in c else 1.0 for c in completions]

def raising(completions):
    return [float(c) for c in completions]

def sleepy(completions):
    time.sleep(0.06)
    return [float("13" in c) for c in completions]

def never(completions):
    return [None for _ in completions]

def needs_solution(completions, solution):
    return [1.0 for _ in completions]
"""
ROWS = [
    {"prompt": "5 + 7 =", "answer": 12, "completions": ["<answer>12</answer>", "12", "<answer>13</answer>"]},
    {"prompt": [{"role": "user", "content": "1 + 1"}], "answer": "2"},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rewards.py").write_text(REWARDS)
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    return tmp_path


def run(folder: Path, file: str, *options: str) -> subprocess.CompletedProcess[str]:
    plaudit = str(Path(sys.executable).with_name("plaudit"))
    command = [plaudit, "reward", "test", file, "--data", "rows.jsonl", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)


@needs_bwrap
def test_a_sound_reward_passes(folder: Path) -> None:
    # What this machine's reward server has beside its sandbox is no matter of the trial.
    (folder / "plaudit.toml").write_text(
        '[reward]\nsecurity = {tls_cert = "/nowhere.pem"}\n[reward.judge.profiles.main]\n'
        'provider = "openai"\nurl = "http://127.0.0.1:1/v1"\nmodel = "m"\ncredential = "not-here"\n'
    )
    done = run(folder, "rewards.py:good")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Nothing was found that speaks against it." in done.stdout
    assert "  seen 1" in done.stdout
    # Row 1: one of three is right. Row 2: of the probes, the one in the tag.
    assert done.stdout.splitlines()[1].split() == ["1", "own", "3", "0", "0.3333", "1", "0.5774", "0", "0"]
    assert done.stdout.splitlines()[2].split()[:6] == ["2", "probes", "7", "0", "0.1429", "1"]


@needs_bwrap
def test_findings_end_it_with_1_and_stand_in_the_json(folder: Path) -> None:
    done = run(folder, "rewards.py:constant", "--json")
    assert done.returncode == 1, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert [warning["kind"] for warning in report["warnings"]] == ["constant"]
    assert [row["std"] for row in report["rows"]] == [0.0, 0.0]
    assert report["summary"]["scored"] == 10


@needs_bwrap
def test_a_function_that_is_not_there_ends_it_with_1(folder: Path) -> None:
    done = run(folder, "rewards.py:missing")
    assert done.returncode == 1
    assert "rewards.py defines no function missing; there are good, constant" in done.stdout


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("good", []),
        ("constant", ["constant"]),
        ("longer", ["length_gamed"]),
        ("shorter", ["empty_answer_friendly"]),
        ("rolls_dice", ["non_deterministic"]),
        ("centred", ["constant", "depends_on_company"]),
        ("wrong_length", ["wrong_length"]),
        ("one_for_all", ["wrong_length"]),  # right where it is called with one
        ("not_finite", ["non_finite", "constant"]),
        ("too_large", ["out_of_range", "constant"]),
        ("enormous", ["out_of_range", "constant"]),
        ("raising", ["raising"]),
        ("sleepy", ["slow"]),
        ("never", ["not_applicable"]),
        ("needs_solution", ["missing_column"]),
    ],
)
async def test_what_speaks_against_a_reward(
    sandboxed: SandboxServer, folder: Path, name: str, kinds: list[str]
) -> None:
    rows = read_rows(folder / "rows.jsonl", None, 100)
    async with open_channel(sandboxed.address) as channel:
        asker = Asker(channel, {"source": REWARDS, "function": name})
        trial = await try_function(asker, rows, calls_have_several=False)
    found = [finding.kind for finding in findings_of(trial, slow_seconds=0.05)]
    assert [kind for kind in found if kind != "slow" or kind in kinds] == kinds


def test_everything_wrong_with_the_files_is_told_at_once(folder: Path) -> None:
    (folder / "rows.jsonl").write_text('{"a": 1}\nnot json\n{"prompt": "Q"}\n')
    done = run(folder, "missing.py")
    assert done.returncode == 2
    assert "missing.py cannot be read" in done.stderr
    assert "rows.jsonl:1: has no prompt" in done.stderr
    assert "rows.jsonl:2: is not JSON" in done.stderr
    assert "Traceback" not in done.stderr
