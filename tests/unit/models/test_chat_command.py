"""Talking to a model: what its process says is shown, and nothing of it steers the terminal."""

from __future__ import annotations

import json
import sys

import pytest
from typer.testing import CliRunner

from plaudit.cli import _chat
from plaudit.cli.model import _own_folder, app
from plaudit.errors import FailedPreconditionError, InvalidArgumentError

# In the place of the process that loads a model: it says what it read, and with which settings.
PARROT = r"""
import json, sys
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    messages = json.loads(line)["messages"]
    for part in (f"{len(messages)} turns: ", messages[-1]["content"], "\x1b[2J\x07\r"):
        print(json.dumps({"text": part}), flush=True)
    print(json.dumps({"end": {"token_count": 3, "truncated": True}}), flush=True)
"""
LOST = 'import json; print(json.dumps({"error": "x cannot be loaded by transformers: it is no model"}))'
DYING = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    return tmp_path


def speak_through(monkeypatch, program):
    whole = _chat.ChatProcess.__init__

    def init(self, folder, **settings):
        whole(self, folder, **settings)
        self.settings = settings
        self._command = [sys.executable, "-c", program]

    monkeypatch.setattr(_chat.ChatProcess, "__init__", init)


def test_answers_are_shown_as_they_come_with_control_characters_made_visible(monkeypatch, folder):
    speak_through(monkeypatch, PARROT)
    done = CliRunner().invoke(app, ["chat", str(folder), "--prompt", "hello"])
    assert done.exit_code == 0, done.output
    assert done.stdout == "1 turns: hello\\x1b[2J\\x07\\x0d\n"
    assert "cut after 3 tokens" in done.stderr


def test_lines_of_a_file_are_questions_of_their_own(monkeypatch, folder):
    speak_through(monkeypatch, PARROT)
    done = CliRunner().invoke(app, ["chat", str(folder), "--json"], input="one\n\ntwo\n")
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(t["prompt"], t["text"]) for t in told] == [
        ("one", "1 turns: one\x1b[2J\x07\r"),
        ("two", "1 turns: two\x1b[2J\x07\r"),
    ]
    assert [(t["token_count"], t["truncated"]) for t in told] == [(3, True)] * 2


@pytest.mark.parametrize(
    ("program", "words"), [(LOST, "cannot be loaded by transformers"), (DYING, "SIGKILL; if memory is short")]
)
def test_a_model_that_cannot_be_had_is_told(monkeypatch, folder, program, words):
    speak_through(monkeypatch, program)
    with pytest.raises(FailedPreconditionError, match=words):
        CliRunner().invoke(app, ["chat", str(folder), "--prompt", "hello"], catch_exceptions=False)


def test_what_is_no_folder_of_a_model_is_refused(tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"holds no config\.json"):
        CliRunner().invoke(app, ["chat", str(tmp_path), "--prompt", "x"], catch_exceptions=False)
    with pytest.raises(InvalidArgumentError, match="is no folder"):
        CliRunner().invoke(app, ["chat", "./nowhere", "--prompt", "x"], catch_exceptions=False)


def test_without_the_trainer_extra_it_says_what_to_install(monkeypatch, folder):
    monkeypatch.setattr(_chat, "find_spec", lambda name: None if name in ("torch", "peft") else object())
    with pytest.raises(
        FailedPreconditionError, match=r"needs torch, peft, .*pip install 'plaudit\[trainer\]'"
    ):
        CliRunner().invoke(app, ["chat", str(folder), "--prompt", "x"], catch_exceptions=False)


@pytest.mark.parametrize("name", ["../x", "/etc", "", ".ssh", "a/b", "..", "a\\b", "x" * 300])
def test_a_folder_is_never_where_a_gateway_leads(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="is no name of a folder"):
        _own_folder(name)


def test_models_go_by_their_names_and_ids() -> None:
    for name in ("adder-2.1", "model_01M8PRB2MA4W117409Z5Y4K2WE", "A_b.c"):
        assert _own_folder(name) == name
