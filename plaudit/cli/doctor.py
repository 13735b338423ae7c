"""`plaudit doctor`: what is good, what is not, and the way out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import typer

from plaudit.cli._output import AddressOption, JsonOption, connect, console, print_json, printable
from plaudit.errors import PlauditError

if TYPE_CHECKING:
    from plaudit.cli._checks import Check

_STYLES: Final = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(as_json: JsonOption = False, address: AddressOption = None) -> None:
    """Check this machine and the gateway: what is good, what is not, and the way out.

    Exit status: 0 nothing failed, 1 something did.
    """
    out = console()
    checks = []
    for check in _checks(address):
        checks.append(check)
        if not as_json:
            out.print(f"{check.state.value:<4}", style=_STYLES[check.state], end="  ")
            out.print(printable(f"{check.name}: {check.found}"), markup=False)
            if check.way_out:
                out.print(printable(f"      {check.way_out}"), markup=False)
    if as_json:
        print_json(checks)
    raise typer.Exit(1 if any(check.state == "fail" for check in checks) else 0)


def _checks(address: str | None) -> Iterator[Check]:
    from plaudit.cli._checks import Check, State, checks_of_gateway, checks_of_machine

    yield from checks_of_machine()
    try:
        with connect(address) as client:
            yield from checks_of_gateway(client)
    except PlauditError as error:
        yield Check("gateway", State.FAIL, error.message, "mend it, and try again")
