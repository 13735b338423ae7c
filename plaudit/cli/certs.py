"""`plaudit certs`: a CA for a private network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plaudit import service
from plaudit.cli._output import JsonOption, print_fields, print_json
from plaudit.errors import FailedPreconditionError

if TYPE_CHECKING:
    from plaudit.cli._certificates import Authority

app = typer.Typer(help="Certificates of a private network.", no_args_is_help=True)

FolderOption = Annotated[
    Path | None, typer.Option(help="Folder of the CA. Default: certs below the data directory.")
]
CaOption = Annotated[str, typer.Option("--ca", metavar="NAME", help="Name of the CA.")]


@app.command()
def init(folder: FolderOption = None, ca: CaOption = "plaudit", as_json: JsonOption = False) -> None:
    """Make a CA: its certificate is for all machines, its key stays here. One that is there is kept."""
    authority = _authority(folder, ca)
    is_new = authority.make()
    found = {
        "certificate": str(authority.certificate_file),
        "key": str(authority.key_file),
        "state": "new" if is_new else "kept: it was there",
    }
    if as_json:
        print_json(found)
    else:
        print_fields(found)


@app.command()
def issue(
    name: Annotated[
        str, typer.Argument(help="Name of the files: NAME.cert.pem and NAME.key.pem.", show_default=False)
    ],
    host: Annotated[
        list[str],
        typer.Option("--host", metavar="HOST", help="Name or IP address by which it is dialled; repeatable."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Where they are written. Default: the folder of the CA.")
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=3650, help="How long it is good for.")] = 397,
    folder: FolderOption = None,
    ca: CaOption = "plaudit",
    as_json: JsonOption = False,
) -> None:
    """Make a certificate for a server or a client, signed by the CA, with the CA's own beside it.

    One that is there for the same hosts is kept until it has 30 days left.
    """
    authority = _authority(folder, ca)
    issued = authority.issue(name, host, out or authority.certificate_file.parent, days=days)
    found = {
        "certificate": str(issued.certificate),
        "key": str(issued.key),
        "ca": str(issued.ca),
        "expires": issued.expires_at,
        "state": "new" if issued.is_new else "kept: it is good for longer",
    }
    if as_json:
        print_json(found)
    else:
        print_fields(found)


def _authority(folder: Path | None, name: str) -> Authority:
    try:
        from plaudit.cli._certificates import Authority
    except ImportError:
        raise FailedPreconditionError(
            "certificates are made where the gateway is installed: pip install 'plaudit[gateway]'"
        ) from None
    return Authority((folder or service.default_data_dir() / "certs").expanduser().absolute(), name)
