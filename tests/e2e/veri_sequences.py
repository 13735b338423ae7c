"""A program for the published client: every method that Plaudit serves, in orders in which nobody means it.

Its last line tells, of every call, what came of it. It runs in the client's environment, not in ours.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from veri_sdk import Client, _decorators  # type: ignore[import-not-found]
from veri_sdk import client as sdk

GIVEN = json.loads(sys.argv[1])
EXPECTED = (sdk.VeriError, ValueError, TimeoutError)
IDS = [*GIVEN["jobs"].values(), "job_unknown", "", "a b", "ü", "x" * 2000]
REWARD = Path("reward.py").read_text()

client = Client()
datasets, jobs, models = client.datasets, client.training_jobs, client.models
functions = getattr(client, "reward_functions", None)
told: list[tuple[str, str, str]] = []


def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls, and notes what came of it: "ok", the kind of an expected error, or a traceback's last words."""
    shown = f"{function.__qualname__}{args}{kwargs}".replace("\n", " ")[:300]
    try:
        value = function(*args, **kwargs)
    except EXPECTED as error:
        # Its own JSONDecodeError is a ValueError, and no answer of ours.
        broken = isinstance(error, (sdk.VeriServerError, json.JSONDecodeError))
        told.append((shown, ("BROKEN " if broken else "") + type(error).__name__, str(error)[:300]))
        return None
    except Exception as error:
        told.append((shown, f"BROKEN {type(error).__name__}", str(error)[:300]))
        return None
    told.append((shown, "ok", ""))
    return value


def pages(listed: Callable[..., Any]) -> None:
    """One at a time: each once, and then nothing."""
    seen: list[str] = []
    while page := listed(limit=1, after=seen[-1] if seen else None):
        seen += [entry.id for entry in page]
        assert len(seen) < 300
    assert len(set(seen)) == len(seen) >= 1, seen
    assert seen[:2] == [entry.id for entry in listed(limit=2)]


lists = [datasets.list, jobs.list, models.list, *([functions.list] if functions else [])]
for listed in lists:
    for limit in (0, 1, 500, 100_000, -1):
        call(listed, limit=limit)
    for after in ("nothing", "x" * 2000):
        assert call(listed, limit=1, after=after) is None
    pages(listed) if listed(limit=1) else None
for status in ("queued", "paused", "queued,running", "bogus", "COMPLETED"):
    call(jobs.list, status=status)
for method in ("grpo", "sft_text", "dpo"):
    call(jobs.list, method=method)

for job in IDS:
    for read in (jobs.get, jobs.heartbeat, jobs.model):
        call(read, job)
    for query in (
        {},
        {"keys": ["nothing", "loss"]},
        {"max_points": 1},
        {"max_points": 0},
        {"max_points": 5001},
        {"from_step": 0, "to_step": 0},
        {"from_step": 3, "to_step": 1},
        {"from_step": 10**30},
    ):
        call(jobs.metrics, job, **query)
    if hasattr(_decorators, "_fetch_full_log"):
        call(_decorators._fetch_full_log, job, client)
    if hasattr(jobs, "list_checkpoints"):
        for query in ({"limit": 0}, {"limit": 1}, {"after": "nothing"}, {"after": f"{job}@1"}):
            call(jobs.list_checkpoints, job, **query)
        for checkpoint in (f"{job}@2", f"{job}@99", "x", "@"):
            call(jobs.get_checkpoint, job, checkpoint)
            for artifact in ("weights", "resumable", "adapter", "everything"):
                call(jobs.checkpoint_download_manifest, job, checkpoint, artifact)
        for index in (0, -1, 10**30):
            call(jobs.reward_source, job, index)
assert jobs.metrics(GIVEN["jobs"]["paused"]) == {"metrics": [], "available_keys": [], "latest_step": 0}
assert jobs.heartbeat(GIVEN["jobs"]["done"])["id"] == GIVEN["jobs"]["done"]

for name, content in {
    "empty": b"",
    "bom": b'\xef\xbb\xbf{"prompt": "bom"}\r\n',
    "utf16": b"\xff\xfe",
    "no-prompt": b'{"x": 1}\n',
    "with blank": b'{"prompt": "b"}\n',
    "nan": b'{"prompt": "x", "a": NaN}\n',
    "bytes": bytes(range(256)),
}.items():
    Path(f"{name}.jsonl").write_bytes(content)
    first, second = (call(datasets.upload, f"{name}.jsonl") for _ in range(2))
    assert (first and first.id) == (second and second.id)
    if first:
        call(datasets.delete, first.id)
        assert call(datasets.get, first.id) is None
        assert call(datasets.delete, first.id) is None
for dataset in (GIVEN["dataset"], "ds_unknown", "", "ü"):
    call(datasets.get, dataset)
for source in (
    {},
    {"source_type": "volume", "volume": "v"},
    {"huggingface_dataset": "../../etc"},
    {"source_type": "path"},
):
    call(datasets.validate, **source)
    call(datasets.connect, name="connected", **source)

if functions:
    for name, text in {"fine": REWARD, "empty": "", "broken": "def f(:", "none": "x = 1\n"}.items():
        Path(f"{name}.py").write_text(text)
        for form in ("trl", "miles", "other"):
            made = call(functions.upload, f"{name}.py", format=form)
            if made:
                assert functions.upload(f"{name}.py", format=form).id == made.id
                assert functions.get(made.id).name == name
                call(functions.delete, made.id)
                assert call(functions.delete, made.id) is None
                assert call(functions.get, made.id) is None

good: dict[str, Any] = {
    "base_model": "builtin:tiny",
    "dataset_id": GIVEN["dataset"],
    "output_name": "sequences",
    "gpu_type": "L4-24GB",
    "gpu_count": 1,
    "hyperparameters": GIVEN["hyperparameters"],
}
if functions:
    good["reward_function_id"] = functions.upload("reward.py", name="sequences").id
else:
    good["reward_source"] = REWARD
changes: list[dict[str, Any]] = [
    {},
    {"gpu_count": 0},
    {"dataset_id": ""},
    {"dataset_id": "ds_x@latest"},
    {"base_model": ""},
    {"output_name": "a/b"},
    {"method": "dpo"},
    {"method": "sft_text"},
    {"hyperparameters": {"unknown": 1}},
    {"volume": "v"},
    {"region": "mars"},
    {"hyperparameters": {"max_steps": 1e300}},
    {"reward_weights": [0.0]},
    {"reward_function_id": "rf_none"},
    {"reward_source": "def f(:"},
    {"reward_source": "\x00"},
    {"reward_sources": [REWARD] * 9},
    {"resume_from": "job_x@1"},
    {"script": {"x": 1}},
    {"reward_source": "x" * 300_000},
    {"hf_push": {"repo": "a/b"}},
]
for change in changes:
    if set(change) <= set(inspect.signature(jobs.create).parameters):
        made = call(jobs.create, **{**good, **change})
        if made:
            call(made.download, "out")
            call(jobs.cancel, made.id)
            call(jobs.cancel, made.id)
            made.wait(poll_interval=0.1, timeout=60, stream=False)
            call(jobs.delete, made.id)
            assert call(jobs.get, made.id) is None
            assert call(jobs.delete, made.id) is None
resumed: list[tuple[str, int]] = []
for job in IDS:
    if job != GIVEN["jobs"]["paused"]:
        call(jobs.cancel, job)
    if hasattr(jobs, "resume"):
        for options in ({}, {"checkpoint": "x"}, {"max_steps": 3}):
            made = call(jobs.resume, job, **options)
            if made:
                resumed.append((job, made.hyperparameters["global_batch_size"]))
                call(jobs.cancel, made.id)
if hasattr(jobs, "resume"):
    # From its checkpoint, with steps of the same size, which the client leaves out; and no other job.
    assert set(resumed) == {(GIVEN["jobs"]["done"], GIVEN["hyperparameters"]["global_batch_size"])}, resumed
for model in ("", "x", GIVEN["jobs"]["done"], *(model.id for model in models.list())):
    call(models.get, model)
for name in ("regions", "gpu", "cost", "billing", "integrations", "deployments"):
    for method in ("list", "catalog", "rates", "balance", "burn_rate", "get_wandb"):
        if hasattr(getattr(client, name), method):
            call(getattr(getattr(client, name), method))

paused = jobs.get(GIVEN["jobs"]["paused"])
for streaming in (True, False):
    call(paused.wait, poll_interval=0.1, timeout=0.5, stream=streaming)
    assert told[-1][1] == "TimeoutError", told[-1]
for state in ("done", "cancelled"):
    call(jobs.get(GIVEN["jobs"][state]).wait, poll_interval=0.1, timeout=30)
    call(jobs.get(GIVEN["jobs"][state]).download, "out")
call(datasets.delete, GIVEN["dataset"])
print("told " + json.dumps(told))
