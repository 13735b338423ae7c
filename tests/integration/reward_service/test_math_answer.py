"""math_answer over real processes: hard deadlines, deaths, siblings, sessions, and broken installations."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import psutil
import pytest
from score_conversation import Conversation, details_of, eventually, group

from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.reward.v1 import reward_service_pb2_grpc as pb_grpc
from plaudit.rpc import open_channel
from plaudit.types.scoring import Completion, Failed, FailureCode, Prompt, Scored
from reward_service import Item
from reward_service.rewards.math_answer import CANARIES, math_answer
from reward_service.workers import WorkerPool

# Computer algebra has no end in sight for these.
ENDLESS = (r"\boxed{9^{9^{9^{9}}}}", r"\boxed{(((((1+x)^{1000})^{1000})^{1000}))}")
WORKER = Path(sys.modules["reward_service.workers"].__file__ or "").with_name("math_worker.py")


def command(program: Path = WORKER) -> list[str]:
    return [sys.executable, "-I", str(program), str(os.getpid()), str(1 << 30)]


@pytest.fixture
async def pool() -> AsyncIterator[WorkerPool]:
    async with WorkerPool("math_answer", command(), size=2, canaries=CANARIES) as opened:
        # Sessions have seconds to open, which an idle start of two processes need not fit into.
        await opened.ready()
        yield opened


async def session(channel: grpc.aio.Channel, timeout: float = 60.0) -> Conversation:
    talk = Conversation(channel)
    await talk.open("math_answer", math_answer=json.dumps({"timeout_seconds": timeout}))
    return talk


def work(batch_id: str, *texts: str, answer: object = 12) -> pb.Batch:
    return pb.Batch(batch_id=batch_id, groups=[group(texts, answer=answer)])


async def test_one_that_never_ends_fails_alone_and_its_process_is_replaced(
    serve: Any, pool: WorkerPool
) -> None:
    channel = await serve(math_answer(pool, 2))
    talk = await session(channel, timeout=2.0)
    others = await session(channel)
    before = set(pool.pids)
    await talk.send(work("a", *ENDLESS, "<answer>12</answer>", "It is 13."))
    await others.send(work("b", *[f"It is {i}." for i in range(40)]))
    await talk.until("a")
    await others.until("b")
    assert talk.codes("a") == {
        **dict.fromkeys("01", "CODE_TIMEOUT"),
        **dict.fromkeys("23", "score"),
    }
    assert "not compared within 2 s" in talk.of("a")["0"].failure.message
    assert others.values("b") == {str(i): float(i == 12) for i in range(40)}
    await eventually(lambda: len(pool.pids) == 2)
    assert not before & set(pool.pids)
    await eventually(lambda: not any(psutil.pid_exists(pid) for pid in before))
    await talk.send(work("c", "It is 12."))
    assert (await talk.until("c")).values("c") == {"0": 1.0}


async def test_a_process_that_is_killed_at_its_work_fails_that_item_alone(
    serve: Any, pool: WorkerPool
) -> None:
    talk = await session(await serve(math_answer(pool, 2)))
    await eventually(lambda: len(pool.pids) == 2)
    await talk.send(work("a", ENDLESS[0], "It is 12."))
    while "1" not in talk.of("a"):
        await talk.read()

    def working() -> list[psutil.Process]:
        return [p for p in map(psutil.Process, pool.pids) if p.status() == psutil.STATUS_RUNNING]

    await eventually(lambda: len(working()) == 1)
    working()[0].kill()
    await talk.until("a")
    assert talk.of("a")["0"].failure.code == pb.Failure.CODE_INTERNAL
    assert "killed by signal 9" in talk.of("a")["0"].failure.message
    assert talk.of("a")["1"].score.value == 1.0


async def test_what_a_dead_process_had_not_begun_goes_to_another_one(serve: Any, pool: WorkerPool) -> None:
    talk = await session(await serve(math_answer(pool, 2)))
    await eventually(lambda: len(pool.pids) == 2)
    for pid in pool.pids:
        # Stopped processes are idle for the pool, and get the work that they never begin.
        os.kill(pid, signal.SIGSTOP)
    victims = list(pool.pids)
    await talk.send(work("a", "It is 12.", "It is 13."))
    await eventually(lambda: len(pool._conversations) == 2)
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    assert (await talk.until("a")).values("a") == {"0": 1.0, "1": 0.0}


async def test_a_cancelled_one_frees_its_process_at_its_deadline(serve: Any, pool: WorkerPool) -> None:
    channel = await serve(math_answer(pool, 2))
    talk, patient = await session(channel, timeout=1.0), await session(channel)
    await talk.send(work("a", *ENDLESS))
    await eventually(lambda: len(pool._conversations) == 2)
    await talk.cancel("a")
    await talk.until("a")
    assert set(talk.codes("a").values()) == {"CODE_CANCELLED"}
    await patient.send(work("b", "It is 12."))
    assert (await patient.until("b")).values("b") == {"0": 1.0}


async def test_a_process_has_bounds_and_nothing_to_tell(
    serve: Any, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAUDIT_TEST_SECRET", "hush")
    await session(await serve(math_answer(pool, 2)))
    process = psutil.Process(pool.pids[0])
    assert process.rlimit(psutil.RLIMIT_AS) == (1 << 30, 1 << 30)
    assert process.rlimit(psutil.RLIMIT_FSIZE) == (0, 0)
    assert not process.environ().keys() - {"LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "TZ"}
    assert not process.net_connections()
    # Executed anew: what the server has loaded is not in it.
    assert "grpc" not in Path(f"/proc/{process.pid}/maps").read_text()


async def test_its_examples_are_worth_what_they_say(pool: WorkerPool) -> None:
    made = math_answer(pool, 2)
    assert made.examples is not None
    rows = [12, 0.5, r"\frac{1}{2}", "x^2", ["(1, 2)", 3]]
    for extract, answer in itertools.product(("auto", "boxed", "tag"), rows):
        config = made.config.read(json.dumps({"extract": extract}), "config")
        prompt = Prompt("g", (), {"answer": answer})
        written = made.examples(prompt, config)
        assert written is not None
        for texts, value in ((written.good, 1.0), (written.bad, 0.0)):
            for text in texts:
                (result,) = await made.score([Item(prompt, Completion("c", text, 5), config)])
                assert isinstance(result, Scored), result
                assert result.value == value
        assert made.examples(Prompt("g", (), {"answer": None}), config) is None


EQUAL = [
    (0.00001, r"\boxed{0.00001}"),
    (0.00001, "It is 1e-5."),
    (1e16, "It is 10000000000000000."),
    (1e20, r"\boxed{100000000000000000000}"),
    (6.02e23, r"$6.02 \times 10^{23}$"),
    ("0.00001", r"\boxed{1e-5}"),
    ("1e-5", "It is 0.00001."),
    (r"6.02 \times 10^{23}", "It is 6.02e23."),
    ("2e - 1", r"\boxed{2e-1}"),
    (10**400, rf"\boxed{{{10**400}}}"),
    (r"\$18.90", r"\boxed{\$18.90}"),
    (18.9, r"It costs \$18.90."),
    ("2pi", r"\boxed{2\pi}"),
    (r"2\pi", r"\boxed{2pi}"),
    ("xy", r"\boxed{yx}"),
    ("mgh", r"\boxed{ghm}"),
    ("5 apples", "5"),
    (r"\text{no solution}", r"\boxed{\text{No solution}}"),
    ("12_7", r"\boxed{12_7}"),
    (0, "0.0"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\boxed{\begin{pmatrix}1\\2\end{pmatrix}}"),
]
DIFFERENT = [
    (0.00001, r"\boxed{0.00002}"),
    (1e16, "It is 16."),
    ("12_7", r"\boxed{12_8}"),
    ("0.0000001", "It is 0.0000002."),
    ("1/3", "0.3333"),
    (0, "0.0000001"),
    (r"10^{-400}", "5"),
    ("x", r"\boxed{2x10^3}"),
]
INVALID: list[tuple[Any, str]] = [
    ("silent", r"\boxed{listen}"),
    ("no", r"\boxed{on}"),
    ("no solution", r"\boxed{3}"),
    ("True", r"\boxed{3}"),
    (float("inf"), "3"),
    ([], "3"),
    ({}, "3"),
    ([1, None], "3"),
    (10**3000, "3"),
]


async def test_columns_are_read_as_the_mathematics_that_they_are(pool: WorkerPool) -> None:
    made = math_answer(pool, 2)
    config = made.config.read("{}", "config")
    wrong = []
    for expected, rows in ((1.0, EQUAL), (0.0, DIFFERENT), (None, INVALID)):
        for answer, text in rows:
            (result,) = await made.score(
                [Item(Prompt("g", (), {"answer": answer}), Completion("c", text, 5), config)]
            )
            if isinstance(result, Failed):
                found = None if result.code is FailureCode.INVALID else result.code
            else:
                found = result.value if isinstance(result, Scored) else result
            if found != expected:
                wrong.append((answer, text, result))
    assert not wrong


async def test_a_lack_of_memory_is_no_difference() -> None:
    # Half of what the process has from the beginning is more than half of this bound.
    tight = [*command()[:-1], str(96 << 20)]
    async with WorkerPool("math_answer", tight, size=1, canaries=()) as pool:
        reply = await pool.ask({"gold": ["1"], "answer": "2"}, 60.0)
        assert reply == {"outcome": "out_of_memory"}
        assert (await pool.ask({"gold": ["1"], "answer": "1"}, 60.0))["outcome"] == "equal"


BROKEN = {
    # As a scorer that catches what its signals raise in a thread: every answer is wrong.
    "says that all differ": (
        'reply = {"outcome": "different", "found": "x"}',
        'it answers {"outcome": "different", "found": "x"} to',
    ),
    "says that all are equal": ('reply = {"outcome": "equal"}', 'it answers {"outcome": "equal"} to'),
    "ends": ("sys.exit(3)", "exit status 3"),
    "is no program": ("(", "exit status 1"),
    "says what is no JSON": ('print("hello"); sys.stdout.flush()', "it did not start"),
}


@pytest.mark.parametrize("kind", BROKEN)
async def test_processes_that_do_not_know_known_answers_are_never_asked(
    serve: Any, tmp_path: Path, kind: str
) -> None:
    code, told = BROKEN[kind]
    program = tmp_path / "worker.py"
    program.write_text(
        "import json, sys\n"
        "for line in sys.stdin:\n"
        f"    {code}\n"
        "    print(json.dumps({'started': True}))\n"
        "    print(json.dumps(reply))\n"
        "    sys.stdout.flush()\n"
    )
    async with WorkerPool("math_answer", command(program), size=1, canaries=CANARIES) as pool:
        talk = Conversation(await serve(math_answer(pool, 1)))
        opening = pb.SessionOpen(
            session_id=talk.session_id,
            protocol_version=1,
            rewards=[pb.RewardSelection(key="math", name="math_answer")],
        )
        await talk.call.write(pb.ScoreRequest(open=opening))
        error = await talk.ending()
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert "the workers of math_answer are of no use" in (error.details() or "")
        assert told in (error.details() or "")
        assert details_of(error)["retry_delay"] > 0
        assert not pool.pids


async def test_without_the_library_the_config_is_refused_with_the_way_out(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = WorkerPool("math_answer", command(), size=2, canaries=CANARIES)  # nobody starts it
    monkeypatch.setattr(sys.modules["reward_service.rewards.math_answer"], "find_spec", lambda name: None)
    stub = pb_grpc.RewardServiceStub(await serve(math_answer(pool, 2)))
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await stub.ScoreOnce(
            pb.ScoreOnceRequest(rewards=[pb.RewardSelection(key="math", name="math_answer")]), timeout=20
        )
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "pip install 'plaudit[math]'" in details_of(error.value)["violations"]["rewards[0].config"]
    assert not pool.pids


async def test_the_pool_is_gone_when_it_is_closed_while_it_works(pool: WorkerPool) -> None:
    await pool.ready()
    asking = asyncio.create_task(pool.ask({"gold": ["1"], "text": ENDLESS[0]}, 60.0))
    await eventually(lambda: len(pool.pids) == 2 and pool._conversations)
    pids = list(pool.pids)
    await pool.close()
    assert not any(psutil.pid_exists(pid) for pid in pids)
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_processes_end_with_a_server_that_is_killed() -> None:
    server = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "reward_service",
        "--address",
        "127.0.0.1:0",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "PLAUDIT_REWARD_MATH": '{"workers": 2}'},
    )
    try:
        assert server.stdout is not None
        address = json.loads(await asyncio.wait_for(server.stdout.readline(), 60))["address"]
        async with open_channel(address) as channel:
            talk = await session(channel)
            workers = await children(server.pid, 2)
            # Both in the midst of a computation, where they read nothing.
            await talk.send(work("a", *ENDLESS))
            await eventually(lambda: all(p.status() == psutil.STATUS_RUNNING for p in workers))
            server.kill()
            await server.wait()
            await eventually(lambda: not any(p.is_running() for p in workers))
    finally:
        if server.returncode is None:
            server.kill()
            await server.wait()


async def children(pid: int, count: int) -> list[psutil.Process]:
    server = psutil.Process(pid)
    await eventually(lambda: len(server.children()) == count)
    return server.children()
