"""Evaluations: when they are taken, what they say, and that training does not notice them."""

import math
import statistics

import pyarrow.parquet as pq
import pytest
import torch
from training_bench import END, HELD_OUT, load_model, make_prompts

from plaudit.errors import InvalidArgumentError
from plaudit.scoring import RewardRules
from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.metrics import TIMING_METRICS
from plaudit.types.scoring import Failed, FailureCode, NotApplicable, Purpose, Scored
from plaudit.types.statuses import ErrorCode, RunState
from trainer_service.journal import (
    CheckpointSaved,
    EvaluationFinished,
    LogLine,
    RunStateChanged,
    StepCompleted,
)
from trainer_service.training.checkpoints import open_checkpoint
from trainer_service.training.config import plan_training
from trainer_service.training.dataset import DatasetError
from trainer_service.training.evaluations import of_held_out
from trainer_service.training.failures import describe_failure
from trainer_service.training.reporting import RunCancelledError
from trainer_service.training.stages import PauseBeforeTrainingError

GONE = Failed(FailureCode.UNAVAILABLE, "connection refused")
EVALUATED = {"eval_dataset_id": "held-out", "eval_every": 2.0}


def told(bench, kind):
    return {
        entry.step: {
            name: value
            for name, value in entry.metrics.items()
            if name not in TIMING_METRICS and not name.endswith("latency_p95_seconds")
        }
        for entry in bench.entries(kind)
    }


def equal(left, right):
    return left.keys() == right.keys() and all(
        value == right[name] or (math.isnan(value) and math.isnan(right[name]))
        for name, value in left.items()
    )


def evaluate_first(bench):
    """Takes the evaluation before the first step, and trains nothing."""
    bench.rules.on_train_begin(None, bench.trainer.state, None, model=bench.trainer.model)


def written(bench, step):
    """What was written for each held-out prompt, in the file that the evaluation names."""
    entry = next(e for e in bench.entries(EvaluationFinished) if e.step == step)
    return pq.read_table(bench.artifact_root / entry.completions.uri).to_pylist()


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({"max_steps": 5, "eval_every": 2.0}, [0, 2, 4, 5]),
        ({"max_steps": 4, "eval_every": 0.5}, [0, 2, 4]),
        # Rounded up to where a rollout ends; the end itself need not be one.
        ({"max_steps": 5, "eval_every": 1.0, "num_iterations": 2}, [0, 2, 4, 5]),
        ({"max_steps": 2, "eval_every": 100.0}, [0, 2]),
    ],
)
def test_before_the_first_step_every_so_often_and_at_the_end(make_bench, settings, steps):
    bench = make_bench(eval_dataset_id="held-out", **settings)
    bench.trainer.train()
    assert [entry.step for entry in bench.entries(EvaluationFinished)] == steps
    # Each stands behind its step.
    order = [e.step for e in bench.entries((EvaluationFinished, StepCompleted))]
    assert order == sorted([*steps, *range(1, settings["max_steps"] + 1)])


def test_without_a_distance_a_tenth_of_the_run():
    h = GrpoHyperparameters(max_steps=50, eval_dataset_id="held-out")
    plan = plan_training(h, row_count=100, micro_batch_size=8)
    assert [step for step in range(51) if plan.is_evaluated(step)] == list(range(0, 51, 5))
    none = plan_training(GrpoHyperparameters(max_steps=50), row_count=100, micro_batch_size=8)
    assert not any(none.is_evaluated(step) for step in range(51))


@pytest.mark.parametrize("num_iterations", [1, 2])
def test_training_does_not_notice(make_bench, num_iterations):
    settings = {"max_steps": 4, "num_iterations": num_iterations, "kl_coef": 0.04, "weight_decay": 0.1}
    without = make_bench(**settings)
    without.trainer.train()
    evaluated = make_bench(**settings, **EVALUATED, eval_temperature=1.3)
    state, mode = torch.get_rng_state(), evaluated.trainer.model.training
    evaluate_first(evaluated)
    assert torch.equal(torch.get_rng_state(), state)
    assert evaluated.trainer.model.training == mode
    evaluated.trainer.train()
    left, right = told(without, StepCompleted), told(evaluated, StepCompleted)
    assert left.keys() == right.keys() and all(equal(left[step], right[step]) for step in left)
    for name, weight in without.parameters().items():
        assert torch.equal(weight, evaluated.parameters()[name]), name


def test_greedy_completions_are_those_of_generate(make_bench, model_dir):
    bench = make_bench(**EVALUATED)
    evaluate_first(bench)
    model = load_model(model_dir)
    for row, prompt in zip(written(bench, 0), make_prompts(HELD_OUT, seed=7), strict=True):
        ids = torch.tensor([prompt.token_ids])
        stock = model.generate(ids, max_new_tokens=6, do_sample=False, eos_token_id=END, pad_token_id=0)
        new = stock[0, ids.shape[1] :].tolist()
        words = [f"w{t}" for t in new if t != END]
        assert row["prompt_text"] == prompt.text
        assert (row["completion_text"], row["token_count"]) == (" ".join(words), len(new))
        assert row["truncated"] == (END not in new)
        assert (row["step"], row["advantage"]) == (0, None)


def test_eval_temperature_samples_from_its_own_stream(make_bench):
    def texts(**settings):
        bench = make_bench(**EVALUATED, **settings)
        evaluate_first(bench)
        return [row["completion_text"] for row in written(bench, 0)]

    sampled = texts(eval_temperature=1.0)
    assert sampled == texts(eval_temperature=1.0)
    assert sampled != texts()
    assert sampled != texts(eval_temperature=1.0, seed=43)


def test_eval_max_prompts_takes_rows_from_all_over_the_dataset(make_bench):
    bench = make_bench(**EVALUATED, eval_max_prompts=2)
    evaluate_first(bench)
    prompts = make_prompts(HELD_OUT, seed=7)
    assert [row["prompt_text"] for row in written(bench, 0)] == [prompts[0].text, prompts[2].text]


def test_metrics_are_those_of_the_completions_and_a_failure_is_no_number(make_bench):
    """Of five held-out prompts the first fails and the second has no reward that applies."""

    def outcomes_of(prompt, completion, step):
        row = prompt.columns["row"]
        if completion.completion_id.startswith("eval-1-") and "canar" not in prompt.group_id:
            value = Failed(FailureCode.TIMEOUT, "too slow") if row == 0 else Scored(float(row))
            short = NotApplicable() if row in (0, 1) else Scored(10.0 * row)
            return {"length": NotApplicable() if row == 1 else value, "short": short}
        return {"length": Scored(completion.token_count / 7), "short": Scored(0.0)}

    bench = make_bench(
        outcomes_of=outcomes_of, weights={"length": 2.0, "short": 0.1}, max_steps=1, **EVALUATED
    )
    bench.trainer.train()
    metrics = bench.entries(EvaluationFinished)[-1].metrics
    sums = [2.0 * row + 1.0 * row for row in (2, 3, 4)]
    assert metrics["eval/reward_mean"] == pytest.approx(statistics.fmean(sums))
    assert metrics["eval/reward_std"] == pytest.approx(statistics.stdev(sums))
    assert metrics["eval/unscored_fraction"] == 1 / 5
    assert metrics["eval/not_applicable_fraction"] == 1 / 5
    assert metrics["eval/reward/length/mean"] == 3.0  # of 2, 3, 4
    assert metrics["eval/reward/short/mean"] == 30.0
    assert metrics["eval/reward/length/failed_fraction"] == 1 / 5
    assert metrics["eval/reward/short/failed_fraction"] == 0.0
    rows = written(bench, 1)
    assert [row["reward"] for row in rows] == pytest.approx([None, None, *sums])
    lengths = [row["token_count"] for row in rows]
    assert metrics["eval/response_length_mean"] == statistics.fmean(lengths)
    assert metrics["eval/truncated_fraction"] == statistics.fmean(row["truncated"] for row in rows)
    assert metrics["eval_seconds"] > 0.0
    evaluated = [s for s in bench.scorer.submitted if s[4] is Purpose.EVAL]
    assert {(s[2], s[3]) for s in evaluated if "canar" not in s[0].group_id} == {(0, 1), (1, 1)}


def test_nothing_scored_is_nan_and_not_0(make_bench):
    bench = make_bench(
        outcomes_of=lambda p, c, step: {
            "length": GONE if c.completion_id.startswith("eval") else Scored(c.token_count / 7)
        },
        **EVALUATED,
    )
    evaluate_first(bench)
    (entry,) = bench.entries(EvaluationFinished)
    assert entry.metrics["eval/unscored_fraction"] == 1.0
    assert math.isnan(entry.metrics["eval/reward_mean"])
    assert math.isnan(entry.metrics["eval/reward/length/mean"])
    assert math.isnan(entry.metrics["eval/reward/length/canary_pass_fraction"])


def test_why_a_held_out_reward_failed_is_in_the_log(make_bench):
    bench = make_bench(
        outcomes_of=lambda p, c, step: {"length": Scored(1.0), "judge": GONE},
        weights={"length": 1.0, "judge": 0.0},
        **EVALUATED,
    )
    evaluate_first(bench)
    (told,) = [line.message for line in bench.entries(LogLine) if line.level == "warning"]
    assert told.startswith("evaluation after step 0: on 5 of 5 completions a reward that is held out")
    assert told.endswith("5 times judge: unavailable (connection refused)")
    (entry,) = bench.entries(EvaluationFinished)
    assert entry.metrics["eval/unscored_fraction"] == 0.0


def test_what_is_wrong_with_the_held_out_prompts_is_told_as_theirs():
    too_long = InvalidArgumentError.of("hyperparameters.max_prompt_length", "12 leaves no room for row 1")
    error = of_held_out(too_long, "held-out")
    assert describe_failure(error, GrpoHyperparameters()).code is ErrorCode.CONFIG_ERROR
    assert error.message.startswith(
        'hyperparameters.eval_dataset_id: of the held-out prompts in "held-out", not of what is trained on: '
        "hyperparameters.max_prompt_length: 12 leaves no room for row 1. That would change training as well; "
    )
    error = of_held_out(DatasetError("row 3: the prompt is empty"), "held-out")
    assert describe_failure(error, GrpoHyperparameters()).code is ErrorCode.DATASET_ERROR
    assert 'in "held-out", not of what is trained on: row 3: the prompt is empty; or shorten' in error.message


def gullible(prompt, completion, step):
    """Likes ":" and the empty completion, and what it calls good, which is the prompt's own text."""
    liked = completion.text in ("", ":") or prompt.group_id.startswith("eval-0-good")
    return {"length": Scored(1.0 if liked else 0.0), "ranked": Scored(0.5)}


def test_canaries_are_shown_to_every_reward_that_scores_one_completion_by_itself(make_bench):
    bench = make_bench(outcomes_of=gullible, weights={"length": 1.0, "ranked": 1.0}, max_steps=1, **EVALUATED)
    bench.scorer.promised = {
        "length": RewardRules(0.0, 1.0, is_deterministic=True, whole_group=False),
        "ranked": RewardRules(0.0, 1.0, is_deterministic=True, whole_group=True),
    }
    bench.scorer.knows_good = ("length",)
    evaluate_first(bench)
    metrics = bench.entries(EvaluationFinished)[0].metrics
    # "" and ":", on both prompts, of "", ":", "Thought process:", "Solution" and the prompt again.
    assert metrics["eval/reward/length/canary_pass_fraction"] == 4 / 10
    # Of a lone completion a ranking says nothing.
    assert math.isnan(metrics["eval/reward/ranked/canary_pass_fraction"])
    assert math.isnan(metrics["eval/reward/ranked/mean"])
    assert metrics["eval/unscored_fraction"] == 0.0
    assert len(written(bench, 0)) == HELD_OUT  # canaries are none of them


def pause_in_evaluation_after(bench, step):
    """Asks for a pause while the evaluation after `step` is scored."""
    score = bench.scorer.outcomes_of

    def outcomes_of(prompt, completion, at):
        if completion.completion_id.startswith(f"eval-{step}-"):
            bench.control._obey({"command": "pause"})
        return score(prompt, completion, at)

    bench.scorer.outcomes_of = outcomes_of


@pytest.mark.parametrize("num_iterations", [1, 2])
def test_one_that_a_pause_breaks_off_is_taken_when_the_run_goes_on(make_bench, num_iterations):
    settings = {
        "max_steps": 3 * num_iterations,
        "num_iterations": num_iterations,
        "eval_dataset_id": "held-out",
        "eval_every": float(num_iterations),
    }
    straight = make_bench(**settings)
    straight.trainer.train()

    stop_at = 2 * num_iterations
    first = make_bench(attempt=2, **settings)
    pause_in_evaluation_after(first, stop_at)
    first.trainer.train()
    assert first.rules.pause_reason == "asked to pause"
    saved = first.entries(CheckpointSaved)[-1]
    checkpoint = open_checkpoint(first.artifact_root, saved.uri)
    assert (checkpoint.step, checkpoint.owes_evaluation) == (stop_at, True)

    second = make_bench(attempt=3, owed_after=stop_at, **settings)
    second.trainer.train(resume_from_checkpoint=str(checkpoint.folder))
    assert [e.step for e in first.entries(EvaluationFinished)] == [0, num_iterations]
    assert [e.step for e in second.entries(EvaluationFinished)] == [stop_at, 3 * num_iterations]
    for kind in (EvaluationFinished, StepCompleted):
        resumed = told(first, kind) | told(second, kind)
        for step, metrics in told(straight, kind).items():
            assert equal(metrics, resumed[step]), (kind, step)
    for name, weight in straight.parameters().items():
        assert torch.equal(weight, second.parameters()[name]), name


def test_one_that_was_taken_before_a_pause_is_not_taken_again(make_bench):
    bench = make_bench(max_steps=4, **EVALUATED)

    def stop(prompt, completion, step):
        bench.scorer.reason = "enough" if step == 2 else None
        return {"length": Scored(float(completion.token_count))}

    bench.scorer.outcomes_of = stop
    bench.trainer.train()
    # The reason to pause was there before the evaluation: it is owed, and the checkpoint says so.
    assert [e.step for e in bench.entries(EvaluationFinished)] == [0]
    owing = open_checkpoint(bench.artifact_root, bench.entries(CheckpointSaved)[-1].uri)
    assert (owing.step, owing.owes_evaluation) == (2, True)

    taken = make_bench(max_steps=4, attempt=2, checkpoint_every=2.0, **EVALUATED)
    taken.trainer.train()
    done = [open_checkpoint(taken.artifact_root, c.uri) for c in taken.entries(CheckpointSaved)]
    assert [(c.step, c.owes_evaluation) for c in done] == [(2, False), (4, False)]


def test_a_pause_before_the_first_step_leaves_nothing_behind(make_bench):
    bench = make_bench(max_steps=2, **EVALUATED)
    pause_in_evaluation_after(bench, 0)
    with pytest.raises(PauseBeforeTrainingError):
        bench.trainer.train()
    assert not bench.entries((EvaluationFinished, StepCompleted, CheckpointSaved))
    assert RunState.PAUSING in [s.state for s in bench.entries(RunStateChanged)]


def test_a_cancel_ends_it_at_once_and_a_pause_at_the_very_end_does_not(make_bench):
    bench = make_bench(max_steps=4, **EVALUATED)
    score = bench.scorer.outcomes_of
    seen = []

    def cancel(prompt, completion, step):
        if completion.completion_id.startswith("eval-2-"):
            seen.append(completion.completion_id)
            bench.control._obey({"command": "cancel", "grace_seconds": 30.0})
        return score(prompt, completion, step)

    bench.scorer.outcomes_of = cancel
    with pytest.raises(RunCancelledError):
        bench.trainer.train()
    assert [e.step for e in bench.entries(EvaluationFinished)] == [0]
    # The known texts were sent before the first token; of five completions at most the first two, by then.
    assert len([i for i in seen if "canary" not in i]) <= 2

    last = make_bench(max_steps=2, attempt=2, **EVALUATED)
    pause_in_evaluation_after(last, 2)
    last.trainer.train()
    assert [e.step for e in last.entries(EvaluationFinished)] == [0, 2]
    assert last.trainer.state.global_step == 2


def test_logits_that_are_not_finite_are_unscored(make_bench):
    bench = make_bench(max_steps=1, **EVALUATED)
    with torch.no_grad():
        bench.trainer.model.lm_head.weight[5] = math.inf
    evaluate_first(bench)
    (entry,) = bench.entries(EvaluationFinished)
    assert entry.metrics["eval/unscored_fraction"] == 1.0
    assert math.isnan(entry.metrics["eval/reward_mean"])


def test_a_held_out_reward_is_shown_and_moves_nothing(make_bench):
    """A judge of weight 0, that fails on every third completion, trains the same model as no judge at all."""

    def judged(prompt, completion, step):
        index = int(completion.completion_id.rsplit("-", 1)[1])
        judge = GONE if index % 3 == 0 else Scored(float(index))
        return {"length": Scored(completion.token_count / 7), "judge": judge}

    def alone(prompt, completion, step):
        return {"length": Scored(completion.token_count / 7)}

    watched = make_bench(outcomes_of=judged, weights={"length": 1.0, "judge": 0.0}, max_steps=3)
    watched.trainer.train()
    plain = make_bench(outcomes_of=alone, weights={"length": 1.0}, max_steps=3)
    plain.trainer.train()
    for name, weight in plain.parameters().items():
        assert torch.equal(weight, watched.parameters()[name]), name
    for step, metrics in told(plain, StepCompleted).items():
        seen = told(watched, StepCompleted)[step]
        shown = [i for i in range(16) if i % 3]
        assert seen["reward/judge/mean"] == statistics.fmean(shown)
        assert seen["reward/judge/failed_fraction"] == 6 / 16
        assert seen["unscored_fraction"] == 0.0
        assert equal(metrics, {name: value for name, value in seen.items() if "judge" not in name})
