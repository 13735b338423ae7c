"""An exported model writes what the policy writes, wherever it is loaded, or is not handed out."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from peft import PeftModel, get_peft_model
from safetensors.torch import load_file

from plaudit.types.hyperparameters import GrpoHyperparameters
from trainer_service.training.export import ExportError, export_model
from trainer_service.training.models import load_policy, lora_config

CPU = torch.device("cpu")
TINY = "builtin:tiny"
KINDS = {
    "full": GrpoHyperparameters(),
    "adapters": GrpoHyperparameters(lora_rank=8),
    "four bits": GrpoHyperparameters(lora_rank=8, load_in_4bit=True),
}
QUESTIONS = ["What is 2 + 3?", "What is 11 + 8?", "Hello"]

# Nothing of ours: what a user of the model runs.
PLAIN = """
import json, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, questions = sys.argv[1], json.loads(sys.argv[2])
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
assert "plaudit" not in sys.modules and "trainer_service" not in sys.modules
told = []
for question in questions:
    ids = tokenizer(question, return_tensors="pt")
    told.append(model.generate(**ids, max_new_tokens=24, do_sample=False)[0].tolist())
print(json.dumps(told))
"""


def trained(kind, folder, scale=0.02):
    """A policy that has moved by `scale` in every trained weight, and its checkpoint."""
    torch.manual_seed(1)
    model, tokenizer = load_policy(TINY, KINDS[kind], CPU)
    if kind != "full":
        model = get_peft_model(model, lora_config(model, KINDS[kind]))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad and (kind == "full" or "lora_B" in name):
                parameter.add_(scale * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return model.eval(), tokenizer


def export(kind, tmp_path, tokenizer, **settings):
    return export_model(
        tmp_path / "checkpoint",
        tmp_path / "model",
        base_model=TINY,
        hyperparameters=KINDS[kind],
        probes=[tokenizer(question)["input_ids"] for question in QUESTIONS],
        device=CPU,
        **settings,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_plain_transformers_writes_what_the_policy_writes(tmp_path, kind):
    policy, tokenizer = trained(kind, tmp_path / "checkpoint")
    written = []
    for question in QUESTIONS:
        ids = tokenizer(question, return_tensors="pt")
        written.append(policy.generate(**ids, max_new_tokens=24, do_sample=False)[0].tolist())

    report = export(kind, tmp_path, tokenizer)
    assert report.probes == 3
    assert report.from_policy < 1e-4 < report.from_base

    done = subprocess.run(
        [sys.executable, "-c", PLAIN, str(tmp_path / "model"), json.dumps(QUESTIONS)],
        capture_output=True, text=True, timeout=100, cwd=tmp_path,
    )  # fmt: skip
    assert json.loads(done.stdout.splitlines()[-1]) == written, done.stderr
    # Nothing that belongs to training or to adapters, and no other format than safetensors.
    names = {path.name for path in (tmp_path / "model").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names
    assert not {n for n in names if "adapter" in n or n.endswith((".pt", ".bin")) or n == "manifest.json"}
    assert {w.dtype for w in load_file(tmp_path / "model" / "model.safetensors").values()} == {torch.float32}
    assert not (tmp_path / ".model.unfinished").exists()


def test_bfloat16_is_half_the_size_where_it_keeps_what_was_learnt(tmp_path):
    _, tokenizer = trained("full", tmp_path / "checkpoint", scale=0.05)
    export("full", tmp_path, tokenizer)
    whole = (tmp_path / "model" / "model.safetensors").stat().st_size
    export("full", tmp_path, tokenizer, weight_type="bfloat16")
    assert (tmp_path / "model" / "model.safetensors").stat().st_size < 0.51 * whole


def test_bfloat16_that_rounds_away_what_was_learnt_is_refused(tmp_path):
    _, tokenizer = trained("adapters", tmp_path / "checkpoint", scale=1e-5)
    with pytest.raises(ExportError, match='round away what was learnt; export it as "float32"'):
        export("adapters", tmp_path, tokenizer, weight_type="bfloat16")
    assert not (tmp_path / "model").exists()
    report = export("adapters", tmp_path, tokenizer)
    assert report.from_policy < report.from_base / 2


@pytest.mark.parametrize("kind", ["full", "adapters"])
def test_a_policy_that_has_not_moved_is_told(tmp_path, kind):
    _, tokenizer = trained(kind, tmp_path / "checkpoint", scale=0.0)
    with pytest.raises(ExportError, match="exactly what its base model writes"):
        export(kind, tmp_path, tokenizer)
    assert not (tmp_path / "model").exists()


def test_a_merge_that_loses_the_adapters_is_caught(tmp_path, monkeypatch):
    _, tokenizer = trained("adapters", tmp_path / "checkpoint")
    # The fault is planted: what comes back is the base model.
    monkeypatch.setattr(PeftModel, "merge_and_unload", lambda model: model.unload(), raising=False)
    with pytest.raises(ExportError, match="does not write what the policy writes"):
        export("adapters", tmp_path, tokenizer)
    assert not (tmp_path / "model").exists()


def test_an_earlier_export_is_replaced_whole(tmp_path):
    _, tokenizer = trained("full", tmp_path / "checkpoint")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model-00001-of-00002.safetensors").write_text("of an older export")
    export("full", tmp_path, tokenizer)
    assert not (tmp_path / "model" / "model-00001-of-00002.safetensors").exists()
