"""What scorers of others trip over: SIGALRM, which works in the main thread alone, and numbers of a row."""

from __future__ import annotations

from sandbox_server import SandboxServer, selection, told

from plaudit.reward.v1 import reward_service_pb2 as pb

SOURCE = '''
import signal, threading, time

def too_slow(number, frame):
    raise TimeoutError("too slow")

def reward(completions):
    """What a popular checker of mathematics does: any exception is a wrong answer."""
    values = []
    for completion in completions:
        try:
            signal.signal(signal.SIGALRM, too_slow)
            signal.setitimer(signal.ITIMER_REAL, 0.2 if completion == "slow" else 30.0)
            if completion == "slow":
                time.sleep(60.0)
            values.append(1.0)
        except TimeoutError:
            values.append(0.25)
        except Exception:
            values.append(0.0)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
    return values
'''


async def test_an_alarm_rings_and_a_right_answer_is_no_zero(sandboxed: SandboxServer) -> None:
    results = await sandboxed.run(SOURCE, ["right", "slow", "right"], timeout_seconds=20.0)
    assert [told(result) for result in results] == [("score", 1.0), ("score", 0.25), ("score", 1.0)]


async def test_special_tokens_are_there_for_a_function_that_looks_for_them(sandboxed: SandboxServer) -> None:
    group = pb.PromptGroup(
        group_id="g",
        completions=[
            pb.Completion(completion_id="a", text="look", raw_text="<tool>look</tool><end>", prefill="<p>"),
            pb.Completion(completion_id="b", text="plain"),
        ],
    )
    text = "def reward(completions):\n    raise ValueError(repr(completions))\n"
    for config, shown in (
        ({}, ["look", "plain"]),
        ({"with_special_tokens": True}, ["<tool>look</tool><end>", "plain"]),
        ({"with_special_tokens": True, "with_prefill": True}, ["<p><tool>look</tool><end>", "plain"]),
    ):
        results = await sandboxed.score(selection(text, **config), group)
        assert all(repr([one]) in str(told(result)[1]) for one, result in zip(shown, results, strict=True))


CARELESS = """
def reward(completions, answer):
    return [float(c == a.strip()) for c, a in zip(completions, answer)]
"""
CAREFUL = """
def reward(completions, answer):
    return [float(type(a) is int and int(c) == a) for c, a in zip(completions, answer)]
"""


async def test_a_number_of_the_row_is_a_number_and_what_it_breaks_is_a_failure(
    sandboxed: SandboxServer,
) -> None:
    """3 is no "3": code that takes it for text raises, and no completion is given a 0 for that."""
    for result in await sandboxed.run(CARELESS, ["3", "4"], columns={"answer": 3}):
        kind, message = told(result)
        assert kind == "CODE_INTERNAL"
        assert "'int' object has no attribute 'strip'" in str(message)
    results = await sandboxed.run(CAREFUL, ["3", "4"], columns={"answer": 3})
    assert [told(result) for result in results] == [("score", 1.0), ("score", 0.0)]
