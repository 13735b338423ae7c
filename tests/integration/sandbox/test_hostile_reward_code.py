"""Reward code that does its worst: its own completions fail within its limits, and nobody else notices."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import textwrap
from typing import NamedTuple

import pytest
from sandbox_server import SECRET, SandboxServer, group, told

from plaudit.reward.v1 import reward_service_pb2 as pb

INTERNAL = "CODE_INTERNAL"
TIMEOUT = "CODE_TIMEOUT"


class Hostile(NamedTuple):
    """What `misbehave()` does, and what its completion ends as."""

    name: str
    body: str
    code: str
    message: str
    timeout: float = 20.0


# The answers to these are checked by hand: each names the limit, or the exception of the refusal.
HOSTILE = [
    Hostile("loops", "while True: pass", TIMEOUT, "ran for longer than its 1 s", 1.0),
    Hostile("sleeps", "time.sleep(3600)", TIMEOUT, "ran for longer than its 1 s", 1.0),
    Hostile(
        "catches_everything",
        """
        while True:
            try:
                signal.raise_signal(signal.SIGINT)
                sys.exit(1)
            except BaseException:
                pass
        """,
        TIMEOUT,
        "ran for longer than its 1 s",
        1.0,
    ),
    Hostile(
        "ignores_signals",
        """
        for number in range(1, 32):
            try: signal.signal(number, signal.SIG_IGN)
            except OSError: pass
        while True: time.sleep(1)
        """,
        TIMEOUT,
        "ran for longer than its 1 s",
        1.0,
    ),
    Hostile("allocates_10_gb", "return bytearray(10 << 30)", INTERNAL, "raised MemoryError"),
    Hostile(
        "shares_10_gb",
        "import mmap; return mmap.mmap(-1, 10 << 30)",
        INTERNAL,
        "Cannot allocate memory",
    ),
    Hostile(
        "allocates_in_many_processes",
        """
        for _ in range(10):
            if os.fork() == 0:
                kept = b"x" * (200 << 20)
                time.sleep(3600)
        time.sleep(3600)
        """,
        INTERNAL,
        "took more memory than 512 MiB (memory_mb of the server) with all its processes",
    ),
    Hostile(
        "forks_without_end",
        """
        while True:
            if os.fork() == 0:
                time.sleep(3600)
        """,
        INTERNAL,
        "Resource temporarily unavailable",
    ),
    Hostile(
        "starts_threads_without_end",
        """
        while True:
            threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
        """,
        INTERNAL,
        "can't start new thread",
    ),
    Hostile("kills_its_parent", "os.kill(os.getppid(), 9); os.kill(os.getpid(), 9)", INTERNAL, "SIGKILL"),
    Hostile(
        "prints_1_gb",
        "for _ in range(1000): print('x' * 1_000_000)",
        INTERNAL,
        "printed more than 256 KiB",
    ),
    Hostile("returns_nan", "return float('nan')", INTERNAL, "returned nan"),
    Hostile("returns_infinity", "return 1e999", INTERNAL, "returned inf"),
    Hostile("returns_text", "return '0.5'", INTERNAL, "returned '0.5' (str)"),
    Hostile("exits_at_once", "os._exit(3)", INTERNAL, "ended its process in a call (with exit status 3)"),
    Hostile("raises_system_exit", "sys.exit('bye')", INTERNAL, "raised SystemExit (reward.py:"),
    Hostile(
        "raises_interrupt",
        "raise KeyboardInterrupt",
        INTERNAL,
        "raised KeyboardInterrupt (reward.py:",
    ),
    Hostile("crashes", "ctypes.string_at(0)", INTERNAL, "ended its process in a call (by SIGSEGV)"),
    Hostile(
        "writes_garbage_to_every_pipe",
        """
        for fd in range(3, 64):
            try: os.write(fd, b'\\xff' * 4096)
            except OSError: pass
        time.sleep(3600)
        """,
        INTERNAL,
        "wrote something of its own on the pipe",
    ),
    Hostile(
        "forges_answers",
        """
        for fd in range(3, 64):
            data = b'{"values": [1.0, 1.0, 1.0, 1.0]}'
            try: os.write(fd, len(data).to_bytes(4, 'big') + data)
            except OSError: pass
        time.sleep(3600)
        """,
        INTERNAL,
        "wrote something of its own on the pipe",
    ),
    Hostile(
        "closes_every_descriptor",
        "os.closerange(0, 64); return 1.0",
        INTERNAL,
        "ended its process in a call",
    ),
    Hostile(
        "recurses_to_death",
        """
        sys.setrecursionlimit(10 ** 9)
        class Deep:
            def __repr__(self): return repr(self)
        return repr(Deep())
        """,
        INTERNAL,
        "",
    ),
    Hostile("reads_environment", "return float(os.environ['SERVER_SECRET'])", INTERNAL, "raised KeyError"),
    Hostile("reads_shadow", "return open('/etc/shadow').read()", INTERNAL, "No such file"),
    Hostile("reads_passwd", "return open('/etc/passwd').read()", INTERNAL, "No such file"),
    Hostile("reads_processes", "return open('/proc/1/environ').read()", INTERNAL, "No such file"),
    Hostile(
        "writes_beside_packages",
        f"open({os.__file__!r} + 'x', 'w')",
        INTERNAL,
        "Read-only file system",
    ),
    Hostile("writes_to_root", "open('/x', 'w')", INTERNAL, "Read-only file system"),
    Hostile(
        "fills_the_disk",
        """
        for number in range(50):
            open(f'/tmp/{number}', 'wb').write(b'x' * 1_000_000)
        """,
        INTERNAL,
        "No space left on device",
    ),
    Hostile("writes_a_large_file", "os.truncate(os.memfd_create('m'), 1 << 30)", INTERNAL, "File too large"),
    Hostile(
        "makes_a_namespace_of_its_own",
        "assert ctypes.CDLL(None).unshare(0x10000000) == 0, 'refused'",
        INTERNAL,
        "refused",
    ),
    Hostile("runs_a_program", "subprocess.run(['/bin/sh', '-c', 'true'])", INTERNAL, "No such file"),
    Hostile(
        "opens_a_socket",
        "socket.create_connection(('192.0.2.1', 80), timeout=30)",
        INTERNAL,
        "Network is unreachable",
    ),
]

HEAD = """
import ctypes, os, signal, socket, subprocess, sys, threading, time

def reward(completions, **columns):
    return [1.0 if text == "good" else globals()[text]() for text in completions]
"""


def function_of(name: str, body: str) -> str:
    return f"\ndef {name}():\n" + textwrap.indent(textwrap.dedent(body).strip(), "    ") + "\n"


# One source, so that it is loaded once for all of them.
SOURCE = HEAD + "".join(function_of(hostile.name, hostile.body) for hostile in HOSTILE)


def source_of(body: str) -> str:
    """A source that misbehaves where a completion is "bad"."""
    return HEAD + function_of("bad", body)


@contextlib.asynccontextmanager
async def other_session(server: SandboxServer):
    """Another reward of the server is asked without pause meanwhile; every answer must be as usual."""
    answers: list[pb.Result] = []
    stop = asyncio.Event()

    async def ask() -> None:
        chosen = pb.RewardSelection(key="f", name="format_check")
        while not stop.is_set():
            answers.extend(await server.score(chosen, group(["<think>a</think><answer>b</answer>", "no"])))
            await asyncio.sleep(0.02)

    asking = asyncio.create_task(ask())
    yield
    stop.set()
    await asking
    assert len(answers) >= 2
    assert [told(answer) for answer in answers] == [("score", 1.0), ("score", 0.0)] * (len(answers) // 2)


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda hostile: hostile.name)
async def test_hostile_code_fails_its_own_completions_only(
    sandboxed: SandboxServer, hostile: Hostile
) -> None:
    async with other_session(sandboxed):
        results = await sandboxed.run(
            SOURCE, ["good", hostile.name, "good", "good"], timeout_seconds=hostile.timeout
        )
    first, bad, *others = map(told, results)
    assert first == ("score", 1.0)
    assert others == [("score", 1.0)] * 2
    assert bad[0] == hostile.code, bad
    assert hostile.message in str(bad[1]), bad


async def test_host_loopback_is_out_of_reach(sandboxed: SandboxServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        body = f"socket.create_connection(('127.0.0.1', {listener.getsockname()[1]}), timeout=30)"
        [result] = await sandboxed.run(source_of(body), ["bad"])
        with pytest.raises(TimeoutError):
            listener.accept()
    assert told(result)[0] == INTERNAL
    assert "Connection refused" in str(told(result)[1])


async def test_the_data_directory_and_the_home_are_out_of_reach(sandboxed: SandboxServer) -> None:
    for path in (sandboxed.data_dir / "secret.txt", "/root/.bashrc", __file__):
        [result] = await sandboxed.run(source_of(f"return open({str(path)!r}).read()"), ["bad"])
        assert told(result)[0] == INTERNAL
        assert "No such file" in str(told(result)[1])


async def test_nothing_of_the_server_is_seen(sandboxed: SandboxServer) -> None:
    body = "raise ValueError(dict(os.environ), os.getuid(), sys.argv, os.listdir('/'), os.listdir('/dev'))"
    [result] = await sandboxed.run(source_of(body), ["bad"])
    message = str(told(result)[1])
    assert SECRET not in message
    assert "PLAUDIT" not in message
    assert "'sandbox'" not in message
    assert "['full'" not in message
    # Not root outside of the sandbox either: no worker runs as the user that runs the tests, if that is root.
    assert (os.getuid() == 0) != ("}, 0, " in message)
    assert "'proc'" not in message
    assert "'home'" not in message


async def test_a_wrong_length_fails_the_call(sandboxed: SandboxServer) -> None:
    source = "def reward(completions):\n    return [1.0] * (100_000_000 if 'bad' in completions else 2)\n"
    results = await sandboxed.run(source, ["a", "b", "bad", "c"], batch_size=2)
    assert [told(result)[0] for result in results] == ["score", "score", INTERNAL, INTERNAL]
    for result in results[2:]:
        assert "returned 100000000 values for 2 completions" in str(told(result)[1]) or "MemoryError" in str(
            told(result)[1]
        )
