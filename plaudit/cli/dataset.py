"""`plaudit dataset`: upload, list, get, delete."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from plaudit.cli._output import AddressOption, JsonOption, connect, print_fields, print_json, print_table
from plaudit.client import models

app = typer.Typer(help="Datasets.", no_args_is_help=True)

DatasetId = Annotated[str, typer.Argument(metavar="DATASET", help="Id or name of the dataset.")]


@app.command()
def upload(
    file: Annotated[Path, typer.Argument(help="JSONL file: one object a line, with a prompt.")],
    name: Annotated[
        str | None, typer.Option(help="Name. Default: the file's name without its ending.")
    ] = None,
    as_json: JsonOption = False,
    address: AddressOption = None,
) -> None:
    """Upload a file; the same bytes give the same dataset."""
    with connect(address) as client:
        dataset = client.datasets.upload(file, name=name)
    _print(dataset, as_json)
    if dataset.name != (file.stem if name is None else name):
        typer.echo(f"these bytes were there already, as dataset {dataset.name}", err=True)


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
def delete(dataset_id: DatasetId, address: AddressOption = None) -> None:
    """Delete a dataset and its file."""
    with connect(address) as client:
        client.datasets.delete(dataset_id)
    typer.echo(f"{dataset_id} is deleted")


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
            "bytes": dataset.size_bytes,
            "created": dataset.created_at,
        }
    )
