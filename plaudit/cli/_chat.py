"""Talks to a model on this machine, which a process of its own loads."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from plaudit.errors import FailedPreconditionError, InvalidArgumentError
from plaudit.types.texts import shown

_NEEDED: Final = ("trainer_service", "torch", "transformers", "peft")
_END_SECONDS: Final = 5.0
_ENVIRONMENT: Final = {
    "OMP_WAIT_POLICY": "PASSIVE",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model wrote. `truncated`: it would have gone on."""

    text: str
    token_count: int
    truncated: bool


class ChatProcess:
    """A model in a process; while the context is open it can be asked."""

    def __init__(self, folder: Path, *, max_tokens: int, temperature: float, seed: int) -> None:
        """Raises FailedPreconditionError where what it takes is not installed, and InvalidArgumentError where
        `folder` holds no model.
        """
        missing = [name for name in _NEEDED if find_spec(name) is None]
        if missing:
            raise FailedPreconditionError(
                f"talking to a model needs {', '.join(missing)}, which is not installed here: pip install "
                "'plaudit[trainer]'; or download the model, and load it with what you have",
                reason="EXTRA_MISSING",
            )
        if not any((folder / name).is_file() for name in ("config.json", "adapter_config.json")):
            raise InvalidArgumentError.of(
                "model", f"{shown(str(folder))} holds no config.json; name a model, or the folder of one"
            )
        self._command = [
            *(sys.executable, "-m", "trainer_service.training.chat_process", "--model", str(folder)),
            *("--max-tokens", str(max_tokens), "--temperature", str(temperature), "--seed", str(seed)),
        ]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # What interrupts us is not to leave a traceback of it behind; it ends with its stdin.
            start_new_session=True,
            env={**os.environ, **_ENVIRONMENT},
        )
        try:
            next(self._messages("ready"), None)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._process
        assert process is not None
        if kind is not None:
            process.kill()
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def ask(self, messages: Sequence[dict[str, str]], on_text: Callable[[str], object]) -> Answer:
        """Has a conversation answered; `on_text` is told what is written as it comes.

        Raises FailedPreconditionError (reason CHAT_FAILED) where there is no answer.
        """
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"messages": list(messages)}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        text = ""
        for message in self._messages("end"):
            if "end" in message:
                return Answer(text, message["end"]["token_count"], message["end"]["truncated"])
            text += message["text"]
            on_text(message["text"])
        raise self._ended()

    def _messages(self, last: str) -> Iterator[dict[str, Any]]:
        """What the process says, up to the message that has `last`."""
        assert self._process is not None and self._process.stdout is not None
        for line in self._process.stdout:
            message: dict[str, Any] = json.loads(line)
            if "error" in message:
                raise FailedPreconditionError(message["error"], reason="CHAT_FAILED")
            yield message
            if last in message:
                return
        raise self._ended()

    def _ended(self) -> FailedPreconditionError:
        assert self._process is not None
        status = self._process.wait(_END_SECONDS)
        how = f"by signal {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
        return FailedPreconditionError(
            f"the process that holds the model has ended {how}; if memory is short, take a smaller model",
            reason="CHAT_FAILED",
        )
