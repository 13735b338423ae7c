"""The built-in reward server as a process, and calls of python_function over the wire."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import duration_pb2

from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.reward.v1 import reward_service_pb2_grpc as pb_grpc
from plaudit.rpc import open_channel

SECRET = "the-secret-of-the-server"
PATIENCE_SECONDS = 60

needs_bwrap = pytest.mark.skipif(
    shutil.which("bwrap") is None, reason="bubblewrap is not installed: apt-get install bubblewrap"
)


class SandboxServer:
    """A running server: its address, its process, what it logged."""

    def __init__(self, process: subprocess.Popen[bytes], address: str, data_dir: Path) -> None:
        self.process = process
        self.address = address
        self.data_dir = data_dir
        self.log: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def logged(self, event: str) -> list[dict[str, Any]]:
        """Records of one event."""
        return [record for record in self.log if record.get("event") == event]

    async def score(self, selection: pb.RewardSelection, *groups: pb.PromptGroup) -> list[pb.Result]:
        """Results in the order of the completions."""
        batch = pb.Batch(
            batch_id=str(uuid.uuid4()), groups=groups, timeout=duration_pb2.Duration(seconds=PATIENCE_SECONDS)
        )
        async with open_channel(self.address) as channel:
            stub = pb_grpc.RewardServiceStub(channel)
            request = pb.ScoreOnceRequest(rewards=[selection], batch=batch)
            answer = await stub.ScoreOnce(request, timeout=PATIENCE_SECONDS)
        by_id = {result.completion_id: result for result in answer.results}
        return [by_id[c.completion_id] for group in groups for c in group.completions]

    async def run(self, source: str, texts: Sequence[str], **how: Any) -> list[pb.Result]:
        """What a source says of completions of one prompt; `columns` and the rest of the config in `how`."""
        columns = how.pop("columns", {})
        return await self.score(selection(source, **how), group(texts, **columns))

    async def needs(self, source: str) -> list[str]:
        """The columns that a source is said to need before anything is scored."""
        async with open_channel(self.address) as channel:
            request = pb.ScoreOnceRequest(rewards=[selection(source)])
            answer = await pb_grpc.RewardServiceStub(channel).ScoreOnce(request, timeout=PATIENCE_SECONDS)
        (needs,) = answer.needs
        assert needs.key == "f"
        return list(needs.required_columns)

    async def wait_for_log(self, event: str, holding: str) -> dict[str, Any]:
        """The first record of an event that holds a text."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                for record in self.logged(event):
                    if holding in json.dumps(record):
                        return record
                await asyncio.sleep(0.02)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            try:
                self.log.append(json.loads(line))
            except ValueError:
                self.log.append({"event": "(text)", "text": line.decode("utf-8", "replace")})


@contextmanager
def serving(data_dir: Path, **sandbox: Any) -> Iterator[SandboxServer]:
    """Runs `python -m reward_service` with these settings of the sandbox."""
    data_dir.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "PLAUDIT_DATA_DIR": str(data_dir),
        "PLAUDIT_REWARD_SANDBOX": json.dumps(sandbox),
        "SERVER_SECRET": SECRET,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "reward_service", "--address", "127.0.0.1:0", "--die-with-stdin"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, process.stderr and process.stderr.read().decode()
        yield SandboxServer(process, json.loads(line)["address"], data_dir)
    finally:
        process.stdin.close()
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def selection(source: str, **config: Any) -> pb.RewardSelection:
    """python_function with a source."""
    text = json.dumps({"source": source, **config})
    return pb.RewardSelection(key="f", name="python_function", config_json=text)


def group(
    texts: Sequence[str], prompt: str = "What is 5 + 7?", first_id: int = 0, **columns: object
) -> pb.PromptGroup:
    """A group with these completions, and columns as JSON."""
    return pb.PromptGroup(
        group_id="g",
        prompt=[pb.Message(role="user", content=prompt)],
        columns={name: pb.ColumnValue(json_value=json.dumps(value)) for name, value in columns.items()},
        completions=[
            pb.Completion(completion_id=f"c{i}", text=text, token_count=len(text.split()))
            for i, text in enumerate(texts, first_id)
        ],
    )


def told(result: pb.Result) -> tuple[str, object]:
    """A result as (kind, value or message)."""
    match result.WhichOneof("outcome"):
        case "score":
            return "score", result.score.value
        case "not_applicable":
            return "not_applicable", result.not_applicable.reason
    return pb.Failure.Code.Name(result.failure.code), result.failure.message
