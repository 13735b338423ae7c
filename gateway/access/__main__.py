"""`python -m gateway.access`: makes a token in the data directory, for whoever is on the gateway's machine.

The first admin's token comes from here, and one where all were lost. The gateway may be running: it looks
secrets that it does not know up in its store.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from datetime import datetime
from pathlib import Path

from gateway.access.tokens import TokenBook
from gateway.store import STORE_FILE, Store
from plaudit.errors import PlauditError
from plaudit.service import private_folder, unusable_folder
from plaudit.types.roles import Role


async def make(folder: Path, name: str, role: Role, expires_at: datetime | None) -> dict[str, str | None]:
    """Makes a token in the store of `folder`; returns its fields and its secret. Raises PlauditError."""
    async with Store.open(folder / STORE_FILE) as store:
        book = TokenBook(store, on_revoked=lambda token: None)
        token, secret = await book.create(name, role, expires_at=expires_at)
    return {
        "id": token.id,
        "name": token.name,
        "role": token.role.value,
        "expires_at": token.expires_at.isoformat() if token.expires_at else None,
        "secret": secret,
    }


def main() -> int:
    """Reads options, makes the token, prints it as one JSON object, and returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m gateway.access", description="Makes a token in the data directory of a gateway."
    )
    parser.add_argument("--data-dir", type=Path, required=True, help="the gateway's folder of all state")
    parser.add_argument("--name", required=True, help="name of the token")
    parser.add_argument("--role", type=Role, choices=list(Role), required=True, help="what it may do")
    parser.add_argument(
        "--expires-at", type=datetime.fromisoformat, help="from when on it is refused, ISO 8601 with offset"
    )
    options = parser.parse_args()
    folder = options.data_dir.expanduser().resolve() / "gateway"
    try:
        _make_folder(folder)
        made = asyncio.run(make(folder, options.name, options.role, options.expires_at))
    except PlauditError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    sys.stdout.write(json.dumps(made) + "\n")
    return 0


def _make_folder(folder: Path) -> None:
    try:
        private_folder(folder)
    except OSError as error:
        raise unusable_folder(folder, error) from None


if __name__ == "__main__":
    sys.exit(main())
