"""The policy scores the first micro-batch while rewards are computed, and no micro-batch twice."""

import math

import pytest
import torch
from training_bench import ScriptedRollout, ScriptedScorer, load_model, scripted_completions

from plaudit.types.scoring import Failed, FailureCode, Scored
from trainer_service.journal import StepCompleted

LONGEST = 6


class WatchfulScorer(ScriptedScorer):
    """Notes how many tokens the policy had read with gradients each time that its scores were waited for."""

    def watch(self, model):
        self.read = 0
        self.read_by_then = []

        def note(_, inputs):
            if torch.is_grad_enabled():
                self.read += inputs[0].numel()

        model.get_input_embeddings().register_forward_pre_hook(note)

    def wait(self, completion_ids, timeout):
        self.read_by_then.append(self.read)
        return super().wait(completion_ids, timeout)


@pytest.mark.parametrize("num_iterations", [1, 2])
@pytest.mark.parametrize("loss_type", ["dapo", "bnpo"])
def test_the_first_micro_batch_passes_before_scores_are_waited_for(make_bench, loss_type, num_iterations):
    completions = [
        ([2 + row % 40] * LONGEST, reason) for row, (_, reason) in enumerate(scripted_completions(16, 6))
    ]
    scorer = WatchfulScorer(lambda prompt, completion, step: {"length": Scored(len(completion.text) % 5)})
    bench = make_bench(
        scorer=scorer,
        rollout=ScriptedRollout(completions),
        micro_batch_size=4,
        max_steps=2 * num_iterations,
        num_iterations=num_iterations,
        loss_type=loss_type,
    )
    assert bench.trainer.prompt_sharing.exact
    scorer.watch(bench.trainer.model)
    bench.trainer.train()
    first, second = scorer.read_by_then
    # A quarter of a rollout, each token of a completion once, and not all of the prompts.
    assert 4 * LONGEST <= first < 4 * LONGEST + 4 * 9
    steps = [entry.metrics for entry in bench.entries(StepCompleted)]
    assert len(steps) == 2 * num_iterations
    # Four micro-batches, an iteration: the first rollout has passed once in each, and then one more began.
    assert num_iterations * 16 * LONGEST + 4 * LONGEST <= second
    assert second < (num_iterations + 0.25) * 16 * (LONGEST + 8)


def test_an_unscored_completion_that_was_next_to_impossible_moves_nothing(make_bench, model_dir, tmp_path):
    """exp(0 - (-200)) is infinite in float32, and infinity times a mask of 0 is NaN."""
    model = load_model(model_dir)
    with torch.no_grad():
        model.model.norm.weight *= 40
    # From there TRL loads the reference model.
    model.save_pretrained(tmp_path / "steep")

    def outcomes_of(prompt, completion, step):
        index = int(completion.completion_id.split("-")[1])
        return {"length": Failed(FailureCode.UNAVAILABLE, "gone") if index % 2 else Scored(float(index))}

    bench = make_bench(
        model=load_model(tmp_path / "steep"),
        outcomes_of=outcomes_of,
        rollout=ScriptedRollout(scripted_completions(16, LONGEST)),
        micro_batch_size=16,
        max_steps=1,
        max_unscored_fraction=1.0,
        kl_coef=0.04,
        learning_rate=1e-9,
    )
    lowest = []
    ahead = bench.trainer._pass_ahead

    def note():
        ahead()
        lowest.append(float(bench.trainer._ahead[0].min()))

    bench.trainer._pass_ahead = note
    bench.trainer.train()
    (step,) = bench.entries(StepCompleted)
    assert lowest[0] < -120
    assert step.metrics["unscored_fraction"] == 0.5
    assert step.metrics["step_skipped"] == 0.0
    assert math.isfinite(step.metrics["loss"])
