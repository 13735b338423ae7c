"""The scorer against a server made with the author kit, over a network that cuts connections."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scoring_helpers import WAIT_SECONDS, completion, prompt, target

from plaudit.scoring import RewardScorer
from plaudit.types.scoring import Scored


class CuttingProxy:
    """Passes TCP on to one port, until told to cut every connection."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        connections, self._open = self._open, []
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._target))
            self._open += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65_536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # cut


@pytest.fixture
def kit_port() -> Iterator[int]:
    program = Path(__file__).with_name("scoring_kit_server.py")
    process = subprocess.Popen(
        [sys.executable, str(program), "--address", "127.0.0.1:0", "--die-with-stdin"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    yield int(json.loads(process.stdout.readline())["address"].rpartition(":")[2])
    process.terminate()
    process.communicate(timeout=WAIT_SECONDS)


def test_nothing_is_scored_twice_when_connections_are_cut(
    kit_port: int, make_scorer: Callable[..., RewardScorer]
) -> None:
    proxy = CuttingProxy(kit_port)
    scorer = make_scorer(target(f"127.0.0.1:{proxy.port}", name="times", reward="times_asked"))
    assert scorer.wait_ready(WAIT_SECONDS)
    for cut in range(3):
        completions = [completion(100 * cut + i, "x") for i in range(100)]
        for index, one in enumerate(completions):
            scorer.submit(prompt(100 * cut + index, answer=72), one, step=1, group_size=1)
        ids = [one.completion_id for one in completions]
        # The server has begun with them, and takes 300 ms for each.
        assert not scorer.wait(ids, 0.05)
        proxy.cut()
        assert scorer.wait(ids, WAIT_SECONDS)
        scores = scorer.take(ids)
        assert all(one.outcomes["times"].outcome == Scored(1.0) for one in scores.values())
    assert scorer.counters().breaks == 3
    proxy.close()
