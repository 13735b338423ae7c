"""Sides take turns; what dies or keeps silent says so with its log."""

import os
import sys

import pytest
from harness import ProgramFailedError, Side, run_program, serving, take_turns

SIDE = """
import json, sys
name, shared = sys.argv[1:]
print(json.dumps({"event": "ready"}), flush=True)
for number, line in enumerate(sys.stdin, 1):
    assert line == ("weigh\\n" if number == 4 else "go\\n")
    if name == "faulty" and number == 2:
        sys.exit("out of order")
    with open(shared, "a") as file:
        file.write(f"{name}{number} ")
    print(json.dumps({"event": "turn", "number": number}), flush=True)
"""


@pytest.fixture
def make_side(tmp_path):
    def make(name):
        return Side(
            name,
            [sys.executable, "-c", SIDE, name, str(tmp_path / "shared")],
            log=tmp_path / f"{name}.log",
            environment=os.environ,
        )

    return make


def test_sides_work_by_turns_and_warm_up_is_left_out(make_side, tmp_path):
    with make_side("a") as a, make_side("b") as b:
        for side in (a, b):
            side.await_ready()
        turns = take_turns([a, b], warm_up=1, repeats=2)
        assert a.take_turn("weigh")["number"] == 4
    assert (tmp_path / "shared").read_text() == "a1 b1 a2 b2 a3 b3 a4 "
    assert {name: [turn["number"] for turn in of] for name, of in turns.items()} == {"a": [2, 3], "b": [2, 3]}


def test_a_side_that_dies_shows_its_log(make_side):
    with (
        pytest.raises(ProgramFailedError, match=r"(?s)faulty has died.*out of order"),
        make_side("faulty") as side,
    ):
        side.await_ready()
        take_turns([side], warm_up=0, repeats=3)


def test_a_side_that_says_something_else(make_side):
    with pytest.raises(ProgramFailedError, match="instead of turn"), make_side("a") as side:
        side.take_turn()


def test_a_server_ends_with_the_block(tmp_path):
    program = "import os, sys; print('{\"pid\": %d}' % os.getpid(), flush=True); sys.stdin.read()"
    with serving(
        "server", [sys.executable, "-c", program], log=tmp_path / "log", environment=os.environ
    ) as announced:
        os.kill(announced["pid"], 0)
    with pytest.raises(ProcessLookupError):
        os.kill(announced["pid"], 0)


def test_a_program_that_fails_shows_its_log(tmp_path):
    with pytest.raises(ProgramFailedError, match=r"(?s)the maker ended with status 3.*broken"):
        run_program(
            "the maker",
            [sys.executable, "-c", "print('broken', flush=True); raise SystemExit(3)"],
            log=tmp_path / "log",
            environment=os.environ,
        )
