"""Series made by hand, and what is told of them step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from gateway.health import (
    Episode,
    Evaluation,
    JobSetting,
    RewardSetting,
    Verdict,
    Window,
    judge,
    judge_evaluation,
)

SETTING = JobSetting(
    is_grpo=True,
    num_iterations=1,
    groups_per_rollout=8,
    max_response_length=1000,
    has_reference=True,
    rewards=(RewardSetting("exact_answer", "exact_answer", 1.0),),
)
SFT = JobSetting(is_grpo=False)

STEADY = {
    "reward_mean": 0.5,
    "reward_std_batch": 0.5,
    "zero_std_group_fraction": 0.1,
    "small_group_fraction": 0.0,
    "unscored_fraction": 0.0,
    "response_length_mean": 200.0,
    "truncated_fraction": 0.0,
    "policy_entropy": 1.0,
    "kl_div": 0.01,
    "loss": 0.1,
    "grad_norm": 0.2,
    "step_skipped": 0.0,
    "step_not_finite": 0.0,
    "reward/exact_answer/mean": 0.5,
    "reward/exact_answer/std": 0.5,
    "reward/exact_answer/failed_fraction": 0.0,
    "reward/exact_answer/protocol_errors": 0.0,
}
"""A step in which nothing is wrong."""

Course = float | Callable[[int], float]


def steps(count: int, **courses: Course) -> list[dict[str, float]]:
    """Steps 1 to `count`; a metric is a value, or a function of the step. `__` in a name is `/`."""
    named = {name.replace("__", "/"): course for name, course in courses.items()}
    return [
        {**STEADY, **{name: c(step) if callable(c) else c for name, c in named.items()}}
        for step in range(1, count + 1)
    ]


def from_step(step: int, before: float, after: float) -> Callable[[int], float]:
    """`before`, and from `step` on `after`."""
    return lambda s: after if s >= step else before


def line(first: tuple[int, float], last: tuple[int, float]) -> Callable[[int], float]:
    """Constant up to the first point and from the last one on, and straight between the two."""
    (a, at_a), (b, at_b) = first, last
    return lambda s: at_a + (at_b - at_a) * min(max((s - a) / (b - a), 0.0), 1.0)


@dataclass(frozen=True)
class Told:
    """An alert that was raised after `step`, or (severity "over") that ended then."""

    step: int
    severity: str
    kind: str
    subject: str = ""


def told(
    rows: Iterable[Mapping[str, float]],
    setting: JobSetting = SETTING,
    evaluations: Mapping[int, float] | None = None,
    canaries: Mapping[int, Mapping[str, float]] | None = None,
) -> list[Told]:
    """All that is told of a job that reports these steps, what held-out prompts got after some, and which
    share of canaries each reward let pass after some (0: before the first).
    """
    return [happened for happened, _ in told_with_messages(rows, setting, evaluations, canaries)]


def told_with_messages(
    rows: Iterable[Mapping[str, float]],
    setting: JobSetting = SETTING,
    evaluations: Mapping[int, float] | None = None,
    canaries: Mapping[int, Mapping[str, float]] | None = None,
) -> list[tuple[Told, str]]:
    window, episodes, out, rewards = Window(setting), dict[tuple[str, str], Episode](), [], list[float]()
    held_out: list[Evaluation] = []

    def take(verdict: Verdict, step: int) -> None:
        for episode in verdict.ended:
            del episodes[episode.kind, episode.subject]
            out.append((Told(step, "over", episode.kind, episode.subject), ""))
        for f in verdict.raised:
            episodes[f.kind, f.subject] = Episode(f.kind, f.subject, f.severity, f.evidence)
            out.append((Told(step, f.severity, f.kind, f.subject), f.message))

    for step, row in enumerate([{}, *rows]):
        if step > 0:
            window.add(step, row)
            rewards.append(row.get("reward_mean", 0.0))
            take(judge(window.view(), setting, episodes.values()), step)
        evaluation: dict[str, float] = {}
        if evaluations and step in evaluations:
            recent = rewards[-10:]
            held_out.append(Evaluation(step, evaluations[step], sum(recent) / len(recent)))
            evaluation["eval/reward_mean"] = evaluations[step]
        for name, share in (canaries or {}).get(step, {}).items():
            evaluation[f"eval/reward/{name}/canary_pass_fraction"] = share
        if evaluation:
            take(judge_evaluation(window.view(held_out, evaluation), setting, episodes.values()), step)
    return out
