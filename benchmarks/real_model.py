"""SmolLM2-135M-Instruct learns small sums, with three seeds: `make bench BENCH=real_model`.

The whole of Plaudit at work: dataset and job go to the gateway, the trainer's own evaluations measure what
was learnt on prompts that are held out, and every figure is read from the API. `--write` renews docs/results.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from harness import Figure, emit, progress
from real_model.outcome import Outcome, paired_gain
from real_model.page import page_of
from real_model.parts import make_model
from real_model.services import serving_all
from real_model.task import REWARDS, Row, make_rows

from plaudit import Client
from plaudit.types.statuses import JobStatus

ROOT: Final = Path(__file__).resolve().parents[1]
PARTS: Final = ROOT / ".venv" / "real-model"
RESULTS: Final = ROOT / "docs" / "results"
SEEDS: Final = (1, 2, 3)
STEPS: Final = 30
HYPERPARAMETERS: Final[dict[str, Any]] = {
    "learning_rate": 2e-4,
    "max_steps": STEPS,
    "rollouts_per_prompt": 8,
    "global_batch_size": 32,
    "max_response_length": 32,
    "temperature": 0.8,
    "kl_coef": 0.001,
    "lora_rank": 16,
    "lora_alpha": 32,
    "eval_every": 10,
}
_ASK_SECONDS: Final = 5.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains one job a seed, one after the other, and prints a figure for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, action="append", help="a seed; may be given again")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--write", action="store_true", help="write docs/results/smollm2.md and .json")
    chosen = parser.parse_args(arguments)
    PARTS.mkdir(parents=True, exist_ok=True)
    model = make_model(PARTS)
    train, held_out = make_rows(PARTS)
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="plaudit-real-model-") as scratch:
        folder = Path(scratch)
        with serving_all(folder) as client:
            datasets = [
                client.datasets.upload(_written(folder / f"{name}.jsonl", rows)).id
                for name, rows in (("sums", train), ("sums-held-out", held_out))
            ]
            for seed in chosen.seed or SEEDS:
                spec = _job(model, datasets, seed, chosen.steps)
                outcomes.append(_learnt(client, _finished(client, spec), seed))
                emit(_figure(outcomes[-1]))
    if chosen.write:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "smollm2.json").write_text(json.dumps([asdict(o) for o in outcomes], indent=1) + "\n")
        (RESULTS / "smollm2.md").write_text(page_of(outcomes, train[0], spec, len(train), len(held_out)))


def _written(path: Path, rows: Sequence[Row]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _job(model: Path, datasets: Sequence[str], seed: int, steps: int) -> dict[str, Any]:
    settings = {**HYPERPARAMETERS, "seed": seed, "max_steps": steps, "eval_dataset_id": datasets[1]}
    return {
        "base_model": str(model),
        "dataset_id": datasets[0],
        "output_name": f"sums-{seed}",
        "hyperparameters": settings,
        "rewards": REWARDS,
    }


def _finished(client: Client, spec: dict[str, Any]) -> str:
    """Runs the job to its end; its id."""
    job = client.training_jobs.submit(spec)
    told = -1
    while not job.status.is_terminal:
        time.sleep(_ASK_SECONDS)
        job = client.training_jobs.get(job.id)
        if job.current_step != told:
            told = job.current_step
            progress(f"{spec['output_name']}: step {told} of {job.total_steps}")
    if job.status is not JobStatus.COMPLETED:
        raise SystemExit(f"the job ended {job.status}: {job.status_detail or job.error}")
    return job.id


def _learnt(client: Client, job_id: str, seed: int) -> Outcome:
    series = client.training_jobs.metrics(job_id, max_points=5000)
    held_out = dict(series.series("eval/reward_mean"))
    last = max(held_out)
    rewards: dict[int, dict[str, float]] = {0: {}, last: {}}
    exact: dict[int, list[float]] = {0: [], last: []}
    for completion in client.training_jobs.completions(job_id, evaluations=True):
        if completion.step not in rewards:
            continue
        if completion.reward is None:
            raise SystemExit(f"a held-out completion was not scored: {completion.outcomes}")
        rewards[completion.step][completion.prompt_text] = completion.reward
        exact[completion.step] += [
            o.value for o in completion.outcomes if o.name == "exact_answer" and o.value is not None
        ]
    gain, error = paired_gain(rewards[0], rewards[last])
    tied = [value for step, value in series.series("zero_std_group_fraction") if step <= 5]
    return Outcome(
        seed=seed,
        base=statistics.fmean(rewards[0].values()),
        final=statistics.fmean(rewards[last].values()),
        gain=gain,
        gain_error=error,
        base_exact=statistics.fmean(exact[0]),
        final_exact=statistics.fmean(exact[last]),
        mixed_groups=1 - statistics.fmean(tied),
        step_seconds=statistics.median(value for _, value in series.series("step_seconds")),
        curve=[round(value, 4) for _, value in series.series("reward_mean")],
        held_out={step: round(value, 4) for step, value in held_out.items()},
    )


def _figure(outcome: Outcome) -> Figure:
    return Figure(
        bar=f"real_model/seed_{outcome.seed}/gain",
        value=outcome.gain,
        unit="held-out reward, final less base",
        goal=2 * outcome.gain_error,
        sense="at_least",
        holds=outcome.sure,
        ours=outcome.final,
        rival=outcome.base,
        more=asdict(outcome),
    )


if __name__ == "__main__":
    main()
