"""`plaudit up`: all services of one machine, on loopback."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Final

import typer

from plaudit import service
from plaudit.cli._local_services import ConfiguredPeers, local_services, start_local

_AT: Final = service.DEFAULT_ADDRESSES
_DEFAULT: Final = "Default: its setting, else"


def up(
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Folder of all state. Default: the setting data_dir, or a folder of your own."),
    ] = None,
    gateway_grpc: Annotated[
        str | None,
        typer.Option(
            help=f"Where the gateway speaks gRPC; port 0 takes a free one. {_DEFAULT} {_AT.gateway_grpc}."
        ),
    ] = None,
    gateway_http: Annotated[
        str | None, typer.Option(help=f"Where the gateway speaks REST. {_DEFAULT} {_AT.gateway_http}.")
    ] = None,
    trainer: Annotated[
        str | None, typer.Option(help=f"Where the trainer listens. {_DEFAULT} {_AT.trainer}.")
    ] = None,
    reward: Annotated[
        str | None, typer.Option(help=f"Where the built-in reward server listens. {_DEFAULT} {_AT.reward}.")
    ] = None,
) -> None:
    """Run gateway, trainer and built-in reward server until interrupted; what dies is started again."""
    folder = (data_dir or service.default_data_dir()).absolute()
    peers = ConfiguredPeers(
        service.configured("gateway", "trainers"), service.configured("gateway", "reward_servers")
    )
    service.configure_logging("up")

    async def serve(stop: asyncio.Event) -> None:
        supervisor = service.Supervisor(folder / "logs")
        try:
            addresses = await start_local(
                supervisor,
                local_services(
                    folder,
                    gateway_grpc=gateway_grpc,
                    gateway_http=gateway_http,
                    trainer=trainer,
                    reward=reward,
                ),
                peers,
            )
            typer.echo(f"gateway   gRPC {addresses.gateway_grpc}   REST http://{addresses.gateway_http}")
            typer.echo(f"trainer   {addresses.trainer}")
            typer.echo(f"reward    {addresses.reward}")
            typer.echo(f"data and logs in {folder}; Ctrl-C ends all")
            await stop.wait()
        finally:
            await supervisor.stop()

    raise typer.Exit(service.run_service(serve))
