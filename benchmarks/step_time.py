"""Step time against plain TRL: the same model, prompts, hyperparameters and reward, 64 completions a step.

    make bench BENCH=step_time
    .venv/bin/python benchmarks/step_time.py --quick
    .venv/bin/python benchmarks/step_time.py --case ragged_192

Both sides are processes with one thread for torch, and work by turns, a step each: ours, rival, ours, rival.
docs/benchmarks.md says what is compared and how to read the figures.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from against_trl.reward import SLOW_CONCURRENCY, earliest_end
from against_trl.work import STAGES, WEIGH, Lengths, Pace, Work, planned_lengths, write_dataset
from harness import (
    Figure,
    ProgramFailedError,
    Side,
    Spread,
    Turn,
    emit,
    paired_ratio,
    progress,
    run_program,
    serving,
    take_turns,
)

WAIT_SHARE, WAIT_SECONDS = 0.05, 0.3
"""Waiting for scores: this share of the step, or this much more than what nothing can hide."""

MEMORY_GOAL = 0.9
"""Of the peak memory of TRL's process."""

_ENVIRONMENT = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONPATH": str(Path(__file__).parent),
}
_WARM_UP = 1
"""Unmeasured steps on each side: the first sets up buffers and the optimizer's state."""

_MEBIBYTE = 2**20


@dataclass(frozen=True, slots=True)
class Case:
    """A comparison: which work, and how much of TRL's time ours may take."""

    name: str
    lengths: Lengths
    prompt_tokens: int
    reward: Pace
    goal: float
    repeats: int


CASES = (
    Case("ragged_192", "ragged", 192, "quick", 0.5, repeats=5),
    Case("ragged_23", "ragged", 23, "quick", 0.6, repeats=6),
    Case("even_23", "even", 23, "quick", 0.7, repeats=6),
    Case("slow_reward", "ragged", 23, "slow", 0.45, repeats=6),
)


def main() -> None:
    """Runs the cases and prints their figures."""
    parser = argparse.ArgumentParser(description="Step time against plain TRL.")
    parser.add_argument("--quick", action="store_true", help="2 repeats a case: to see that it runs")
    parser.add_argument(
        "--case", choices=[case.name for case in CASES], action="append", help="only this one"
    )
    options = parser.parse_args()
    cases = [case for case in CASES if options.case is None or case.name in options.case]
    try:
        run_cases(cases, quick=options.quick)
    except ProgramFailedError as error:
        sys.exit(str(error))


def run_cases(cases: Sequence[Case], *, quick: bool) -> None:
    """Runs the cases one after the other, with one reward server for all. Raises ProgramFailedError."""
    with tempfile.TemporaryDirectory(prefix="plaudit-step-time-") as name:
        folder = Path(name)
        progress("making the model")
        run_program(
            "the model",
            [sys.executable, "-m", "against_trl.model", str(folder / "model")],
            log=folder / "model.log",
            environment=_ENVIRONMENT,
        )
        with serving(
            "the reward server",
            [sys.executable, "-m", "against_trl.reward", "--address", "127.0.0.1:0", "--die-with-stdin"],
            log=folder / "reward.log",
            environment=_ENVIRONMENT,
        ) as announced:
            for case in cases:
                repeats = 2 if quick else case.repeats
                turns = run_case(case, folder, announced["address"], repeats)
                for figure in figures(case, turns["ours"], turns["rival"]):
                    emit(figure)


def run_case(case: Case, folder: Path, reward_address: str, repeats: int) -> dict[str, list[Turn]]:
    """Runs both sides by turns; returns their measured turns by name: ours, rival."""
    began = time.monotonic()
    artifact_root = folder / "artifacts" / case.name
    dataset_uri = write_dataset(artifact_root, case.prompt_tokens)
    with contextlib.ExitStack() as stack:
        sides = []
        for name in ("ours", "rival"):
            scratch = folder / "scratch" / f"{case.name}-{name}"
            scratch.mkdir(parents=True)
            work = Work(
                model_dir=str(folder / "model"),
                artifact_root=str(artifact_root),
                dataset_uri=dataset_uri,
                lengths=case.lengths,
                reward=case.reward,
                reward_address=reward_address,
                steps=_WARM_UP + repeats + 1,
                scratch=str(scratch),
            )
            side = Side(
                name,
                [sys.executable, "-m", f"against_trl.{name}", work.to_json()],
                log=folder / f"{case.name}-{name}.log",
                environment=_ENVIRONMENT,
            )
            sides.append(stack.enter_context(side))
        for side in sides:
            side.await_ready()
        progress(f"{case.name}: {_WARM_UP} + {repeats} + 1 steps on each side")
        turns = take_turns(sides, warm_up=_WARM_UP, repeats=repeats)
        for side in sides:
            turns[side.name][-1]["peak_tensor_bytes"] = side.take_turn(WEIGH)["peak_tensor_bytes"]
    progress(f"{case.name}: took {time.monotonic() - began:.0f} s")
    return turns


def figures(case: Case, ours: Sequence[Turn], rival: Sequence[Turn]) -> Iterator[Figure]:
    """All figures of a case, the ones with a goal first."""
    bar = f"step_time/{case.name}"
    yield Figure(
        bar=bar,
        value=(ratio := paired_ratio(column(ours, "step"), column(rival, "step"))).median,
        unit="of TRL's step",
        goal=case.goal,
        ours=median(ours, "step"),
        rival=median(rival, "step"),
        spread=ratio,
    )
    if case.reward == "slow":
        yield from waiting(bar, ours, rival)
    lengths = planned_lengths(case.lengths)
    yield Figure(
        bar=f"{bar}/unlike_work",
        value=sum(turn["lengths"] != lengths for turn in (*ours, *rival)),
        unit="steps whose completions had other lengths than planned",
        goal=0,
        ours=median(ours, "tokens"),
        rival=median(rival, "tokens"),
    )
    yield Figure(
        bar=f"{bar}/cpu",
        value=(ratio := paired_ratio(column(ours, "step_cpu"), column(rival, "step_cpu"))).median,
        unit="of the processor seconds of TRL's step",
        ours=median(ours, "step_cpu"),
        rival=median(rival, "step_cpu"),
        spread=ratio,
    )
    for stage in (*STAGES, "rest"):
        yield Figure(
            bar=f"{bar}/{stage}",
            value=median(ours, stage),
            unit="seconds of a step",
            ours=median(ours, stage),
            rival=median(rival, stage),
            more={
                "ours_cpu": round(median(ours, f"{stage}_cpu"), 4),
                "rival_cpu": round(median(rival, f"{stage}_cpu"), 4),
            },
        )
    yield from memory(bar, ours, rival)


def memory(bar: str, ours: Sequence[Turn], rival: Sequence[Turn]) -> Iterator[Figure]:
    """Peaks of the whole process, of what training adds to it, and of tensors in a step."""
    for key, goal in (("peak_rss", MEMORY_GOAL), ("added_rss", None), ("peak_tensor", None)):
        # The last measured turn knows the peak of all before it.
        mebibytes = [turns[-1][f"{key}_bytes"] / _MEBIBYTE for turns in (ours, rival)]
        yield Figure(
            bar=f"{bar}/{key}",
            value=mebibytes[0] / mebibytes[1],
            unit="of TRL's MiB",
            goal=goal,
            ours=mebibytes[0],
            rival=mebibytes[1],
        )


def waiting(bar: str, ours: Sequence[Turn], rival: Sequence[Turn]) -> Iterator[Figure]:
    """What our trainer waits for scores beyond what it could not do without."""
    beyond = Spread.of([turn["score_wait"] - unavoidable_wait(turn) for turn in ours])
    share = Spread.of([turn["score_wait"] / turn["step"] for turn in ours]).median
    waits = median(ours, "score_wait"), median(rival, "score_wait")
    yield Figure(
        bar=f"{bar}/wait_beyond_unavoidable",
        value=beyond.median,
        unit="seconds of a step",
        goal=WAIT_SECONDS,
        holds=beyond.median <= WAIT_SECONDS or share <= WAIT_SHARE,
        ours=waits[0],
        rival=waits[1],
        spread=beyond,
        more={
            "share_of_step": round(share, 4),
            "unavoidable": round(Spread.of([unavoidable_wait(turn) for turn in ours]).median, 4),
        },
    )
    beyond_queue = Spread.of([turn["score_wait"] - queueing_wait(turn) for turn in ours])
    yield Figure(
        bar=f"{bar}/wait_beyond_queue",
        value=beyond_queue.median,
        unit="seconds of a step",
        ours=waits[0],
        rival=waits[1],
        spread=beyond_queue,
        more={"queue": round(Spread.of([queueing_wait(turn) for turn in ours]).median, 4)},
    )


def unavoidable_wait(turn: Turn) -> float:
    """Seconds of scoring that generation and the reference's forward pass are too short to cover."""
    hidden = turn["generation"] + turn["reference_forward"]
    return max(0.0, float(turn["scoring_seconds"] / SLOW_CONCURRENCY - hidden))


def queueing_wait(turn: Turn) -> float:
    """The wait if nothing but scoring took time, from when each completion was really there to be scored."""
    return max(0.0, float(earliest_end(turn["queue"]) - turn["score_wait_began"]))


def column(turns: Sequence[Turn], key: str) -> list[float]:
    """One measurement of every turn."""
    return [float(turn[key]) for turn in turns]


def median(turns: Sequence[Turn], key: str) -> float:
    """Median of one measurement."""
    return Spread.of(column(turns, key)).median


if __name__ == "__main__":
    main()
