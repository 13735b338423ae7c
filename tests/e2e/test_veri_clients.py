"""The published veri-sdk and its command, unmodified, through a real tiny job each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stack import Stack
from veri_environments import Veri

from plaudit.client import Job
from plaudit.types.statuses import JobStatus

ROWS = [
    {"prompt": [{"role": "user", "content": f"What is {n % 20} + {n // 2}?"}], "answer": n % 20 + n // 2}
    for n in range(40)
]
REWARD = """
def reward(prompts, completions, answer, **columns):
    return [len(c) / 10 - (str(a) in c) for c, a in zip(completions, answer)]
"""
HYPERPARAMETERS = {
    "max_steps": 2,
    "global_batch_size": 8,
    "rollouts_per_prompt": 4,
    "max_response_length": 8,
    "learning_rate": 1e-3,
}

SEQUENCES = Path(__file__).with_name("veri_sequences.py").read_text()

NEWER = """
import json, sys
from veri_sdk import Client
from veri_sdk.client import VeriRequestError, VeriNotFoundError

client = Client()
reward, hyperparameters = open("reward.py").read(), json.loads(sys.argv[1])
told = {"me": client.me()}
dataset = client.datasets.upload("sums.jsonl", name="veri-sums")
again = client.datasets.upload("sums.jsonl", name="veri-sums")
told["datasets"] = [dataset.id, again.id, client.datasets.get("veri-sums").id]
told["listed"] = [d.name for d in client.datasets.list()]
wanted = dict(
    base_model="builtin:tiny", dataset_id=dataset.id, output_name="veri-newer", gpu_type="L4-24GB",
    gpu_count=1, region="eu-west-1", hyperparameters=hyperparameters,
)
try:
    client.training_jobs.create(**wanted, reward_source="def reward(:")
except VeriRequestError as error:
    told["refused"] = [str(error), error.details["param"]]
job = client.training_jobs.create(**wanted, reward_source=reward)
waiting = client.training_jobs.create(**wanted, reward_sources=[reward, reward], reward_weights=[1, 0.5])
told["created"] = [job.status, job.reward_count, waiting.reward_count, job.gpu_requested]
told["cancelled"] = client.training_jobs.cancel(waiting.id).status
job.wait(poll_interval=0.5)
told["ended"] = [job.status, job.error]
told["source"] = client.training_jobs.reward_source(job.id, 0) == reward
told["metrics"] = client.training_jobs.metrics(job.id, keys=["reward_mean"], max_points=10)
told["jobs"] = [j.id for j in client.training_jobs.list(limit=5, status="completed", method="grpo")]
told["checkpoints"] = [c["step"] for c in client.training_jobs.list_checkpoints(job.id)]
told["model"] = job.download("model")
saved = client.models.create_from_training_job(job.id, "acme", artifact="full")
told["saved"] = [saved.training_job_id, saved.name, saved.status, saved.artifact_type]
told["library"] = [[m.id == saved.id, m.source] for m in client.models.list(limit=1)]
newest = client.training_jobs.get_checkpoint(job.id, f"{job.id}@2")["id"]
told["checkpoint"] = client.training_jobs.download_checkpoint(job.id, newest, "checkpoint")
told["job"] = job.id
try:
    client.training_jobs.cancel(job.id)
except VeriRequestError as error:
    told["over"] = error.code
resumed = client.training_jobs.resume(job.id, max_steps=3)
told["resumed"] = [resumed.status, resumed.reward_count]
client.training_jobs.cancel(resumed.id)
client.training_jobs.delete(waiting.id)
try:
    client.training_jobs.get(waiting.id)
except VeriNotFoundError as error:
    told["deleted"] = str(error)
print("told " + json.dumps(told))
"""

OLDER = """
import json, sys
from veri_sdk import Client

client = Client()
function = client.reward_functions.upload("reward.py", name="lengths", format="trl")
told = {"function": [function.id, function.name, function.format]}
told["listed"] = [f.id for f in client.reward_functions.list()]
dataset = client.datasets.upload("sums.jsonl", name="veri-sums")
job = client.training_jobs.create(
    base_model="builtin:tiny", dataset_id=dataset.id, output_name="veri-older",
    gpu_type="L4-24GB", gpu_count=1, reward_function_id=function.id, hyperparameters=json.loads(sys.argv[1]),
)
job.wait(poll_interval=0.5)
told["ended"] = [job.status, job.error, job.id]
told["heartbeat"] = client.training_jobs.heartbeat(job.id)["id"]
client.reward_functions.delete(function.id)
print("told " + json.dumps(told))
"""


def prepared(version: str, stack: Stack, folder: Path) -> Veri:
    """The client, in a folder with the data and the reward."""
    (folder / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (folder / "reward.py").write_text(REWARD)
    return Veri(version, stack.http_url, folder)


def told_by(output: str) -> Any:
    """What a program says in its last line."""
    return json.loads(output.splitlines()[-1].removeprefix("told "))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_newer_client_and_its_command(stack: Stack, tmp_path: Path) -> None:
    veri = prepared("0.2.45", stack, tmp_path)
    output = veri.python(NEWER, json.dumps(HYPERPARAMETERS))
    told = told_by(output)
    assert told["me"]["object"] == "user"
    assert len(set(told["datasets"])) == 1
    assert "veri-sums" in told["listed"]
    assert told["refused"][1] == "reward_source"
    assert told["created"] == ["queued", 1, 2, {"type": "L4-24GB", "count": 1}]
    assert told["cancelled"] in ("cancelled", "cancelling")
    assert told["ended"] == ["completed", None]
    assert told["source"]
    assert [row["step"] for row in told["metrics"]["metrics"]] == [1, 2]
    assert told["job"] in told["jobs"]
    assert told["checkpoints"][0] == 2
    assert told["saved"] == [told["job"], "veri-newer", "available", "full"]
    assert told["library"] == [[True, "training_job"]]
    assert told["over"] == "STATUS_FORBIDS"
    assert told["resumed"] == ["queued", 1]
    assert "there is no training job" in told["deleted"]
    for folder in (told["model"], told["checkpoint"]):
        assert {"config.json", "model.safetensors", "tokenizer.json"} <= {
            file.name for file in (tmp_path / folder).iterdir()
        }
    lines = output.splitlines()
    assert any("region has no effect here" in line for line in lines)
    assert any("step 2/2" in line for line in lines)
    assert "[Job completed]" in lines

    assert "local" in veri.cli("whoami")
    assert veri.cli("doctor").count("pass") >= 4
    shown = json.loads(veri.cli("--format", "json", "jobs", "get", told["job"]))
    assert (shown["status"], bool(shown["download_url"])) == ("completed", True)
    assert told["job"] in veri.cli("--format", "json", "jobs", "list", "--status", "completed")
    assert veri.cli("jobs", "logs", told["job"]).endswith("[Job completed]\n")
    veri.cli("jobs", "download", told["job"], "--output-dir", "by-command")
    assert (tmp_path / "by-command" / told["job"] / "model.safetensors").stat().st_size > 1_000_000
    veri.cli("jobs", "cancel", told["job"], status=2)
    veri.cli("jobs", "delete", told["job"])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_older_client_with_an_uploaded_function(stack: Stack, tmp_path: Path) -> None:
    veri = prepared("0.2.31", stack, tmp_path)
    told = told_by(veri.python(OLDER, json.dumps(HYPERPARAMETERS)))
    assert told["function"][1:] == ["lengths", "trl"]
    assert told["function"][0] in told["listed"]
    status, error, job_id = told["ended"]
    assert (status, error) == ("completed", None)
    assert told["heartbeat"] == job_id
    assert veri.cli("--quiet", "rewards", "upload", "reward.py").startswith("rf_")
    assert job_id in veri.cli("--format", "json", "jobs", "list")


@pytest.fixture(scope="module")
def states(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Jobs that are completed, paused and cancelled, and their dataset."""
    rows = tmp_path_factory.mktemp("sequences") / "four.jsonl"
    # Too few for a step of the default size: who goes on with a job goes on with the size of its steps.
    rows.write_text("".join(f'{{"prompt": "Sequences: {n}?", "answer": {n}}}\n' for n in range(4)))
    with stack.client() as client:
        dataset = client.datasets.upload(rows)

        def submitted(name: str) -> Job:
            return client.training_jobs.create(
                base_model="builtin:tiny",
                dataset_id=dataset.id,
                output_name=name,
                hyperparameters=HYPERPARAMETERS,
                rewards=[{"server": "builtin", "reward": "exact_answer"}],
            )

        jobs = {state: submitted(state) for state in ("done", "paused", "cancelled")}
        jobs["cancelled"].cancel()
        jobs["paused"].pause()
        jobs["done"].wait(timeout=120)
        jobs["paused"].wait(until={JobStatus.PAUSED}, timeout=120)
        ids = {state: job.id for state, job in jobs.items()}
        yield {"jobs": ids, "dataset": dataset.id, "hyperparameters": HYPERPARAMETERS}
        jobs["paused"].cancel()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", ["0.2.45", "0.2.31"])
def test_no_sequence_of_calls_breaks_a_client(
    stack: Stack, states: dict[str, Any], tmp_path: Path, version: str
) -> None:
    """Neither an answer of 500, nor one that the client cannot read; and nothing waits for ever."""
    told = told_by(prepared(version, stack, tmp_path).python(SEQUENCES, json.dumps(states)))
    assert len(told) > 200
    assert [call for call in told if call[1].startswith("BROKEN")] == []
    assert "incident" not in stack.gateway.log()
