"""Every hyperparameter has the effect that its description promises: one test for each."""

import math

import numpy as np
import pytest
import torch
from training_bench import PAD, ScriptedRollout, make_prompts, scripted_completions
from transformers import TrainerCallback

from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.rules import RULES
from plaudit.types.scoring import Failed, FailureCode, FinishReason, Scored
from trainer_service.journal import CheckpointRemoved, CheckpointSaved, StepCompleted

ELSEWHERE = {
    # tests/integration/training: they act where data, model and files are handled
    "max_prompt_length",
    "lora_rank",
    "lora_alpha",
    "load_in_4bit",
    # tests/unit/trainer_service/test_unsloth.py: it acts before the run starts
    "use_unsloth",
    "log_completions",
    # tests/integration/health: it acts in the gateway
    "stop_on",
    # test_evaluations.py
    "eval_dataset_id",
    "eval_every",
    "eval_temperature",
    "eval_max_prompts",
    # test_unscored_gradients.py, test_against_plain_trl.py
    "loss_type",
}


def test_each_is_tested():
    refused = {name for rule in RULES if len(rule.reads) == 1 for name in rule.reads} - {"checkpoint_every"}
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert set(GrpoHyperparameters.model_fields) - refused - ELSEWHERE <= tested


def steps_of(bench):
    return [entry.metrics for entry in bench.entries(StepCompleted)]


def trained(make_bench, **hyperparameters):
    bench = make_bench(**hyperparameters)
    bench.trainer.train()
    return bench


def texts(bench):
    return [[s.completion.text for s in rollout.samples_B] for rollout in bench.rollouts]


def test_learning_rate(make_bench):
    moved = {}
    for rate in (1e-3, 1e-2):
        bench = make_bench(learning_rate=rate, max_steps=1)
        before = bench.parameters()
        bench.trainer.train()
        after = bench.parameters()
        moved[rate] = max((after[name] - before[name]).abs().max().item() for name in before)
        assert steps_of(bench)[0]["learning_rate"] == rate
    # Adam's first step moves every weight by the learning rate, whatever the gradient.
    assert moved[1e-3] == pytest.approx(1e-3, rel=1e-2)
    assert moved[1e-2] == pytest.approx(1e-2, rel=1e-2)


def test_num_epochs(make_bench):
    bench = trained(make_bench, num_epochs=2, max_steps=None, prompt_count=6)
    # 12 prompts, 4 a step
    assert len(steps_of(bench)) == 3
    seen = [s.prompt.row_index for rollout in bench.rollouts for s in rollout.samples_B[::4]]
    assert sorted(seen[:6]) == sorted(seen[6:]) == list(range(6))
    assert seen[:6] != seen[6:]


def test_max_steps(make_bench):
    assert len(steps_of(trained(make_bench, max_steps=3, num_epochs=1))) == 3


def test_rollouts_per_prompt(make_bench):
    bench = trained(make_bench, rollouts_per_prompt=8, max_steps=1)
    groups = [s.group_id for s in bench.rollouts[0].samples_B]
    assert groups == ["1-g0"] * 8 + ["1-g1"] * 8
    assert len({s.prompt.row_index for s in bench.rollouts[0].samples_B}) == 2
    assert {group_size for _, _, _, group_size, _ in bench.scorer.submitted} == {8}


def test_kl_coef(make_bench):
    without, little, much = (trained(make_bench, kl_coef=c, max_steps=2) for c in (0.0, 0.001, 10.0))
    assert without.trainer.ref_model is None and little.trainer.ref_model is not None
    assert steps_of(without)[1]["kl_div"] == 0.0  # nothing to diverge from
    assert steps_of(little)[1]["kl_div"] > 0.0
    assert steps_of(much)[1]["loss"] > steps_of(little)[1]["loss"] + 0.1


def test_max_response_length(make_bench):
    bench = trained(make_bench, max_response_length=3, max_steps=1)
    assert steps_of(bench)[0]["response_length_max"] == 3
    cut = [s for s in bench.rollouts[0].samples_B if s.completion.finish_reason is FinishReason.LENGTH]
    assert cut and all(s.completion.token_count == 3 for s in cut)
    assert steps_of(bench)[0]["truncated_fraction"] == len(cut) / 16


def test_global_batch_size(make_bench):
    bench = trained(make_bench, global_batch_size=24, micro_batch_size=12, max_steps=1)
    assert len(bench.rollouts[0].samples_B) == 24


def test_seed(make_bench):
    one, same, other = (trained(make_bench, seed=s, max_steps=2) for s in (1, 1, 2))
    assert texts(one) == texts(same)
    assert texts(one) != texts(other)
    assert [s.prompt for s in one.rollouts[0].samples_B] != [s.prompt for s in other.rollouts[0].samples_B]


def test_temperature(make_bench):
    cold, warm = (trained(make_bench, temperature=t, max_steps=1) for t in (0.2, 1.0))
    # Both the sampling and the log-probabilities that are trained on are those of the tempered policy.
    assert steps_of(cold)[0]["policy_entropy"] < 0.6 * steps_of(warm)[0]["policy_entropy"]
    assert len(set(texts(cold)[0])) < len(set(texts(warm)[0]))


@pytest.mark.parametrize(("name", "value"), [("top_k", 1), ("top_p", 1e-6)])
def test_top_k_and_top_p(make_bench, name, value):
    bench = trained(make_bench, max_steps=1, **{name: value})
    groups = np.array(texts(bench)[0]).reshape(4, 4)
    assert all(len(set(group)) == 1 for group in groups)


test_top_k = test_top_p = test_top_k_and_top_p


def test_num_iterations(make_bench):
    bench = trained(make_bench, num_iterations=2, max_steps=4)
    assert [rollout.step for rollout in bench.rollouts] == [1, 3]
    one, two, three, _ = steps_of(bench)
    assert one["reward_mean"] == two["reward_mean"] != three["reward_mean"]
    assert two["rollout_seconds"] == 0.0 < one["rollout_seconds"]
    assert trained(make_bench, num_iterations=2, max_steps=None).trainer.state.global_step == 4  # 2 x 8 / 4


def test_clip_epsilon(make_bench):
    # The second step on a rollout sees the policy that the first has moved.
    tight, loose = (
        trained(make_bench, clip_epsilon=e, num_iterations=2, max_steps=2) for e in (0.001, 0.999)
    )
    assert steps_of(tight)[0]["clip_fraction"] == 0.0
    assert steps_of(tight)[1]["clip_fraction"] > 0.3
    assert steps_of(loose)[1]["clip_fraction"] < 0.2
    assert steps_of(tight)[1]["grad_norm"] < steps_of(loose)[1]["grad_norm"]


def by_index(prompt, completion, step):
    return {"length": Scored(float(int(completion.completion_id.split("-")[1]) ** 2))}


def test_scale_rewards(make_bench):
    advantages = {}
    for scale in ("group", "batch", "none"):
        bench = trained(make_bench, scale_rewards=scale, outcomes_of=by_index, max_steps=1)
        advantages[scale] = bench.rollouts[0].advantages.advantages_B
        in_loss = torch.cat([batch["advantages"] for batch in bench.trainer._micro_batches])
        np.testing.assert_allclose(sorted(in_loss.tolist()), sorted(advantages[scale]), rtol=1e-6)
    squares = np.arange(16.0).reshape(4, 4) ** 2
    differences = squares - squares.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(advantages["none"], differences.ravel())
    np.testing.assert_allclose(advantages["batch"], differences.ravel() / (squares.std(ddof=1) + 1e-4))
    np.testing.assert_allclose(
        advantages["group"], (differences / (squares.std(axis=1, ddof=1, keepdims=True) + 1e-4)).ravel()
    )


def test_lr_scheduler(make_bench):
    rates = {
        kind: [m["learning_rate"] for m in steps_of(trained(make_bench, lr_scheduler=kind, max_steps=4))]
        for kind in ("constant", "linear", "cosine")
    }
    assert rates["constant"] == [1e-2] * 4
    assert rates["linear"] == pytest.approx([1e-2 * (1 - n / 4) for n in range(4)])
    assert rates["cosine"] == pytest.approx([1e-2 * (1 + math.cos(math.pi * n / 4)) / 2 for n in range(4)])


@pytest.mark.parametrize("kind", ["constant", "linear", "cosine"])
def test_warmup_steps(make_bench, kind):
    bench = trained(make_bench, warmup_steps=2, lr_scheduler=kind, max_steps=3)
    assert [m["learning_rate"] for m in steps_of(bench)] == pytest.approx([0.0, 5e-3, 1e-2])


def test_weight_decay(make_bench):
    plain = make_bench(max_steps=1)
    before = plain.parameters()
    plain.trainer.train()
    decayed = trained(make_bench, weight_decay=0.5, max_steps=1)
    name = "model.layers.0.mlp.up_proj.weight"
    # Decoupled: a step takes learning_rate times weight_decay of each weight, beside the gradient's share.
    torch.testing.assert_close(
        decayed.parameters()[name], plain.parameters()[name] - 1e-2 * 0.5 * before[name], rtol=0, atol=1e-6
    )


class Norms(TrainerCallback):
    def __init__(self):
        self.seen = []

    def on_pre_optimizer_step(self, args, state, control, *, model, **_):
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        self.seen.append(torch.nn.utils.get_total_norm(gradients).item())


def test_max_grad_norm(make_bench):
    norms = {}
    for limit in (0.0, 0.01):
        bench = make_bench(max_grad_norm=limit, max_steps=1)
        callback = Norms()
        bench.trainer.add_callback(callback)
        bench.trainer.train()
        norms[limit] = callback.seen[0]
        # What is told is the norm before clipping.
        assert steps_of(bench)[0]["grad_norm"] == pytest.approx(norms[0.0], rel=1e-4)
    assert norms[0.0] > 0.1
    assert norms[0.01] == pytest.approx(0.01, rel=1e-3)


def test_micro_batch_size(make_bench):
    passes = {}
    for size in (4, 16):
        bench = trained(make_bench, micro_batch_size=size, max_steps=1)
        passes[size] = [len(batch["completion_ids"]) for batch in bench.trainer._micro_batches]
        norm = steps_of(bench)[0]["grad_norm"]
    assert passes == {4: [4] * 4, 16: [16]}
    assert norm == pytest.approx(
        steps_of(trained(make_bench, micro_batch_size=4, max_steps=1))[0]["grad_norm"], rel=1e-4
    )


def test_mask_truncated(make_bench):
    completions = scripted_completions(16, 6, seed=4)
    cut = [b for b, (_, reason) in enumerate(completions) if reason is FinishReason.LENGTH]
    assert 0 < len(cut) < 16
    masked, whole = (
        trained(
            make_bench,
            rollout=ScriptedRollout(completions),
            mask_truncated=mask,
            max_steps=1,
            micro_batch_size=16,
        )
        for mask in (True, False)
    )
    # They stay in the baseline: the advantages are the same.
    np.testing.assert_array_equal(
        masked.rollouts[0].advantages.advantages_B, whole.rollouts[0].advantages.advantages_B
    )
    taught = {
        tuple(ids[mask.bool()].tolist())
        for ids, mask in zip(
            masked.trainer._micro_batches[0]["completion_ids"],
            masked.trainer._micro_batches[0]["completion_mask"],
            strict=True,
        )
    }
    assert taught - {()} == {tuple(ids) for b, (ids, _) in enumerate(completions) if b not in cut}
    tokens = sum(len(ids) for b, (ids, _) in enumerate(completions) if b not in cut)
    assert masked.trainer._micro_batches[0]["num_items_in_batch"] == tokens
    assert steps_of(masked)[0]["truncated_fraction"] == len(cut) / 16


def test_gradient_checkpointing(make_bench):
    norms = {}
    for setting in ("on", "off", "auto"):
        bench = trained(make_bench, gradient_checkpointing=setting, max_steps=2)
        assert bench.trainer.model.is_activation_checkpointing is (setting == "on")
        norms[setting] = [m["grad_norm"] for m in steps_of(bench)]
    assert norms["on"] == pytest.approx(norms["off"], rel=1e-5)
    assert norms["auto"] == norms["off"]


def test_dtype(make_bench):
    half, single, auto = (trained(make_bench, dtype=d, max_steps=1) for d in ("bfloat16", "float32", "auto"))
    assert {p.dtype for p in half.trainer.model.parameters()} == {torch.float32}
    assert steps_of(half)[0]["policy_entropy"] != steps_of(single)[0]["policy_entropy"]
    assert steps_of(half)[0]["policy_entropy"] == pytest.approx(
        steps_of(single)[0]["policy_entropy"], rel=0.2
    )
    assert steps_of(auto)[0]["policy_entropy"] == steps_of(single)[0]["policy_entropy"]


@pytest.mark.parametrize(("every", "steps"), [(0.5, [3, 6]), (2.0, [2, 4, 6]), (0.01, [1, 2, 3, 4, 5, 6])])
def test_checkpoint_every(make_bench, every, steps):
    bench = trained(make_bench, checkpoint_every=every, max_steps=6, checkpoint_keep=9)
    assert [c.step for c in bench.entries(CheckpointSaved)] == steps


def test_checkpoint_keep(make_bench):
    bench = trained(make_bench, checkpoint_every=1.0, max_steps=5, checkpoint_keep=2)
    assert [c.step for c in bench.entries(CheckpointRemoved)] == [1, 2, 3]
    folder = bench.artifact_root / "jobs/job/attempt-1"
    assert sorted(p.name for p in folder.iterdir()) == ["checkpoint-000004", "checkpoint-000005"]


def test_max_unscored_fraction(make_bench):
    def three_quarters_fail(prompt, completion, step):
        index = int(completion.completion_id.split("-")[1])
        return {"length": Scored(float(index)) if index < 4 else Failed(FailureCode.TIMEOUT, "late")}

    strict, lenient = (
        trained(make_bench, outcomes_of=three_quarters_fail, max_unscored_fraction=f, max_steps=2)
        for f in (0.7, 0.75)
    )
    assert len(steps_of(strict)) == 1 and len(steps_of(lenient)) == 2


def test_every_prompt_is_padded_as_the_model_expects(make_bench):
    bench = trained(make_bench, max_steps=1, micro_batch_size=16)
    batch = bench.trainer._micro_batches[0]
    by_row = {p.token_ids for p in make_prompts(8)}
    for ids, mask in zip(batch["prompt_ids"], batch["prompt_mask"], strict=True):
        assert tuple(ids[mask.bool()].tolist()) in by_row
        assert set(ids[~mask.bool()].tolist()) <= {PAD}
