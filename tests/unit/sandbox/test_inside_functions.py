"""Loading and calling, in this process: what runs inside of the sandbox, without it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import reward_service.sandbox

sys.path.insert(0, str(Path(reward_service.sandbox.__file__).parent))

from inside.calls import Call, Function
from inside.loading import MODULE_NAME, Refused, load

TURNS = [["user", "Q"]]
ONE_FOR_EACH = "return one for each, in their order, and None where it does not apply"
A_LIST = "return a list with one number, or None, for each, in their order"


@pytest.fixture(autouse=True)
def no_module_left() -> Iterator[None]:
    yield
    sys.modules.pop(MODULE_NAME, None)


def loaded(source: str, **how: Any) -> Function:
    return load(
        {"source": source, "filename": "r.py", "function": None, "format": None, "form": "text", **how}
    )


def answer(source: str, *texts: str, columns: dict[str, Any] | None = None, **how: Any) -> dict[str, Any]:
    prompts = [{"turns": TURNS, "columns": columns or {}}]
    return loaded(source, **how).answer(Call(prompts, [[0, text, 3, False, 7] for text in texts]))


@pytest.mark.parametrize(
    ("source", "name", "kind", "required"),
    [
        ("def reward(prompts, completions, **columns): ...", "reward", "trl", []),
        ("def f(completions, answer, level=1, *, hint): ...", "f", "trl", ["answer", "hint"]),
        ("async def f(args, sample, **kwargs): ...", "f", "miles", []),
        ("def _helper(completions): ...\ndef other(x): ...\ndef f(completions): ...", "f", "trl", []),
        ("def a(completions): ...\ndef reward(completions): ...", "reward", "trl", []),
        ("from json import loads\ndef f(completions): ...", "f", "trl", []),
    ],
)
def test_the_function_and_its_format_are_found(
    source: str, name: str, kind: str, required: list[str]
) -> None:
    assert loaded(source).described() == {"name": name, "format": kind, "required_columns": required}


def test_a_format_that_is_given_wins() -> None:
    assert loaded("def f(**everything): ...", format="trl").described()["format"] == "trl"


@pytest.mark.parametrize(
    ("source", "how", "message", "line"),
    [
        ("x = [", {}, "'[' was never closed", 1),
        ("\n\ndef f(a): ...", {}, "f has neither of the signatures", 3),
        ("def f(completions, /): ...", {}, "by position alone", 1),
        ("def f(args, sample, extra): ...", {}, "f needs (args, sample, extra)", 1),
        ("def f(prompts): ...", {"format": "trl"}, "takes no completions", 1),
        ("f = 3\ndef g(completions): ...", {"function": "f"}, "f is no function, but a int", 0),
        ("def helper():\n    raise OSError('no')\nhelper()", {}, "raised OSError (r.py:2): no", 2),
    ],
)
def test_what_is_none_is_refused_with_its_line(
    source: str, how: dict[str, Any], message: str, line: int
) -> None:
    with pytest.raises(Refused) as caught:
        loaded(source, **how)
    assert message in str(caught.value)
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ("[1, 0.5]", {"values": [1.0, 0.5]}),
        ("(True, None)", {"values": [1.0, None]}),
        ("[1.0]", {"error": f"returned 1 values for 2 completions; {ONE_FOR_EACH}"}),
        ("1.0", {"error": f"returned 1.0 (float) for 2 completions; {A_LIST}"}),
        ("None", {"error": f"returned None (NoneType) for 2 completions; {A_LIST}"}),
        ("{'a': 1, 'b': 2}", {"error": f"returned {{'a': 1, 'b': 2}} (dict) for 2 completions; {A_LIST}"}),
    ],
)
def test_answers(returned: str, expected: dict[str, Any]) -> None:
    assert answer(f"def f(completions):\n    return {returned}", "a", "b") == expected


@pytest.mark.parametrize(
    "value", ["'1'", "b'1'", "[1]", "{}", "1j", "float('nan')", "-1e999", "10 ** 400", "object()"]
)
def test_one_value_that_is_no_number_fails_alone(value: str) -> None:
    reply = answer(f"def f(completions):\n    return [0.25, {value}]", "a", "b")
    assert reply["values"][0] == 0.25
    assert reply["values"][1]["error"].startswith("returned ")


def test_only_the_names_that_a_function_takes_are_given() -> None:
    source = (
        "def f(completions, trainer_state, level=None):\n    return [trainer_state.global_step + level[0]]"
    )
    assert answer(source, "a", columns={"level": 2, "other": 1, "completion": "x"}) == {"values": [9.0]}


def test_an_exception_shows_the_end_of_the_traceback_and_no_more() -> None:
    source = """
def deep(n):
    if n:
        return deep(n - 1)
    raise ValueError("x" * 100_000)

def reward(completions):
    return deep(50)
"""
    error = answer(source, "a")["error"]
    assert error.startswith("raised ValueError (r.py:5): xxx")
    assert len(error) <= 3100
    assert "calls.py" not in error


def test_an_exception_whose_text_raises_is_told() -> None:
    source = (
        "class E(Exception):\n    def __str__(self): raise RuntimeError\ndef f(completions):\n    raise E"
    )
    assert answer(source, "a")["error"].startswith("raised E (r.py:4): its text cannot be had")


def test_log_metric_and_log_extra_are_kept_bounded() -> None:
    source = """
def f(completions, log_metric, log_extra):
    for n in range(100): log_metric(f"m{n}", n)
    log_extra("seen", ["x" * 10_000] * len(completions))
    return [1.0] * len(completions)
"""
    reply = answer(source, "a", "b")
    assert len(reply["metrics"]) == 32
    assert all(len(text) <= 501 for text in reply["extra"].values())
