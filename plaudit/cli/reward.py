"""`plaudit reward`: what can be rewarded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from plaudit.cli import reward_conformance, reward_test
from plaudit.cli._output import (
    AddressOption,
    JsonOption,
    cell,
    connect,
    print_json,
    print_table,
    printable,
)

if TYPE_CHECKING:
    from plaudit.client import models

app = typer.Typer(help="Rewards on offer.", no_args_is_help=True)

app.command("conformance", context_settings=reward_conformance.CONTEXT_SETTINGS)(
    reward_conformance.conformance
)
app.command("test")(reward_test.test)


@app.command("list")
def list_rewards(as_json: JsonOption = False, address: AddressOption = None) -> None:
    """List the rewards of all registered servers, as they answer now."""
    with connect(address) as client:
        servers = client.reward_servers.list()
    if as_json:
        print_json(
            [{"server": server.name, **vars_of(reward)} for server in servers for reward in server.rewards]
        )
    else:
        print_table(
            ("server", "reward", "range", "columns", "what it rewards"),
            (
                (
                    server.name,
                    reward.name,
                    _range(reward),
                    ", ".join(reward.required_columns),
                    reward.description,
                )
                for server in servers
                for reward in server.rewards
            ),
        )
    for server in servers:
        if not server.reachable:
            typer.echo(f"{server.name} does not answer: {printable(server.unreachable_reason)}", err=True)
        for warning in server.warnings:
            typer.echo(f"{server.name}: {printable(warning)}", err=True)


def vars_of(reward: models.OfferedReward) -> dict[str, object]:
    """The fields of a reward by name."""
    return {name: getattr(reward, name) for name in models.OfferedReward.__slots__}


def _range(reward: models.OfferedReward) -> str:
    low = "-∞" if reward.min_value is None else cell(reward.min_value)
    high = "∞" if reward.max_value is None else cell(reward.max_value)
    return f"{low} to {high}"
