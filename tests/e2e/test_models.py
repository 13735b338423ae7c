"""A trained model on its way to its user: by command line and plain HTTP, into plain transformers."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from stack import Stack

from plaudit.client import models
from plaudit.types.statuses import JobStatus

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

BIN = Path(sys.executable).parent
QUESTIONS = ["What is 2 + 3?", "What is 11 + 8?", "What is 14 + 3?"]
JOB = {
    "base_model": "builtin:tiny",
    "dataset_id": "builtin:additions",
    "output_name": "adder",
    "hyperparameters": {
        "learning_rate": 1e-3,
        "max_steps": 4,
        "checkpoint_every": 2,
        "rollouts_per_prompt": 4,
        "global_batch_size": 16,
        "max_response_length": 16,
        "lora_rank": 8,
    },
    "rewards": [{"server": "builtin", "reward": "exact_answer"}],
}

# Nothing of ours: what a user of the model runs. A second folder holds adapters for the base model.
PLAIN = """
import json, sys
from transformers import AutoModelForCausalLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
models = [AutoModelForCausalLM.from_pretrained(sys.argv[1])]
if len(sys.argv) > 3:
    from peft import PeftModel
    models.append(PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(sys.argv[3]), sys.argv[4]))
assert not {"plaudit", "trainer_service"} & set(sys.modules)
told = []
for model in models:
    written = []
    for question in json.loads(sys.argv[2]):
        chat = [{"role": "user", "content": question}]
        text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)
        made = model.generate(**ids, max_new_tokens=24, do_sample=False)[0, ids["input_ids"].shape[1] :]
        written.append(tokenizer.decode(made, skip_special_tokens=True))
    told.append(written)
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One of its own, as its services are killed."""
    running = Stack(Path(tmp_path_factory.mktemp("models")))
    try:
        running.start()
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def trained(stack: Stack) -> str:
    """A completed job."""
    with stack.client() as client:
        job = client.training_jobs.wait(client.training_jobs.submit(JOB).id)
        assert job.status is JobStatus.COMPLETED, stack.logs()
        return job.id


@pytest.fixture
def plaudit(stack: Stack, tmp_path: Path) -> Callable[..., str]:
    environment = {
        **os.environ,
        "PLAUDIT_ADDRESS": stack.grpc_address,
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "HF_HUB_OFFLINE": "1",
    }

    def run(*arguments: str, status: int = 0, given: str | None = None) -> str:
        done = subprocess.run(
            [str(BIN / "plaudit"), "model", *arguments],
            env=environment, input=given, capture_output=True, text=True, timeout=200,
        )  # fmt: skip
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout if status == 0 else done.stderr

    return run


def plain(*arguments: str, cwd: Path) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", PLAIN, *arguments],
        capture_output=True, text=True, timeout=200, cwd=cwd, env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_what_is_downloaded_writes_what_the_policy_writes(
    stack: Stack, trained: str, plaudit: Callable[..., str], tmp_path: Path
) -> None:
    shown = json.loads(plaudit("get", "adder", "--json"))
    assert (shown["job_id"], shown["step"], shown["status"]) == (trained, 4, "available")
    folder = tmp_path / "by_command"
    told = json.loads(plaudit("download", "adder", "--to", str(folder), "--json"))
    assert told["folder"] == str(folder)

    by_http = tmp_path / "by_http"
    by_http.mkdir()
    answer = httpx2.get(f"{stack.http_url}/v1/training_jobs/{trained}/model").json()
    assert {file["path"] for file in answer["files"]} == {path.name for path in folder.iterdir()}
    for file in answer["files"]:
        # As a client does that was cut off: the second half first.
        half = file["size_bytes"] // 2
        end = httpx2.get(file["url"], headers={"Range": f"bytes={half}-"}).content
        start = httpx2.get(file["url"], headers={"Range": f"bytes=0-{half - 1}"}).content
        (by_http / file["path"]).write_bytes(start + end)
        assert hashlib.sha256(start + end).hexdigest() == file["sha256"]
        assert (folder / file["path"]).read_bytes() == start + end

    with stack.client() as client:
        assert [c.step for c in client.training_jobs.checkpoints(trained)] == [4, 2]
        job = client.training_jobs.get(trained)
    assert job.model_id == shown["id"]
    checkpoint = f"{stack.http_url}/v1/training_jobs/{trained}/checkpoints/{trained}@4/download"
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    for file in httpx2.get(f"{checkpoint}?artifact=adapter").json()["files"]:
        (adapter / file["path"]).write_bytes(httpx2.get(file["url"]).content)
    base = json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"]
    exported, policy = plain(str(by_http), json.dumps(QUESTIONS), base, str(adapter), cwd=tmp_path)
    assert exported == policy

    # The command line talks to it by the same words; lines of a file are questions of their own.
    lines = plaudit("chat", "adder", "--json", given="\n".join(QUESTIONS) + "\n").splitlines()
    told = [json.loads(line) for line in lines]
    assert [each["prompt"] for each in told] == QUESTIONS
    assert [each["text"] for each in told] == exported
    assert not any(each["truncated"] for each in told)


def test_a_kill_of_the_trainer_leaves_no_half_model_and_of_the_gateway_loses_none(
    stack: Stack, trained: str, plaudit: Callable[..., str], tmp_path: Path
) -> None:
    with stack.client() as client:
        begun = client.models.export(f"{trained}@2", form="adapter")
        assert begun.status is models.ModelStatus.EXPORTING
        stack.trainer.kill()
        target = stack.folder / "data" / "artifacts" / "jobs" / trained / "models" / begun.id
        # Not there, or whole: never half.
        assert not target.exists() or (target / "manifest.json").exists()
        stack.gateway.kill()
        stack.trainer.start()
        stack.gateway.start()
        done = client.models.wait(begun.id)
    assert (done.kind, done.step, done.is_final) == (models.ModelKind.ADAPTER, 2, False)
    assert not [path.name for path in target.parent.iterdir() if path.name.startswith(".")]
    listed = json.loads(plaudit("list", "--job", trained, "--json"))
    assert [(m["id"], m["status"]) for m in listed] == [
        (begun.id, "available"),
        (json.loads(plaudit("get", "adder", "--json"))["id"], "available"),
    ]
    plaudit("download", begun.id, "--to", str(tmp_path / "adapter"))
    names = {path.name for path in (tmp_path / "adapter").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json"} <= names
    assert "model.safetensors" not in names
    plaudit("delete", begun.id)
    assert not target.exists()
    assert "there is no model" in plaudit("get", begun.id, status=3)
    assert "there is @4, @2" in plaudit("export", f"{trained}@3", status=3)
    assert "is no folder" in plaudit("chat", "./nowhere", "--prompt", "x", status=2)
