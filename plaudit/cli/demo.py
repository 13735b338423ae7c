"""`plaudit demo`: the main job, end to end, on this machine, with nothing prepared."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from plaudit import service
from plaudit.cli._local_services import LocalAddresses, local_services, start_local
from plaudit.cli._output import connect
from plaudit.cli._starter import STARTER_HYPERPARAMETERS
from plaudit.types.metrics import REWARD_MEAN

if TYPE_CHECKING:
    from plaudit.client import Client, models

DEMO_HYPERPARAMETERS: Final[dict[str, Any]] = dict(STARTER_HYPERPARAMETERS)

_FREE_PORT: Final = "127.0.0.1:0"
_ENDS: Final = 10
"""Steps at either end of the run over which the result's means are taken."""


def demo(
    seed: Annotated[int, typer.Option(min=0, help="Seed of sampling and shuffling.")] = 42,
    steps: Annotated[int, typer.Option(min=1, help="Optimizer steps.")] = DEMO_HYPERPARAMETERS["max_steps"],
    keep: Annotated[
        Path | None, typer.Option(help="Keep the run's data in this folder. Default: it is removed.")
    ] = None,
) -> None:
    """Teach a tiny model, live: three services on free ports, a reward in another process, a curve.

    The last line is one JSON object with the result, read from the metrics API.
    """
    from plaudit.cli._watching import watch_job

    service.configure_logging("demo", "warning")
    folder = keep.absolute() if keep else Path(tempfile.mkdtemp(prefix="plaudit-demo-"))
    try:
        with (
            _terminated_as_interrupted(),
            _services(folder) as addresses,
            connect(addresses.gateway_grpc) as client,
        ):
            typer.echo(f"gateway is up: REST http://{addresses.gateway_http}  gRPC {addresses.gateway_grpc}")
            typer.echo(f"try:  curl http://{addresses.gateway_http}/v1/training_jobs")
            job = client.training_jobs.create(
                base_model="builtin:tiny",
                dataset_id="builtin:additions",
                output_name="adder",
                hyperparameters={**DEMO_HYPERPARAMETERS, "seed": seed, "max_steps": steps},
                rewards=[{"server": "builtin", "reward": "exact_answer"}],
            )
            status = watch_job(client, job.id)
            typer.echo(json.dumps(_result(client, client.training_jobs.get(job.id))))
            raise typer.Exit(status)
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def _result(client: Client, job: models.TrainingJob) -> dict[str, object]:
    series = client.training_jobs.metrics(job.id, keys=[REWARD_MEAN], max_points=5000).series(REWARD_MEAN)
    rewards = [value for _, value in series]
    seconds = (
        (job.finished_at - job.started_at).total_seconds() if job.finished_at and job.started_at else None
    )
    return {
        "job_id": job.id,
        "status": str(job.status),
        "steps": len(rewards),
        "reward_mean_first10": _mean(rewards[:_ENDS]),
        "reward_mean_last10": _mean(rewards[-_ENDS:]),
        "train_seconds": seconds,
    }


def _mean(values: Sequence[float]) -> float | None:
    return round(sum(values) / len(values), 4) if values else None


@contextmanager
def _services(folder: Path) -> Iterator[LocalAddresses]:
    """Runs the services in an event loop of their own, so that the client may block in this thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="services", daemon=True)
    thread.start()
    supervisor = service.Supervisor(folder / "logs")
    commands = local_services(
        folder, gateway_grpc=_FREE_PORT, gateway_http=_FREE_PORT, trainer=_FREE_PORT, reward=_FREE_PORT
    )
    starting = asyncio.run_coroutine_threadsafe(start_local(supervisor, commands), loop)
    try:
        yield starting.result()
    finally:
        # An interrupt ends our waiting, not what we wait for.
        starting.cancel()
        asyncio.run_coroutine_threadsafe(supervisor.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Lets SIGTERM end the demo as Ctrl-C does, so that its services are ended with it."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        sys.stdout.flush()
