"""python_function over the wire: both signatures, both forms, columns, prints, sources that are none."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
from sandbox_server import SandboxServer, group, selection, told

from plaudit.errors import InvalidArgumentError
from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.rpc import error_from_rpc


def source(text: str) -> str:
    return textwrap.dedent(text).lstrip("\n")


async def refusal(server: SandboxServer, text: str, **how: Any) -> str:
    """What a session that selects the source is refused with."""
    import grpc

    with pytest.raises(grpc.RpcError) as caught:
        await server.run(text, ["a"], **how)
    error = error_from_rpc(caught.value)
    assert isinstance(error, InvalidArgumentError)
    [violation] = error.violations
    assert violation.field == "rewards[0].config.source"
    return violation.message


TRL = """
    def reward(prompts, completions, answer, **columns):
        assert set(columns) == {"level", "token_counts", "trainer_state", "log_extra", "log_metric"}
        columns["log_metric"]("length", len(completions[0]))
        columns["log_extra"]("said", completions)
        return [None if a is None else float(p.startswith("What") and c == str(a)) + l
                for p, c, a, l in zip(prompts, completions, answer, columns["level"])]
"""


async def test_trl_columns_metrics_and_none(sandboxed: SandboxServer) -> None:
    results = await sandboxed.score(
        selection(source(TRL), batch_size=2),
        group(["12", "13", "12"], answer=12, level=0.5),
        group(["12"], prompt="Why?", first_id=3, answer=12, level=2),
        group(["12"], first_id=4, answer=None, level=1),
    )
    assert [told(result) for result in results[:4]] == [
        ("score", 1.5),
        ("score", 0.5),
        ("score", 1.5),
        ("score", 2.0),
    ]
    assert told(results[4])[0] == "not_applicable"
    assert dict(results[0].score.metrics) == {"length": 2.0}
    assert results[1].score.explanation == "said: 13"


async def test_trl_async_function_and_numbers_of_other_kinds(sandboxed: SandboxServer) -> None:
    text = """
        import asyncio, decimal, fractions
        import numpy
        async def score(completions):
            await asyncio.sleep(0)
            kinds = {"numpy": numpy.float32(0.5), "bool": True, "int": 3, "decimal": decimal.Decimal("0.25"),
                     "array": numpy.array([1.5])[0]}
            return numpy.array([kinds[c] for c in completions], dtype=object)
    """
    results = await sandboxed.run(source(text), ["numpy", "bool", "int", "decimal", "array"])
    assert [told(result) for result in results] == [("score", v) for v in (0.5, 1.0, 3.0, 0.25, 1.5)]


async def test_miles_signature(sandboxed: SandboxServer) -> None:
    text = """
        async def reward(args, sample, **kwargs):
            assert sample.status is sample.Status.COMPLETED
            assert sample.metadata == {"answer": "12", "kind": ["x"]}
            return float(sample.response == sample.label) + sample.response_length / 100
    """
    results = await sandboxed.run(source(text), ["12", "13 or so"], columns={"answer": "12", "kind": ["x"]})
    assert [told(result) for result in results] == [("score", 1.01), ("score", 0.03)]


async def test_one_form_whatever_the_prompt_was(sandboxed: SandboxServer) -> None:
    chat = pb.PromptGroup(
        group_id="chat",
        prompt=[pb.Message(role="system", content="Be brief."), pb.Message(role="user", content="Hi")],
        completions=[pb.Completion(completion_id="chat-1", text="hello", prefill="<think>")],
    )
    text = "def reward(prompts, completions):\n    raise ValueError(repr((prompts, completions)))\n"
    as_text = await sandboxed.score(selection(text), group(["x"]), chat)
    as_messages = await sandboxed.score(
        selection(text, form="messages", with_prefill=True), group(["x"]), chat
    )
    assert "(['What is 5 + 7?'], ['x'])" in str(told(as_text[0])[1])
    assert "(['Be brief.\\n\\nHi'], ['hello'])" in str(told(as_text[1])[1])
    assert (
        "([[{'role': 'user', 'content': 'What is 5 + 7?'}]], [[{'role': 'assistant', 'content': 'x'}]])"
        in str(told(as_messages[0])[1])
    )
    assert "'content': '<think>hello'}]])" in str(told(as_messages[1])[1])


async def test_the_wrong_form_is_told_with_the_way_out(sandboxed: SandboxServer) -> None:
    text = "def reward(completions):\n    return [float(len(c[0]['content'])) for c in completions]\n"
    [result] = await sandboxed.run(text, ["four"])
    assert 'set form to "messages"' in str(told(result)[1])
    [result] = await sandboxed.run(text, ["four"], form="messages")
    assert told(result) == ("score", 4.0)
    text = "def reward(completions):\n    return [float(len(c.strip())) for c in completions]\n"
    [result] = await sandboxed.run(text, ["four"], form="messages")
    assert 'set form to "text"' in str(told(result)[1])


async def test_an_exception_names_the_users_own_line(sandboxed: SandboxServer) -> None:
    text = """
        import json

        def parse(text):
            return json.loads(text)["score"]

        def reward(completions):
            return [parse(c) for c in completions]
    """
    results = await sandboxed.run(source(text), ['{"score": 0.5}', "{", "{}"], filename="my_reward.py")
    assert told(results[0]) == ("score", 0.5)
    for result, name in ((results[1], "JSONDecodeError"), (results[2], "KeyError")):
        code, message = told(result)
        assert code == "CODE_INTERNAL"
        assert f"reward raised {name} (my_reward.py:4)" in str(message)
        assert 'return json.loads(text)["score"]' in str(message)


async def test_a_missing_column_is_named(sandboxed: SandboxServer) -> None:
    text = "def reward(completions, solution):\n    return [1.0 for _ in completions]\n"
    [result] = await sandboxed.run(text, ["a"], columns={"answer": 3})
    assert told(result) == (
        "CODE_INVALID",
        "the row lacks column solution, which the reward needs; it has answer",
    )


async def test_the_columns_that_a_signature_names_are_told_when_a_job_is_submitted(
    sandboxed: SandboxServer,
) -> None:
    head = "def reward(prompts, completions, solution, *, level, hint='', **rest):"
    assert await sandboxed.needs(f"{head}\n    return [1.0 for _ in completions]\n") == ["solution", "level"]
    miles = "async def reward(args, sample, **kwargs):\n    return sample.metadata['solution']\n"
    assert await sandboxed.needs(miles) == []


@pytest.mark.parametrize(
    ("text", "how", "message"),
    [
        (
            "def reward(completions):\n    return [\n",
            {},
            "reward.py does not parse: '[' was never closed (line 2)",
        ),
        ("x = 1\n", {}, "reward.py defines no function; write def reward(prompts, completions, **columns)"),
        ("import numpy\nimport not_there\n", {}, "raised ModuleNotFoundError (reward.py:2): No module named"),
        ("def a(completions): ...\ndef b(completions): ...\n", {}, "defines 2 functions, a, b; say which"),
        ("def a(completions): ...\n", {"function": "b"}, "defines no function b; there are a"),
        ("\ndef score(x): ...\n", {}, "score has neither of the signatures that are known"),
        (
            "def reward(completions, completion_ids): ...\n",
            {},
            "reward needs completion_ids, which a reward server does not get",
        ),
        ("raise SystemExit(3)\ndef reward(completions): ...\n", {}, "raised SystemExit (reward.py:1): 3"),
        ("import os\nos._exit(3)\n", {}, "could not be imported: it ended its process"),
        ("x\0", {}, "reward.py does not parse: source code string cannot contain null bytes"),
        ("(" * 200_000, {}, "does not parse"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
async def test_a_source_that_is_none_is_told_when_the_session_opens(
    sandboxed: SandboxServer, text: str, how: dict[str, Any], message: str
) -> None:
    assert message in await refusal(sandboxed, text, **how)


async def test_prints_stand_in_the_log(sandboxed: SandboxServer) -> None:
    text = "def reward(completions):\n    print('scoring', completions, flush=True)\n    return [1.0]\n"
    await sandboxed.run(text, ["printed-text\x1b[2J"], filename="printing.py")
    record = await sandboxed.wait_for_log("a reward printed", "printed-text")
    assert record["source"] == "printing.py"
    assert record["text"] == "scoring ['printed-text\\x1b[2J']"


async def test_programs_share_nothing(sandboxed: SandboxServer) -> None:
    """What a source leaves in its process, it finds again, for it is imported once; another does not."""
    leaving = """
        import builtins, pathlib
        calls = []
        def reward(completions):
            calls.append(1)
            builtins.left = 1
            pathlib.Path("/tmp/left").write_text("left")
            return [float(len(calls))]
    """
    finding = """
        import builtins, pathlib
        def reward(completions):
            return [float(hasattr(builtins, "left") or pathlib.Path("/tmp/left").exists())]
    """
    [first] = await sandboxed.run(source(leaving), ["a"])
    [second] = await sandboxed.run(source(leaving), ["a"])
    assert [told(first), told(second)] == [("score", 1.0), ("score", 2.0)]
    for number in range(4):  # more sources than workers: each worker changes hands
        [found] = await sandboxed.run(source(finding) + f"# {number}\n", ["a"])
        assert told(found) == ("score", 0.0)


async def test_two_thousand_completions(sandboxed: SandboxServer) -> None:
    text = """
        def reward(completions, answer):
            return [float(c.endswith(str(a))) for c, a in zip(completions, answer)]
    """
    groups = [
        pb.PromptGroup(
            group_id=f"g{g}",
            prompt=[pb.Message(role="user", content="Q")],
            columns={"answer": pb.ColumnValue(int_value=g % 2)},
            completions=[pb.Completion(completion_id=f"{g}-{i}", text=f"{'x' * 500} {i}") for i in range(8)],
        )
        for g in range(250)
    ]
    results = await sandboxed.score(selection(source(text)), *groups)
    expected = [float(i == g % 2) for g in range(250) for i in range(8)]
    assert [told(result) for result in results] == [("score", value) for value in expected]
