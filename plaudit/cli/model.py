"""`plaudit model`: list, get, export, download, delete, chat."""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from plaudit.cli._arguments import ModelId
from plaudit.cli._chat import Answer, ChatProcess
from plaudit.cli._output import (
    AddressOption,
    JsonOption,
    connect,
    print_fields,
    print_json,
    print_json_line,
    print_table,
    printable,
)
from plaudit.errors import InvalidArgumentError
from plaudit.types.texts import shown

if TYPE_CHECKING:
    from plaudit.client import Client, models

_FOLDER_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,254}")

app = typer.Typer(help="Trained models: list, export, download, talk to.", no_args_is_help=True)


@app.command("list")
def list_models(
    job: Annotated[str, typer.Option(metavar="JOB", help="Only models of this job.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="Most models to show.")] = 20,
    as_json: JsonOption = False,
    address: AddressOption = None,
) -> None:
    """List models, newest first."""
    with connect(address) as client:
        found = list(itertools.islice(client.models.list(job_id=job), limit))
    if as_json:
        print_json(found)
        return
    print_table(
        ("model", "name", "checkpoint", "kind", "type", "bytes", "status", "created"),
        (
            (
                *(m.id, m.name, f"{m.job_id}@{m.step}", m.kind, m.dtype, m.size_bytes or None),
                *(f"{m.status.value}: {m.status_detail}" if m.status_detail else m.status, m.created_at),
            )
            for m in found
        ),
    )


@app.command()
def get(model: ModelId, as_json: JsonOption = False, address: AddressOption = None) -> None:
    """Show a model."""
    with connect(address) as client:
        _print(client.models.get(model), as_json)


@app.command()
def export(
    checkpoint: Annotated[
        str, typer.Argument(metavar="JOB[@STEP]", help="A checkpoint; without a step, the newest of the job.")
    ],
    form: Annotated[
        Literal["merged", "adapter"],
        typer.Option("--as", help="The whole model, or the adapters of a LoRA job alone."),
    ] = "merged",
    dtype: Annotated[Literal["float32", "bfloat16"], typer.Option(help="Type of the weights.")] = "float32",
    wait: Annotated[bool, typer.Option(help="Wait until it is done.")] = True,
    as_json: JsonOption = False,
    address: AddressOption = None,
) -> None:
    """Export a checkpoint as a model; a completed job's last one is exported by itself."""
    with connect(address) as client:
        begun = client.models.export(checkpoint, form=form, dtype=dtype)
        told = [""]

        def tell(detail: str) -> None:
            if detail not in told:
                told.append(detail)
                typer.echo(printable(detail), err=True)

        model = client.models.wait(begun.id, on_detail=tell) if wait else begun
    _print(model, as_json)


@app.command()
def download(
    model: ModelId,
    folder: Annotated[
        Path | None, typer.Option("--to", metavar="FOLDER", help="Where to. Default: a folder of its name.")
    ] = None,
    form: Annotated[
        Literal["merged", "adapter"] | None,
        typer.Option("--as", help="In this form; one that is not there yet is exported first."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite files of another model that are in the folder.")
    ] = False,
    as_json: JsonOption = False,
    address: AddressOption = None,
) -> None:
    """Download a model. What is there of it is built upon; every file is verified."""
    with connect(address) as client:
        found = client.models.get(model)
        if form is not None and (form == "adapter") != (found.kind == "adapter"):
            begun = client.models.export(f"{found.job_id}@{found.step}", form=form)
            found = client.models.wait(begun.id, on_detail=lambda detail: None)
        target = folder or Path(_own_folder(found.name))
        _download(client, found, target, overwrite=force)
    if as_json:
        print_json({"model": found, "folder": str(target.resolve())})
    else:
        typer.echo(f"{found.id} is in {printable(str(target))}")


@app.command()
def delete(model: ModelId, address: AddressOption = None) -> None:
    """Delete a model and its files; its job and checkpoints stay."""
    with connect(address) as client:
        client.models.delete(model)
    typer.echo(printable(f"{model} is deleted"))


@app.command()
def chat(
    model: Annotated[str, typer.Argument(metavar="MODEL|FOLDER", help="Name or id of a model, or a folder.")],
    prompt: Annotated[
        str | None, typer.Option(help="Answer this and exit. Default: read prompts, one a line, from stdin.")
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, max=1_000_000, help="Most tokens of an answer.")] = 256,
    temperature: Annotated[
        float, typer.Option(min=0.0, max=100.0, help="0: always the most likely token.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of the sampling.")] = 0,
    as_json: JsonOption = False,
    address: AddressOption = None,
) -> None:
    """Talk to a model on this machine, with plain transformers (needs the trainer extra)."""
    folder = _folder_of(model, address)
    with ChatProcess(folder, max_tokens=max_tokens, temperature=temperature, seed=seed) as process:
        if prompt is not None:
            _answer(process, [{"role": "user", "content": prompt}], as_json)
            return
        keeps_turns = sys.stdin.isatty()
        if keeps_turns:
            typer.echo("an empty line begins a new conversation; the end of input (Ctrl-D) ends it", err=True)
        turns: list[dict[str, str]] = []
        for line in _lines(keeps_turns):
            # Lines of a file are questions of their own; a person goes on with what was said.
            turns = turns if keeps_turns and line else []
            if line:
                turns.append({"role": "user", "content": line})
                answer = _answer(process, turns, as_json)
                turns.append({"role": "assistant", "content": answer.text})


def _lines(is_terminal: bool) -> Iterator[str]:
    while True:
        if is_terminal:
            sys.stderr.write("> ")
            sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            return
        yield line.rstrip("\n")


def _answer(process: ChatProcess, turns: list[dict[str, str]], as_json: bool) -> Answer:
    def write(text: str) -> None:
        sys.stdout.write(printable(text))
        sys.stdout.flush()

    answer = process.ask(turns, (lambda text: None) if as_json else write)
    if as_json:
        print_json_line({"prompt": turns[-1]["content"], **_fields(answer)})
    else:
        sys.stdout.write("\n")
        sys.stdout.flush()
        if answer.truncated:
            typer.echo(f"(cut after {answer.token_count} tokens)", err=True)
    return answer


def _fields(answer: Answer) -> dict[str, object]:
    return {"text": answer.text, "token_count": answer.token_count, "truncated": answer.truncated}


def _folder_of(model: str, address: str | None) -> Path:
    """The folder itself, or one of this user's cache with the model that the gateway has."""
    folder = Path(model).expanduser()
    if folder.is_dir():
        return folder
    if "/" in model:
        raise InvalidArgumentError.of(
            "model", f"{shown(model)} is no folder, and models have no / in their names"
        )
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "plaudit" / "models"
    with connect(address) as client:
        found = client.models.get(model)
        kept = cache / _own_folder(found.id)
        _download(client, found, kept, overwrite=True)
    return kept


def _own_folder(name: str) -> str:
    """The name, which the gateway gave, where it can be that of a folder in another one."""
    if not _FOLDER_NAME.fullmatch(name):
        raise InvalidArgumentError.of(
            "model",
            f"the gateway calls it {shown(name)}, which is no name of a folder; download it with --to FOLDER",
        )
    return name


def _download(client: Client, model: models.Model, folder: Path, *, overwrite: bool) -> None:
    if not sys.stderr.isatty():
        client.models.download(model.id, folder, overwrite=overwrite)
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, transient=True) as bar:
        task = bar.add_task(printable(model.name), total=model.size_bytes)
        client.models.download(
            model.id,
            folder,
            progress=lambda seen: bar.update(task, completed=seen.received_bytes),
            overwrite=overwrite,
        )


def _print(model: models.Model, as_json: bool) -> None:
    if as_json:
        print_json(model)
        return
    print_fields(
        {
            "model": model.id,
            "name": model.name,
            "status": model.status,
            "detail": model.status_detail,
            "checkpoint": f"{model.job_id}@{model.step}",
            "base model": model.base_model,
            "kind": model.kind,
            "type": model.dtype,
            "bytes": model.size_bytes or None,
            "files": ", ".join(file.path for file in model.files),
            "created": model.created_at,
        }
    )
