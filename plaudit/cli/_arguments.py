"""Arguments that many commands have, and how a shell completes them: by asking a gateway that is there."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from plaudit.errors import PlauditError

if TYPE_CHECKING:
    from plaudit.client import Client

_SECONDS: Final = 1.0
_MOST: Final = 100


def _asked(ask: Callable[[Client], Iterable[tuple[str, str]]]) -> Callable[[str], list[tuple[str, str]]]:
    """Completes by what `ask` finds: pairs of a name and what it is."""

    def complete(incomplete: str) -> list[tuple[str, str]]:
        from plaudit.client import Client

        # A person who presses the tab key is not told why there is nothing.
        try:
            with Client(timeout_seconds=_SECONDS, retry_seconds=0.0) as client:
                found = list(itertools.islice(ask(client), _MOST))
        except PlauditError:
            return []
        return [pair for pair in found if pair[0].startswith(incomplete)]

    return complete


_complete_job = _asked(
    lambda client: ((job.id, f"{job.spec.output_name} {job.status}") for job in client.training_jobs.list())
)

JobId = Annotated[
    str, typer.Argument(metavar="JOB", help="Id of the job, job_...", autocompletion=_complete_job)
]
JobIds = Annotated[
    list[str], typer.Argument(metavar="JOB", help="Ids of the jobs, job_...", autocompletion=_complete_job)
]
DatasetId = Annotated[
    str,
    typer.Argument(
        metavar="DATASET",
        help="Id or name of the dataset.",
        autocompletion=_asked(
            lambda client: ((found.name, f"{found.row_count} rows") for found in client.datasets.list())
        ),
    ),
]
ModelId = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="Id, or the name of the newest job's model: its output_name.",
        autocompletion=_asked(
            lambda client: ((model.name, f"{model.id} {model.status}") for model in client.models.list())
        ),
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Set a field, for example hyperparameters.max_steps=50 or rewards[0].weight=0.5; the value is "
        "JSON, or text. Repeatable.",
    ),
]
ServerId = Annotated[
    str,
    typer.Argument(
        metavar="SERVER",
        help="Id or name of the reward server.",
        autocompletion=_asked(
            lambda client: ((server.name, server.server_version) for server in client.reward_servers.list())
        ),
    ),
]
