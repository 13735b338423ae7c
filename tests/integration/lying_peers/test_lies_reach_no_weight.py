"""A run with a lying reward server: the weights are those of a run in which the lies were failures."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from run_harness import RunHere, additions, make_start, write_dataset
from scoring_servers import Answers, ScriptedServer, completions_of, each_batch, info

from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.types.jobs import RewardBinding
from plaudit.types.statuses import RunState
from trainer_service.journal import CheckpointSaved, LogLine

STEPS = 2
BATCH = 16
LENGTH = pb.Reward(name="length", scope=pb.Reward.SCOPE_COMPLETION, min_value=0.0, max_value=1.0)

LIES = {
    "non_finite": lambda value: [math.nan],
    "out_of_range": lambda value: [1e308],
    "missing": lambda value: [],
    "differing": lambda value: [value, 1.0 - value],
}
"""For the first of eight completions, all that the server says of each; the other four get the truth."""

HARMLESS = {"differing"}
"""The first answer is the honest one."""


def lie_about(completion: pb.Completion) -> str | None:
    place = int(completion.completion_id.split("-")[1]) % 8
    return list(LIES)[place] if place < len(LIES) else None


def honest(completion: pb.Completion) -> float:
    return 1.0 / (1 + len(completion.text))


def answer(batch: pb.Batch, outcomes: Callable[[pb.Completion], list[pb.Result]]) -> Answers:
    results = []
    for completion in completions_of(batch):
        for result in outcomes(completion):
            result.batch_id, result.completion_id = batch.batch_id, completion.completion_id
            result.reward_key = "length"
            results.append(result)
    yield pb.ScoreResponse(results=pb.Results(results=results))
    total = len(completions_of(batch))
    yield pb.ScoreResponse(done=pb.BatchDone(batch_id=batch.batch_id, scored_count=total))


def lying(completion: pb.Completion) -> list[pb.Result]:
    lie = lie_about(completion)
    said = [honest(completion)] if lie is None else LIES[lie](honest(completion))
    return [pb.Result(score=pb.Score(value=value)) for value in said]


def failing(completion: pb.Completion) -> list[pb.Result]:
    if lie_about(completion) in (None, *HARMLESS):
        return [pb.Result(score=pb.Score(value=honest(completion)))]
    return [pb.Result(failure=pb.Failure(code=pb.Failure.CODE_INTERNAL))]


@pytest.mark.filterwarnings("ignore")
def test_nothing_of_a_lie_reaches_a_weight_and_all_of_it_is_shown(
    tmp_path: Path, serve: Callable[..., ScriptedServer]
) -> None:
    runs = {}
    for name, outcomes in (("lying", lying), ("failing", failing)):
        server = serve(each_batch(lambda batch, o=outcomes: answer(batch, o)), description=info(LENGTH))
        binding = RewardBinding(name="length", server=name, reward="length", max_attempts=1)
        folder = tmp_path / name
        start = make_start(
            folder,
            [(binding, server.address)],
            dataset=write_dataset(folder / "artifacts", additions()),
            max_steps=STEPS,
            max_unscored_fraction=1.0,
        )
        runs[name] = RunHere(folder, start)
        assert runs[name].go().state is RunState.COMPLETED

    def weights(name: str) -> bytes:
        checkpoint = runs[name].entries(CheckpointSaved)[-1]
        return (tmp_path / name / "artifacts" / checkpoint.uri / "model.safetensors").read_bytes()

    assert weights("lying") == weights("failing")

    steps, compared = runs["lying"].metrics(), runs["failing"].metrics()
    errors = "reward/length/protocol_errors"
    for step, other in zip(steps, compared, strict=True):
        for metric in ("reward_mean", "reward_std", "loss", "grad_norm", "unscored_fraction"):
            assert step[metric] == other[metric]
        assert step["unscored_fraction"] == 3 / 8
        # Four causes, of which a doubled result with another value counts under both names, in two eights.
        assert step[errors] == 10
        assert other[errors] == 0

    lines = [line for line in runs["lying"].entries(LogLine) if "causes" in line.fields]
    assert lines[0].level == "warning"
    assert lines[0].message.startswith("reward server lying breaks its contract: ")
    assert all(line.fields["server"] == "lying" for line in lines)
    told = {cause: sum(line.fields["causes"].get(cause, 0) for line in lines) for cause in LIES}
    assert told == dict.fromkeys(LIES, STEPS * BATCH // 8)
    odd = [line for line in runs["lying"].entries(LogLine) if line.fields.get("kind") == "non_determinism"]
    assert "is not deterministic" in odd[0].message
    assert not [line for line in runs["failing"].entries(LogLine) if "causes" in line.fields]
