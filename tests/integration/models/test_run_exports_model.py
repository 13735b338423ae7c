"""What a run leaves when its steps are done: a model that plain transformers loads, or why there is none."""

from __future__ import annotations

import hashlib
import json

import pytest
import torch
from peft import PeftModel
from run_harness import RunHere, additions, binding, make_start, reward_server, write_dataset
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from plaudit.types.jobs import RunSpec
from plaudit.types.sft_hyperparameters import SftHyperparameters
from plaudit.types.statuses import ErrorCode, RunState
from trainer_service.journal import CheckpointSaved, ModelExported
from trainer_service.run_directory import RunStart
from trainer_service.training import release
from trainer_service.training.tiny import tiny_model_path

pytestmark = pytest.mark.timeout(300)

QUESTIONS = ("What is 2 + 3?", "What is 11 + 8?", "What is 7 + 12?")
ADAPTERS = {"lora_rank": 4, "learning_rate": 1e-3, "max_steps": 2}


@pytest.fixture(scope="module")
def odd_server():
    with reward_server() as (address, _):
        yield address


@pytest.fixture
def dataset(tmp_path):
    return write_dataset(tmp_path / "artifacts", additions())


def answers(model, tokenizer) -> list[list[int]]:
    written = []
    for question in QUESTIONS:
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True, tokenize=False
        )
        ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)
        written.append(model.generate(**ids, max_new_tokens=16, do_sample=False)[0].tolist())
    return written


def logits(model, tokenizer) -> torch.Tensor:
    with torch.no_grad():
        return model(**tokenizer(QUESTIONS[0], return_tensors="pt")).logits


def test_the_model_writes_what_base_and_adapters_of_the_checkpoint_write(tmp_path, odd_server, dataset):
    start = make_start(tmp_path, [(binding("brevity"), odd_server)], dataset=dataset, **ADAPTERS)
    run = RunHere(tmp_path, start)
    assert run.go().state is RunState.COMPLETED
    assert "exporting the model" in run.details
    (told,) = run.entries(ModelExported)
    assert (told.step, told.error) == (2, None)
    assert told.model is not None
    assert (told.model.kind, told.model.dtype) == ("merged", "float32")
    root = tmp_path / "artifacts"
    folder = root / told.model.uri
    assert told.model.uri == "jobs/job/attempt-1/model"
    # Every file is told, and is what was told.
    on_disk = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert {f.path: (f.size_bytes, f.sha256) for f in told.model.files} == {
        path: (len(data), hashlib.sha256(data).hexdigest())
        for path, data in on_disk.items()
        if path != "manifest.json"
    }
    facts = json.loads(on_disk["manifest.json"])
    assert (facts["job_id"], facts["step"], facts["base_model"]) == ("job", 2, "builtin:tiny")
    card = on_disk["README.md"].decode()
    for words in ('base_model: "builtin:tiny"', "grpo, job `job`, after step 2", "- lora_rank: 4"):
        assert words in card
    assert "The licence of the base model applies." in card

    tokenizer = AutoTokenizer.from_pretrained(folder)
    exported = AutoModelForCausalLM.from_pretrained(folder)
    base = AutoModelForCausalLM.from_pretrained(tiny_model_path())
    before = logits(base, tokenizer)
    checkpoint = root / run.entries(CheckpointSaved)[-1].uri
    policy = PeftModel.from_pretrained(base, checkpoint).eval()
    assert torch.allclose(logits(exported, tokenizer), logits(policy, tokenizer), atol=1e-4)
    assert (logits(exported, tokenizer) - before).abs().max() > 1e-2
    assert answers(exported, tokenizer) == answers(policy, tokenizer)
    assert not [p.name for p in folder.parent.iterdir() if p.name.startswith(".")]


def test_a_policy_that_learnt_nothing_completes_and_is_told(tmp_path, odd_server, dataset):
    # No completion is ever right in brackets: all groups are tied, and without a KL term nothing moves.
    settings = {**ADAPTERS, "kl_coef": 0.0}
    start = make_start(tmp_path, [(binding("bracketed_sum"), odd_server)], dataset=dataset, **settings)
    run = RunHere(tmp_path, start)
    assert run.go().state is RunState.COMPLETED
    (told,) = run.entries(ModelExported)
    assert told.model is None
    assert told.error is not None
    assert told.error.code is ErrorCode.MODEL_ERROR
    assert "exactly what its base model writes" in told.error.message
    attempt = tmp_path / "artifacts" / "jobs" / "job" / "attempt-1"
    assert not [p.name for p in attempt.iterdir() if "model" in p.name]


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), ErrorCode.OUT_OF_MEMORY, "memory ran out"),
        (OSError(28, "No space left on device"), ErrorCode.MODEL_ERROR, "No space left"),
        (KeyError("odd"), ErrorCode.MODEL_ERROR, "stopped with KeyError"),
    ],
)
def test_whatever_goes_wrong_at_the_export_the_run_is_completed(tmp_path, monkeypatch, error, code, words):
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(release, "hand_out", fail)
    told = []

    class Reporter:
        def waiting_for(self, detail: str) -> None:
            pass

        def append(self, entry: object) -> None:
            told.append(entry)

    (tmp_path / "jobs" / "job_1" / "attempt-1" / "checkpoint-000007").mkdir(parents=True)
    start = RunStart.model_construct(job_id="job_1", attempt=1, artifact_root=tmp_path, spec=None)
    release.release_final_model(start, Reporter())
    (entry,) = told
    assert (entry.step, entry.model, entry.error.code) == (7, None, code)
    assert words in entry.error.message


def test_an_attempt_without_a_step_to_do_exports_what_it_started_from(tmp_path, odd_server, dataset):
    rewards = [(binding("brevity"), odd_server)]
    first = RunHere(tmp_path, make_start(tmp_path, rewards, dataset=dataset, **ADAPTERS))
    first.go()
    root = tmp_path / "artifacts"
    attempt = root / "jobs/job/attempt-1"
    exported = load_file(attempt / "model" / "model.safetensors")
    # As after a kill in the midst of the export.
    (attempt / "model").rename(attempt / ".model.staged")
    second = RunHere(
        tmp_path,
        make_start(
            tmp_path,
            rewards,
            dataset=dataset,
            attempt=2,
            checkpoint_uri=first.entries(CheckpointSaved)[-1].uri,
            **ADAPTERS,
        ),
    )
    assert second.go().state is RunState.COMPLETED
    (told,) = second.entries(ModelExported)
    assert told.model is not None
    assert (told.step, told.model.uri) == (2, "jobs/job/attempt-2/model")
    again = load_file(root / told.model.uri / "model.safetensors")
    assert set(again) == set(exported)
    assert all(torch.equal(again[name], exported[name]) for name in exported)
    assert not (attempt / ".model.staged").exists()


def test_sft_exports_all_weights(tmp_path):
    rows = [([{"role": "user", "content": f"Say {n}"}], {"completion": f"It is {n}."}) for n in range(16)]
    spec = RunSpec(
        base_model="builtin:tiny",
        output_name="sayer",
        method="sft",
        hyperparameters=SftHyperparameters(max_steps=2, global_batch_size=8, learning_rate=1e-4),
        dataset=write_dataset(tmp_path / "artifacts", rows),
        rewards=(),
    )
    start = RunStart(run_id="run_1", job_id="job", attempt=1, spec=spec, artifact_root=tmp_path / "artifacts")
    run = RunHere(tmp_path, start)
    assert run.go().state is RunState.COMPLETED
    (told,) = run.entries(ModelExported)
    assert told.model is not None
    assert (told.model.kind, told.step) == ("full", 2)
    root = tmp_path / "artifacts"
    exported = load_file(root / told.model.uri / "model.safetensors")
    trained = load_file(root / run.entries(CheckpointSaved)[-1].uri / "model.safetensors")
    assert set(exported) == set(trained)
    assert all(torch.equal(exported[name], trained[name]) for name in trained)
    card = (root / told.model.uri / "README.md").read_text()
    assert "## Rewards" not in card
