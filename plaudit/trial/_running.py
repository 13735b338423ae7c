"""Runs the built-in reward server for a trial, and the trial."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

from plaudit.errors import FieldViolation, InvalidArgumentError
from plaudit.rpc import open_channel
from plaudit.service import ServiceCommand, Supervisor, configured
from plaudit.trial._asking import Asker, Trial, try_function
from plaudit.trial._findings import Finding, findings_of
from plaudit.trial._results import RewardTrial, results_of
from plaudit.trial._rows import TrialRow, read_rows

_SOURCE_FIELD: Final = "rewards[0].config.source"
_PRINTED: Final = "a reward printed"
_IMPORT_SECONDS: Final = 120.0


async def try_reward_async(
    path: Path | str,
    rows: Path | str,
    *,
    function: str | None = None,
    completions_column: str | None = None,
    file_format: Literal["trl", "miles"] | None = None,
    form: Literal["text", "messages"] = "text",
    batch_size: int = 1,
    timeout_seconds: float = 10.0,
    slow_seconds: float = 1.0,
    max_rows: int = 100,
    allow_unsandboxed: bool = False,
) -> RewardTrial:
    """As `try_reward`, for asyncio."""
    file = Path(path)
    source, read = _read(file, Path(rows), completions_column, max_rows)
    config = {
        "source": source,
        "filename": _filename(file),
        "function": function,
        "format": file_format,
        "form": form,
        "batch_size": batch_size,
        "timeout_seconds": timeout_seconds,
    }
    with tempfile.TemporaryDirectory(prefix="plaudit-reward-trial-") as name:
        folder = Path(name)
        try:
            trial = await _run(folder, config, read, allow_unsandboxed=allow_unsandboxed)
        except InvalidArgumentError as error:
            if any(violation.field != _SOURCE_FIELD for violation in error.violations):
                raise
            findings = [Finding("not_loaded", violation.message) for violation in error.violations]
            trial = Trial([])
        else:
            findings = findings_of(trial, slow_seconds)
        return results_of(str(file), trial, findings, _prints(folder))


def try_reward(
    path: Path | str,
    rows: Path | str,
    *,
    function: str | None = None,
    completions_column: str | None = None,
    file_format: Literal["trl", "miles"] | None = None,
    form: Literal["text", "messages"] = "text",
    batch_size: int = 1,
    timeout_seconds: float = 10.0,
    slow_seconds: float = 1.0,
    max_rows: int = 100,
    allow_unsandboxed: bool = False,
) -> RewardTrial:
    """Tries the reward function in a Python file on rows, as the built-in server would run it in a job.

    `rows` is a file of JSON lines: `prompt`, any other columns, and `completions` to score; a row without any
    is scored on texts of ours. `function` is needed where the file defines several; `file_format` defaults to
    what its signature says. It runs in a reward server of its own on this machine, and needs no gateway.
    `timeout_seconds` is for one call of at most `batch_size` completions.

    Raises InvalidArgumentError where a file, a row or a parameter cannot be used (all of it at once), and
    UnavailableError where the server does not start. Not within an event loop: there `try_reward_async`.
    """
    return asyncio.run(
        try_reward_async(
            path,
            rows,
            function=function,
            completions_column=completions_column,
            file_format=file_format,
            form=form,
            batch_size=batch_size,
            timeout_seconds=timeout_seconds,
            slow_seconds=slow_seconds,
            max_rows=max_rows,
            allow_unsandboxed=allow_unsandboxed,
        )
    )


async def _run(
    folder: Path, config: dict[str, Any], rows: Sequence[TrialRow], *, allow_unsandboxed: bool
) -> Trial:
    sandbox = configured("reward", "sandbox")
    if allow_unsandboxed and (sandbox is None or isinstance(sandbox, dict)):
        sandbox = {**(sandbox or {}), "allow_unsandboxed": True}
    own_file = folder / "plaudit.toml"
    own_file.touch()
    environment = {
        "PLAUDIT_DATA_DIR": str(folder / "data"),
        # Of this machine's reward server the trial has the sandbox alone: it needs no judges, and nobody else
        # is to call it.
        "PLAUDIT_CONFIG": str(own_file),
        "PLAUDIT_REWARD_JUDGE": "{}",
        "PLAUDIT_REWARD_SECURITY": "{}",
        # A source that imports much is waited for here; a session would come again.
        "PLAUDIT_REWARD_LIMITS": json.dumps({"check_timeout_seconds": _IMPORT_SECONDS}),
        **({"PLAUDIT_REWARD_SANDBOX": json.dumps(sandbox)} if sandbox is not None else {}),
    }
    supervisor = Supervisor(folder)
    command = ServiceCommand(
        "reward", "reward_service", {"address": "--address"}, {"address": "127.0.0.1:0"}, environment
    )
    try:
        address = (await supervisor.start(command))["address"]
        async with open_channel(address) as channel:
            asker = Asker(channel, config)
            await asker.check()
            return await try_function(asker, rows, calls_have_several=config["batch_size"] > 1)
    finally:
        await supervisor.stop()


def _read(path: Path, rows: Path, completions: str | None, most: int) -> tuple[str, Sequence[TrialRow]]:
    """The source and the rows; everything that is wrong with either at once."""
    violations: list[FieldViolation] = []
    source, read = "", list[TrialRow]()
    try:
        source = _source(path)
    except InvalidArgumentError as error:
        violations.extend(error.violations)
    try:
        read = read_rows(rows, completions, most)
    except InvalidArgumentError as error:
        violations.extend(error.violations)
    if violations:
        raise InvalidArgumentError(violations)
    return source, read


def _source(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidArgumentError.of("path", f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InvalidArgumentError.of("path", f"{path} is no UTF-8 text: {error}") from None


def _filename(path: Path) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "_.-") else "_" for c in path.name)[:128]


def _prints(folder: Path) -> list[str]:
    """What the function printed, from the service's log."""
    prints = []
    for line in (folder / "reward.log").read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and record.get("event") == _PRINTED:
            prints.append(str(record.get("text")))
    return prints
