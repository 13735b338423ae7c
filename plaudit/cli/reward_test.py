"""`plaudit reward test`: tries a reward function before a job trusts it, without a gateway."""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from plaudit.cli._output import JsonOption, print_fields, print_json, print_table, printable
from plaudit.cli._supervisor import ServiceCommand, Supervisor
from plaudit.cli._trial import Asker, Trial, try_function
from plaudit.cli._trial_findings import Finding, findings_of, latencies, spreads, value_of
from plaudit.cli._trial_rows import TrialRow, read_rows
from plaudit.errors import FieldViolation, InvalidArgumentError
from plaudit.rpc import open_channel
from plaudit.service import configure_logging
from plaudit.types.scoring import Failed, NotApplicable

_SOURCE_FIELD: Final = "rewards[0].config.source"
_PRINTED: Final = "a reward printed"
_IMPORT_SECONDS: Final = 120.0
_SHOWN_ROWS: Final = 20
_SHOWN_PRINTS: Final = 20


def test(
    file: Annotated[
        str, typer.Argument(metavar="FILE.py[:NAME]", help="File of the function, and its name if need be.")
    ],
    data: Annotated[
        Path,
        typer.Option(
            help="Rows as JSON lines: prompt, any other columns, and the completions to score. A row without "
            "completions is scored on texts of ours."
        ),
    ],
    completions: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Column of the completions. Default: completions, or completion."
        ),
    ] = None,
    format: Annotated[  # the option's name
        Literal["trl", "miles"] | None, typer.Option(help="Signature. Default: as the function has it.")
    ] = None,
    form: Annotated[
        Literal["text", "messages"], typer.Option(help="How prompts and completions are given.")
    ] = "text",
    batch_size: Annotated[int, typer.Option(min=1, max=1024, help="Most completions in a call.")] = 1,
    timeout: Annotated[float, typer.Option(min=0.01, max=600, help="Seconds that a call may take.")] = 10.0,
    slow: Annotated[
        float, typer.Option(min=0.0, help="Seconds a completion from which on the reward is called slow.")
    ] = 1.0,
    max_rows: Annotated[int, typer.Option(min=1, max=10_000, help="Most rows to read.")] = 100,
    unsandboxed: Annotated[
        bool, typer.Option("--unsandboxed", help="Run the function as yourself where bubblewrap is missing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Try a reward function on rows, as the built-in server would run it, and say what speaks against it.

    Exit status: 0 nothing was found, 1 something was, 2 usage.
    """
    configure_logging("reward test", "error")
    path, _, name = file.partition(":")
    source, rows = _read(Path(path), data, completions, max_rows)
    config: dict[str, Any] = {
        "source": source,
        "filename": _filename(Path(path)),
        "function": name or None,
        "format": format,
        "form": form,
        "batch_size": batch_size,
        "timeout_seconds": timeout,
    }
    with tempfile.TemporaryDirectory(prefix="plaudit-reward-test-") as folder:
        try:
            trial = asyncio.run(_run(Path(folder), config, rows, unsandboxed=unsandboxed))
        except InvalidArgumentError as error:
            if any(violation.field != _SOURCE_FIELD for violation in error.violations):
                raise
            findings = [Finding("not_loaded", violation.message) for violation in error.violations]
            trial = Trial([])
        else:
            findings = findings_of(trial, slow)
        prints = _prints(Path(folder))
    if as_json:
        print_json(_report(file, trial, findings, prints))
    else:
        _show(trial, findings, prints)
    raise typer.Exit(1 if findings else 0)


async def _run(folder: Path, config: dict[str, Any], rows: Sequence[TrialRow], *, unsandboxed: bool) -> Trial:
    environment = {
        "PLAUDIT_DATA_DIR": str(folder / "data"),
        # A source that imports much is waited for here; a session would come again.
        "PLAUDIT_REWARD_LIMITS": json.dumps({"check_timeout_seconds": _IMPORT_SECONDS}),
    }
    if unsandboxed:
        environment["PLAUDIT_REWARD_SANDBOX"] = json.dumps({"allow_unsandboxed": True})
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


def _read(path: Path, data: Path, completions: str | None, max_rows: int) -> tuple[str, Sequence[TrialRow]]:
    """The source and the rows; everything that is wrong with either at once."""
    violations: list[FieldViolation] = []
    source, rows = "", list[TrialRow]()
    try:
        source = _source(path)
    except InvalidArgumentError as error:
        violations.extend(error.violations)
    try:
        rows = read_rows(data, completions, max_rows)
    except InvalidArgumentError as error:
        violations.extend(error.violations)
    if violations:
        raise InvalidArgumentError(violations)
    return source, rows


def _source(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidArgumentError.of("FILE.py", f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InvalidArgumentError.of("FILE.py", f"{path} is no UTF-8 text: {error}") from None


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


def _table(trial: Trial) -> list[dict[str, Any]]:
    """A row of the file a row."""
    table: dict[int, dict[str, Any]] = {}
    values: dict[int, list[float]] = {}
    for ask, said in zip(trial.asks, trial.first, strict=True):
        line = ask.row.line
        row = table.setdefault(
            line,
            {
                "line": line,
                "completions": "probes" if ask.row.are_probes else "own",
                "count": 0,
                "not_applicable": 0,
                "failed": 0,
            },
        )
        row["count"] += 1
        row["not_applicable"] += isinstance(said.outcome, NotApplicable)
        row["failed"] += isinstance(said.outcome, Failed)
        value = value_of(said)
        if value is not None:
            values.setdefault(line, []).append(value)
    for line, row in table.items():
        scores = values.get(line, [])
        row["min"] = min(scores, default=None)
        row["mean"] = statistics.fmean(scores) if scores else None
        row["max"] = max(scores, default=None)
        row["std"] = statistics.stdev(scores) if len(scores) > 1 else None
    return list(table.values())


def _summary(trial: Trial) -> Mapping[str, Any]:
    scores = [value for said in trial.first if (value := value_of(said)) is not None]
    seconds = latencies(trial)
    within = spreads(trial)
    return {
        "completions": len(trial.asks),
        "scored": len(scores),
        "not_applicable": sum(isinstance(said.outcome, NotApplicable) for said in trial.first),
        "failed": sum(isinstance(said.outcome, Failed) for said in trial.first),
        "mean": statistics.fmean(scores) if scores else None,
        "std_within_prompts": statistics.fmean(within) if within else None,
        "latency_median_seconds": statistics.median(seconds) if seconds else None,
        "latency_max_seconds": max(seconds, default=None),
        "completions_per_second": len(trial.asks) / trial.seconds if trial.seconds else None,
    }


def _report(file: str, trial: Trial, findings: Sequence[Finding], prints: Sequence[str]) -> dict[str, Any]:
    return {
        "file": file,
        "rows": _table(trial),
        "summary": _summary(trial),
        "warnings": findings,
        "prints": prints,
    }


def _show(trial: Trial, findings: Sequence[Finding], prints: Sequence[str]) -> None:
    table = _table(trial)
    if table:
        names = ("line", "completions", "count", "min", "mean", "max", "std", "not_applicable", "failed")
        print_table(
            [name.replace("_", " ") for name in names],
            ([row[name] for name in names] for row in table[:_SHOWN_ROWS]),
        )
        if len(table) > _SHOWN_ROWS:
            typer.echo(f"… and {len(table) - _SHOWN_ROWS} rows more")
        typer.echo("")
        print_fields({name.replace("_", " "): value for name, value in _summary(trial).items()})
    if prints:
        typer.echo("\nIt printed:")
        for line in prints[:_SHOWN_PRINTS]:
            typer.echo(f"  {printable(line)}")
        if len(prints) > _SHOWN_PRINTS:
            typer.echo(f"  … and {len(prints) - _SHOWN_PRINTS} lines more")
    typer.echo("")
    for finding in findings:
        typer.echo(f"warning: {finding.kind}: {printable(finding.message)}")
    if not findings:
        typer.echo("Nothing was found that speaks against it.")
