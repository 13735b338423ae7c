"""`plaudit reward test`: tries a reward function before a job trusts it, without a gateway."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from plaudit import service
from plaudit.cli._output import JsonOption, print_fields, print_json, print_table, printable
from plaudit.errors import FieldViolation, InvalidArgumentError

if TYPE_CHECKING:
    from plaudit.trial import RewardTrial

_SHOWN_ROWS: Final = 20
_SHOWN_PRINTS: Final = 20
_OPTIONS: Final = {"path": "FILE.py", "rows": "--data"}
"""What the command line calls the parameters of a trial."""


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
    from plaudit.trial import try_reward

    service.configure_logging("reward test", "error")
    path, _, name = file.partition(":")
    try:
        trial = try_reward(
            path,
            data,
            function=name or None,
            completions_column=completions,
            file_format=format,
            form=form,
            batch_size=batch_size,
            timeout_seconds=timeout,
            slow_seconds=slow,
            max_rows=max_rows,
            allow_unsandboxed=unsandboxed,
        )
    except InvalidArgumentError as error:
        raise InvalidArgumentError(
            [
                FieldViolation(_OPTIONS.get(wrong.field, wrong.field), wrong.message)
                for wrong in error.violations
            ]
        ) from None
    if as_json:
        print_json(
            {
                "file": file,
                "rows": trial.rows,
                "summary": trial.summary,
                "warnings": trial.findings,
                "prints": trial.prints,
            }
        )
    else:
        _show(trial)
    raise typer.Exit(1 if trial.findings else 0)


def _show(trial: RewardTrial) -> None:
    if trial.rows:
        names = ("line", "completions", "count", "min", "mean", "max", "std", "not_applicable", "failed")
        print_table(
            [name.replace("_", " ") for name in names],
            ([getattr(row, name) for name in names] for row in trial.rows[:_SHOWN_ROWS]),
        )
        if len(trial.rows) > _SHOWN_ROWS:
            typer.echo(f"… and {len(trial.rows) - _SHOWN_ROWS} rows more")
        typer.echo("")
        print_fields({name.replace("_", " "): value for name, value in asdict(trial.summary).items()})
    if trial.prints:
        typer.echo("\nIt printed:")
        for line in trial.prints[:_SHOWN_PRINTS]:
            typer.echo(f"  {printable(line)}")
        if len(trial.prints) > _SHOWN_PRINTS:
            typer.echo(f"  … and {len(trial.prints) - _SHOWN_PRINTS} lines more")
    typer.echo("")
    for finding in trial.findings:
        typer.echo(f"warning: {finding.kind}: {printable(finding.message)}")
    if not trial.findings:
        typer.echo("Nothing was found that speaks against it.")
