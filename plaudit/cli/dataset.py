"""`plaudit dataset`: upload, connect, list, get, rows, tokens, delete."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from plaudit.cli._arguments import DatasetId
from plaudit.cli._output import (
    AddressOption,
    JsonOption,
    connect,
    print_fields,
    print_json,
    print_table,
    printable,
)
from plaudit.errors import FieldViolation, InvalidArgumentError
from plaudit.types.texts import shown

if TYPE_CHECKING:
    from plaudit.client import models

app = typer.Typer(help="Datasets.", no_args_is_help=True)

_CELL_CHARACTERS: Final = 80


@app.command()
def upload(
    file: Annotated[Path, typer.Argument(help="JSONL, a JSON list, CSV or Parquet; each row with a prompt.")],
    name: Annotated[
        str | None, typer.Option(help="Name. Default: the file's name without its ending.")
    ] = None,
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format", help="jsonl, json, csv or parquet. Default: what the file's ending or beginning says."
        ),
    ] = None,
    as_json: JsonOption = False,
    address: AddressOption = None,
) -> None:
    """Upload a file; the same bytes give the same dataset."""
    with connect(address) as client:
        dataset = client.datasets.upload(file, name=name, file_format=file_format)
    _print(dataset, as_json)
    if dataset.name != (file.stem if name is None else name):
        typer.echo(f"these bytes were there already, as dataset {dataset.name}", err=True)


@app.command("connect")
def connect_source(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new dataset.")],
    hub: Annotated[str | None, typer.Option(help="Id of a dataset of the Hugging Face hub.")] = None,
    path: Annotated[
        str | None, typer.Option(help="Absolute path of a file, on the gateway's machine.")
    ] = None,
    split: Annotated[str, typer.Option(help="With --hub: split.")] = "train",
    config: Annotated[str | None, typer.Option(help="With --hub: configuration (subset).")] = None,
    mapping: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="OLD=NEW",
            help="With --hub: new name of a column, as question=prompt. Repeatable.",
        ),
    ] = None,
    token: Annotated[
        str | None, typer.Option(help="With --hub: name of a credential that the gateway has.")
    ] = None,
    file_format: Annotated[
        str | None, typer.Option("--format", help="With --path: jsonl, json, csv or parquet.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only read the first rows; store nothing.")
    ] = False,
    as_json: JsonOption = False,
    address: AddressOption = None,
) -> None:
    """Make a dataset of one of the hub, or of a file on the gateway's machine."""
    if wrong := list(_wrong_source(hub, path, mapping or ())):
        raise InvalidArgumentError(wrong)
    source: dict[str, Any] = {
        "huggingface_dataset": hub,
        "split": split,
        "config_name": config,
        "column_mapping": dict(map(_renaming, mapping or ())),
        "token": token,
        "path": path,
        "file_format": file_format,
    }
    with connect(address) as client:
        if not dry_run:
            _print(client.datasets.connect(name, **source), as_json)
            return
        tried = client.datasets.validate(**source)
    if as_json:
        print_json(tried)
    else:
        rows = "" if tried.row_count is None else f"{tried.row_count} rows, "
        typer.echo(printable(tried.error or f"{rows}columns {', '.join(tried.columns)}"))
    raise typer.Exit(1 if tried.error else 0)


@app.command("list")
def list_datasets(as_json: JsonOption = False, address: AddressOption = None) -> None:
    """List datasets, newest first."""
    with connect(address) as client:
        found = list(client.datasets.list())
    if as_json:
        print_json(found)
        return
    print_table(
        ("dataset", "name", "rows", "columns", "created"),
        ((d.id, d.name, d.row_count, ", ".join(d.columns), d.created_at) for d in found),
    )


@app.command()
def get(dataset_id: DatasetId, as_json: JsonOption = False, address: AddressOption = None) -> None:
    """Show a dataset."""
    with connect(address) as client:
        _print(client.datasets.get(dataset_id), as_json)


@app.command()
def rows(
    dataset_id: DatasetId,
    limit: Annotated[int, typer.Option(min=1, help="Most rows to show.")] = 10,
    as_json: JsonOption = False,
    address: AddressOption = None,
) -> None:
    """Show the first rows of a dataset, as jobs read them."""
    with connect(address) as client:
        found = list(client.datasets.rows(dataset_id, limit=limit))
    if as_json:
        print_json(found)
        return
    names = list(dict.fromkeys(name for row in found for name in row.columns))
    print_table(
        ("row", "prompt", *names),
        ((row.number, _text(row.prompt), *(_text(row.columns.get(name)) for name in names)) for row in found),
    )


@app.command()
def tokens(
    dataset_id: DatasetId,
    model: Annotated[str, typer.Option(help="Model whose tokenizer and chat template count, as in a job.")],
    max_prompt_length: Annotated[
        int | None, typer.Option(min=1, help="Tokens above which a job would shorten. Default: a job's.")
    ] = None,
    as_json: JsonOption = False,
    address: AddressOption = None,
) -> None:
    """Count the tokens of a dataset's prompts as a model reads them."""
    with connect(address) as client:
        found = client.datasets.token_statistics(dataset_id, model, max_prompt_length=max_prompt_length)
    if as_json:
        print_json(found)
        return
    too_long = None
    if found.first_too_long_row is not None:
        too_long = f"{found.too_long_count}, the first in row {found.first_too_long_row + 1}"
    print_fields(
        {
            "prompts": found.count,
            "shortest": found.min,
            "median": found.median,
            "95 %": found.p95,
            "longest": found.max,
            "limit": found.max_prompt_length,
            "above the limit": found.above_limit_count,
            "too long however cut": too_long,
            "model revision": found.model_revision,
        }
    )


@app.command()
def delete(dataset_id: DatasetId, address: AddressOption = None) -> None:
    """Delete a dataset and its file."""
    with connect(address) as client:
        client.datasets.delete(dataset_id)
    typer.echo(f"{dataset_id} is deleted")


def _wrong_source(hub: str | None, path: str | None, mapping: Sequence[str]) -> Iterator[FieldViolation]:
    if path is not None:
        if hub is not None:
            yield FieldViolation("--hub", "goes not with --path; leave one of them out")
        if not path.startswith("/"):
            yield FieldViolation(
                "--path", f"{shown(path)} is refused: write it in full, from /, as on the gateway's machine"
            )
    for entry in mapping:
        if not all(_renaming(entry)):
            yield FieldViolation("--map", f"{shown(entry)} is refused: write OLD=NEW")


def _renaming(entry: str) -> tuple[str, str]:
    old, _, new = entry.partition("=")
    return old, new


def _text(value: object) -> str:
    """A prompt's or a column's value on one line."""
    if isinstance(value, list) and value and all(isinstance(turn, dict) for turn in value):
        value = "  ".join(f"{turn.get('role')}: {turn.get('content')}" for turn in value)
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
    line = " ".join(text.split())
    return line if len(line) <= _CELL_CHARACTERS else f"{line[: _CELL_CHARACTERS - 1]}…"


def _print(dataset: models.Dataset, as_json: bool) -> None:
    if as_json:
        print_json(dataset)
        return
    print_fields(
        {
            "dataset": dataset.id,
            "name": dataset.name,
            "rows": dataset.row_count,
            "columns": ", ".join(dataset.columns),
            "methods": ", ".join(dataset.methods),
            "source": dataset.source_uri or None,
            "bytes": dataset.size_bytes,
            "created": dataset.created_at,
        }
    )
