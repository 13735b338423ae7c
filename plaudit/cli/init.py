"""`plaudit init`: files to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from plaudit.cli._output import printable
from plaudit.cli._starter import starter_files
from plaudit.errors import FailedPreconditionError


def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to; it is made.")] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that are there.")] = False,
) -> None:
    """Write a job file with every field explained, sample rows, and a reward function to begin with."""
    files = {folder / name: text for name, text in starter_files().items()}
    there = [str(path) for path in files if path.exists()]
    if there and not force:
        raise FailedPreconditionError(
            f"nothing was written, as there is already {', '.join(there)}; name another folder, or overwrite "
            "with --force",
            reason="FILE_EXISTS",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise FailedPreconditionError(
            f"{folder} cannot be written to ({error.strerror}); name another folder", reason="FOLDER_UNUSABLE"
        ) from None
    job, rows, reward = files
    typer.echo(printable("\n".join(map(str, files))))
    typer.echo("next:", err=True)
    typer.echo(printable(f"  plaudit reward test {reward} --data {rows}"), err=True)
    typer.echo(printable(f"  plaudit job submit {job} --watch"), err=True)
