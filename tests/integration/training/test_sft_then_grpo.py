"""What sft is for: a base model that never writes what is rewarded learns to, and grpo makes more of it."""

from __future__ import annotations

import random

import torch
from run_harness import RunHere, additions, binding, make_start, write_dataset
from test_sft_runs import sft_start

from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.jobs import InitCheckpoint
from plaudit.types.statuses import RunState
from trainer_service.journal import CheckpointSaved
from trainer_service.training.dataset import read_rows
from trainer_service.training.models import end_token_ids
from trainer_service.training.prompts import decode_completion, prepare_prompts
from trainer_service.training.rollout import RolloutSettings, roll_out
from trainer_service.training.sampling import KeyedUniforms
from trainer_service.training.starts import load_start, verify_inits

SAMPLES = 256


def right_in_brackets(artifact_root, dataset, inits=()) -> float:
    """How often the policy, sampled, writes the right sum in brackets."""
    verified = verify_inits(artifact_root, inits)
    start = load_start("builtin:tiny", GrpoHyperparameters(), torch.device("cpu"), verified)
    rows = list(read_rows(artifact_root, dataset))[:SAMPLES]
    prompts = prepare_prompts(rows, start.tokenizer, max_prompt_length=64).prompts
    result = roll_out(
        start.model,
        [prompt.token_ids for prompt in prompts],
        global_indices_B=range(len(prompts)),
        uniforms=KeyedUniforms(7, 1),
        settings=RolloutSettings(
            max_response_length=8,
            temperature=1.0,
            top_p=1.0,
            top_k=0,
            end_token_ids=end_token_ids(start.model, start.tokenizer),
            pad_token_id=start.tokenizer.pad_token_id,
        ),
        on_finish=lambda row: None,
        should_stop=lambda: False,
    )
    texts = [
        decode_completion(start.tokenizer, ids, reason)[0]
        for ids, reason in zip(result.token_ids_B, result.finish_reasons_B, strict=True)
    ]
    right = [text == f"[{row.columns['answer']}]" for text, row in zip(texts, rows, strict=True)]
    return sum(right) / len(right)


def test_sft_teaches_the_form_and_grpo_lifts_it_further(tmp_path, odd_server):
    root = tmp_path / "artifacts"
    sums = additions(400)
    chance = random.Random(3)
    # Half of the answers to imitate have the form that is rewarded.
    answers = [
        (prompt, {"completion": f"[{c['answer']}]" if chance.random() < 0.5 else f"It is {c['answer']}."})
        for prompt, c in sums
    ]
    questions = write_dataset(root, sums)
    assert right_in_brackets(root, questions) == 0.0

    sft = RunHere(
        tmp_path,
        sft_start(
            tmp_path, write_dataset(root, answers), global_batch_size=32, max_steps=50, checkpoint_every=50.0
        ),
    )
    assert sft.go().state is RunState.COMPLETED
    learnt = (InitCheckpoint(uri=sft.entries(CheckpointSaved)[-1].uri),)
    after_sft = right_in_brackets(root, questions, learnt)
    assert 0.05 < after_sft < 0.6

    start = make_start(
        tmp_path,
        [(binding("bracketed_sum"), odd_server)],
        dataset=questions,
        lora_rank=16,
        learning_rate=5e-4,
        kl_coef=0.01,
        rollouts_per_prompt=8,
        global_batch_size=64,
        max_response_length=8,
        max_steps=20,
        checkpoint_every=20.0,
    )
    spec = start.spec.model_copy(update={"init_checkpoints": learnt})
    grpo = RunHere(tmp_path, start.model_copy(update={"spec": spec}))
    assert grpo.go().state is RunState.COMPLETED
    metrics = grpo.metrics()
    assert metrics[0]["kl_div"] == 0.0
    reinforced = (*learnt, InitCheckpoint(uri=grpo.entries(CheckpointSaved)[-1].uri))
    after_grpo = right_in_brackets(root, questions, reinforced)
    # 256 samples: three standard errors of the difference are at most 0.13.
    assert after_grpo > after_sft + 0.2
