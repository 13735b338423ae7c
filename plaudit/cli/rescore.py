"""`plaudit job rescore`, and `plaudit rescore`: list, get, results, cancel."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

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

if TYPE_CHECKING:
    from plaudit.client import Client, models

app = typer.Typer(help="Rescores: stored completions of a job, scored again.", no_args_is_help=True)

RescoreId = Annotated[str, typer.Argument(metavar="RESCORE", help="Id of the rescore, resc_...")]
Limit = Annotated[int, typer.Option(min=0, max=1_000_000, help="Most completions to show.")]


def rescore(
    job_id: Annotated[str, typer.Argument(metavar="JOB", help="Id of the job, job_...")],
    reward: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SERVER/REWARD", help="Score with this one; repeatable. Default: the job's rewards."
        ),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(
            metavar="JSON", help="Configuration of the reward; the n-th is that of the n-th --reward."
        ),
    ] = None,
    weight: Annotated[
        list[float] | None, typer.Option(help="Weight of the reward; the n-th is that of the n-th --reward.")
    ] = None,
    from_step: Annotated[int, typer.Option(min=0, help="First step. 0: the first that is stored.")] = 0,
    to_step: Annotated[int, typer.Option(min=0, help="Last step. 0: the newest that is stored.")] = 0,
    limit: Limit = 20,
    detach: Annotated[
        bool, typer.Option("--detach", help="Only queue it, and print its id; do not wait.")
    ] = False,
    as_json: JsonOption = False,
    address: AddressOption = None,
) -> None:
    """Score a job's stored completions again, without training, and show old and new scores side by side."""
    from plaudit.types.rescores import RescoreStatus

    rewards = _rewards(reward or [], config or [], weight or [])
    with connect(address) as client:
        made = client.rescores.create(job_id, rewards=rewards, from_step=from_step, to_step=to_step)
        if detach:
            _print_rescore(made, as_json)
            return
        done = _wait(client, made)
        _print_with_results(client, done, limit, as_json)
    if done.status is not RescoreStatus.COMPLETED or _nothing_scored(done):
        raise typer.Exit(1)


@app.command("list")
def list_rescores(
    job_id: Annotated[str, typer.Option("--job", help="Only those of this job.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="Most rescores to show.")] = 20,
    as_json: JsonOption = False,
    address: AddressOption = None,
) -> None:
    """List rescores, newest first."""
    with connect(address) as client:
        found = list(itertools.islice(client.rescores.list(job_id), limit))
    if as_json:
        print_json(found)
        return
    print_table(
        ("rescore", "job", "status", "done", "rewards", "old", "new", "created"),
        (
            (
                one.id,
                one.job_id,
                one.status,
                f"{one.done_count}/{one.total_count}",
                ", ".join(binding.name for binding in one.rewards),
                one.summary.old_mean,
                one.summary.new_mean,
                one.created_at,
            )
            for one in found
        ),
    )


@app.command()
def get(rescore_id: RescoreId, as_json: JsonOption = False, address: AddressOption = None) -> None:
    """Show a rescore as it stands."""
    with connect(address) as client:
        _print_rescore(client.rescores.get(rescore_id), as_json)


@app.command()
def results(
    rescore_id: RescoreId, limit: Limit = 20, as_json: JsonOption = False, address: AddressOption = None
) -> None:
    """Show completions with old and new scores, oldest step first."""
    with connect(address) as client:
        found = list(itertools.islice(client.rescores.results(rescore_id), limit))
    if as_json:
        print_json(found)
    else:
        _print_results(found)


@app.command()
def cancel(rescore_id: RescoreId, as_json: JsonOption = False, address: AddressOption = None) -> None:
    """Stop a rescore; what it has scored stays."""
    with connect(address) as client:
        _print_rescore(client.rescores.cancel(rescore_id), as_json)


def _rewards(
    names: Sequence[str], configs: Sequence[str], weights: Sequence[float]
) -> list[Mapping[str, Any]]:
    """The rewards that the options name; InvalidArgumentError with everything wrong at once."""
    from plaudit.types.validation import parse_json_object

    violations = [
        FieldViolation(
            option, f"is given {count} times, and --reward {len(names)} times; each belongs to one --reward"
        )
        for option, count in (("--config", len(configs)), ("--weight", len(weights)))
        if count > len(names)
    ]
    rewards: list[Mapping[str, Any]] = []
    taken: set[str] = set()
    for index, name in enumerate(names):
        server, slash, reward = name.partition("/")
        if not (server and slash and reward):
            violations.append(
                FieldViolation("--reward", f"{name!r} is no SERVER/REWARD; for example builtin/exact_answer")
            )
            continue
        binding: dict[str, Any] = {"server": server, "reward": reward}
        if reward in taken:
            binding["name"] = f"{reward}_{index + 1}"
        taken.add(reward)
        if index < len(weights):
            binding["weight"] = weights[index]
        if index < len(configs):
            try:
                binding["config"] = parse_json_object(configs[index], f"rewards[{index}].config")
            except InvalidArgumentError as error:
                violations.extend(error.violations)
        rewards.append(binding)
    if violations:
        raise InvalidArgumentError(violations)
    return rewards


def _wait(client: Client, made: models.Rescore) -> models.Rescore:
    """Waits for the end of a rescore, with a bar on stderr where that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    shown = Console(stderr=True)
    try:
        with Progress(*columns, console=shown, transient=True, disable=not shown.is_terminal) as progress:
            bar = progress.add_task(f"{made.id} {made.status}", total=made.total_count)

            def tell(now: models.Rescore) -> None:
                detail = f"  {printable(now.status_detail)}" if now.status_detail else ""
                progress.update(bar, completed=now.done_count, description=f"{now.id} {now.status}{detail}")

            return client.rescores.wait(made.id, on_progress=tell)
    except KeyboardInterrupt:
        typer.echo(f"not waited for any more; to stop it: plaudit rescore cancel {made.id}", err=True)
        raise


def _print_with_results(client: Client, done: models.Rescore, limit: int, as_json: bool) -> None:
    found = list(itertools.islice(client.rescores.results(done.id), limit))
    if as_json:
        print_json({"rescore": done, "results": found})
        return
    _print_results(found)
    typer.echo()
    _print_rescore(done, as_json=False)
    if done.done_count > len(found):
        typer.echo(f"{len(found)} of {done.done_count} completions are shown; --limit shows more")


def _print_results(found: Iterable[models.RescoreResult]) -> None:
    print_table(
        ("step", "completion", "old", "new", "text", "not scored"),
        (
            (
                result.completion.step,
                result.completion.completion_id,
                result.completion.reward,
                result.new_reward,
                result.completion.completion_text,
                "; ".join(
                    f"{o.name}: {o.status} {o.explanation}" for o in result.new_outcomes if o.value is None
                ),
            )
            for result in found
        ),
    )


def _nothing_scored(one: models.Rescore) -> bool:
    """Whether every score failed: then the rescore came to its end, and to nothing."""
    return one.summary.new_mean is None and one.summary.failed_count > 0


def _print_rescore(one: models.Rescore, as_json: bool) -> None:
    if as_json:
        print_json(one)
        return
    summary = one.summary
    print_fields(
        {
            "rescore": one.id,
            "job": one.job_id,
            "status": one.status,
            "detail": one.status_detail,
            "error": f"{one.error.code}: {one.error.message}" if one.error else None,
            "steps": f"{one.from_step} to {one.to_step}",
            "done": f"{one.done_count} of {one.total_count} completions",
            "old mean": summary.old_mean,
            "new mean": summary.new_mean,
            "correlation": summary.correlation,
            "same order": f"{summary.rank_agreement:.3g} of {summary.ordered_pair_count} pairs within groups"
            if summary.rank_agreement is not None
            else None,
            "failed": summary.failed_count or None,
            "not applicable": summary.not_applicable_count or None,
            **{f"reward {reward.name}": _reward_line(reward) for reward in summary.rewards},
        }
    )


def _reward_line(reward: models.RescoredReward) -> str:
    mean = "no scores" if reward.mean is None else f"mean {reward.mean:.4g} over {reward.scored_count}"
    failed = f", {reward.failed_count} failed, the last with {reward.failure}" if reward.failed_count else ""
    return f"{mean}{failed}"
