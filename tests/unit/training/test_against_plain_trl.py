"""Where everything is scored, our trainer takes the steps that TRL's own takes."""

import pytest
import torch
from datasets import Dataset
from training_bench import (
    ScriptedRollout,
    drifted_model,
    load_tokenizer,
    make_prompts,
    scripted_completions,
)
from trl import GRPOConfig, GRPOTrainer

from plaudit.types.scoring import Scored

BATCH, LONGEST, PROMPTS = 16, 6, 16
STEPS = {
    "num_generations": 4,
    "max_completion_length": LONGEST,
    "max_steps": 4,
    "learning_rate": 1e-2,
    "lr_scheduler_type": "linear",
    "warmup_steps": 1,
    "weight_decay": 0.1,
    "beta": 0.04,
    "seed": 11,
}


def reward_of(index: int) -> float:
    return ((index * 5) % 7) / 3.0


class PlainTrainer(GRPOTrainer):
    """TRL's trainer; only the sampling is replaced, as chance would give other completions."""

    def _generate_single_turn(self, prompt_ids, images, multimodal_fields, num_generations, *_):
        self.prompts_seen = [tuple(ids) for ids in prompt_ids]
        return [list(tokens) for tokens, _ in self.completions], None


def train_plainly(model_dir, tmp_path, completions, **config):
    prompts = make_prompts(PROMPTS)
    trainer = PlainTrainer(
        model=drifted_model(model_dir),
        reward_funcs=[lambda prompts, **_: [reward_of(i) for i in range(len(prompts))]],
        args=GRPOConfig(
            output_dir=str(tmp_path / "plain"),
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            report_to=[],
            disable_tqdm=True,
            save_strategy="no",
            logging_steps=1,
            # One micro-batch, so that its means are over all tokens, as ours are.
            per_device_train_batch_size=BATCH,
            optim="adamw_torch",
            **STEPS,
            **config,
        ),
        train_dataset=Dataset.from_dict({"prompt": [p.text for p in prompts]}),
        processing_class=load_tokenizer(model_dir),
    )
    trainer.completions = completions
    trainer.train()
    return trainer


@pytest.mark.parametrize("num_iterations", [1, 2])
@pytest.mark.parametrize("loss_type", ["dapo", "grpo", "dr_grpo"])
def test_takes_the_same_steps(make_bench, model_dir, tmp_path, loss_type, num_iterations):
    completions = scripted_completions(BATCH, LONGEST, seed=5)
    plain = train_plainly(
        model_dir, tmp_path, completions, loss_type=loss_type, num_iterations=num_iterations
    )
    bench = make_bench(
        model=drifted_model(model_dir),
        outcomes_of=lambda prompt, completion, step: {
            "length": Scored(reward_of(int(completion.completion_id.split("-")[1])))
        },
        rollout=ScriptedRollout(completions),
        prompt_count=PROMPTS,
        micro_batch_size=8,
        max_response_length=LONGEST,
        max_steps=4,
        learning_rate=1e-2,
        lr_scheduler="linear",
        warmup_steps=1,
        weight_decay=0.1,
        kl_coef=0.04,
        seed=11,
        loss_type=loss_type,
        num_iterations=num_iterations,
    )
    bench.trainer.train()

    assert [s.prompt.token_ids for s in bench.rollouts[-1].samples_B] == plain.prompts_seen
    before = dict(drifted_model(model_dir).named_parameters())
    theirs = dict(plain.model.named_parameters())
    for name, ours in bench.parameters().items():
        if name.endswith("k_proj.bias"):
            # Adds the same to every key, which a softmax does not see: its gradient is rounding.
            continue
        moved = (theirs[name] - before[name]).abs().max()
        assert moved > 1e-3
        # Adam divides small gradients by their own size, which magnifies rounding.
        torch.testing.assert_close(ours, theirs[name], rtol=0, atol=float(moved) * 0.01, msg=name)

    log = [entry for entry in plain.state.log_history if "loss" in entry]
    steps = [entry.metrics for entry in bench.entries(object) if hasattr(entry, "metrics")]
    for mine, trl in zip(steps, log, strict=True):
        assert mine["loss"] == pytest.approx(trl["loss"], rel=1e-3, abs=1e-4)
        assert mine["learning_rate"] == pytest.approx(trl["learning_rate"], rel=1e-9)
        assert mine["grad_norm"] == pytest.approx(trl["grad_norm"], rel=1e-3)
        if "reward" in trl:
            assert mine["reward_mean"] == pytest.approx(trl["reward"], rel=1e-6)
            assert mine["reward_std_batch"] == pytest.approx(trl["reward_std"], rel=1e-6)
            assert mine["response_length_mean"] == trl["completions/mean_length"]
            assert mine["truncated_fraction"] == trl["completions/clipped_ratio"]
            assert mine["zero_std_group_fraction"] == trl["frac_reward_zero_std"]
        assert mine["kl_div"] == pytest.approx(trl["kl"], rel=1e-3)
        assert mine["policy_entropy"] == pytest.approx(trl["entropy"], rel=1e-3)
        assert mine["clip_fraction"] == pytest.approx(trl["clip_ratio/region_mean"], abs=0.02)
