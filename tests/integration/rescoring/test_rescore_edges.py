"""Rescores as users ask for them: SDK, REST and the command line, of a gateway in a process of its own."""

import asyncio
import json
import os
import subprocess
import sys
from contextlib import contextmanager

import httpx2
import pytest

from plaudit import Client
from plaudit.errors import InvalidArgumentError
from plaudit.types.rescores import RescoreStatus


@contextmanager
def gateway_process(room):
    """`python -m gateway` over the room's data; its two addresses."""
    environment = {
        **os.environ,
        "PLAUDIT_DATA_DIR": str(room.folder),
        "PLAUDIT_GATEWAY_TRAINERS": "[]",
        "PLAUDIT_GATEWAY_REWARD_SERVERS": json.dumps({"late": room.addresses}),
    }
    options = ["--grpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0", "--die-with-stdin"]
    with subprocess.Popen(
        [sys.executable, "-m", "gateway", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    ) as process:
        try:
            announced = json.loads(process.stdout.readline())
            yield announced["grpc_address"], f"http://{announced['http_address']}"
        finally:
            process.terminate()


def use_the_sdk(address, job_id):
    with Client(address) as client:
        steps = []
        made = client.rescores.create(
            job_id, rewards=[{"server": "late", "reward": "right", "name": "again"}], from_step=2
        )
        done = client.rescores.wait(made.id, on_progress=lambda now: steps.append(now.done_count))
        results = list(client.rescores.results(made.id))
        assert (done.status, done.done_count, steps[-1]) == (RescoreStatus.COMPLETED, 8, 8)
        assert [b.name for b in done.rewards] == ["again"]
        assert [r.completion.step for r in results] == [2] * 8
        assert {o.name for r in results for o in r.new_outcomes} == {"again"}
        assert [r.id for r in client.rescores.list(job_id)] == [made.id]
        with pytest.raises(InvalidArgumentError) as refused:
            client.rescores.create(job_id, rewards=[{"server": "late", "reward": "right", "wait": 3}])
        assert [v.field for v in refused.value.violations] == ["rewards[0].wait"]
        with pytest.raises(InvalidArgumentError) as refused:
            client.rescores.create(job_id, rewards=[{"server": "late", "reward": "left"}], from_step=9)
        return made.id, [v.message for v in refused.value.violations]


async def use_rest(url, job_id, rescore_id, told):
    async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=30) as http:
        one = (await http.get(f"/v1/rescores/{rescore_id}")).json()
        assert (one["object"], one["status"], one["done_count"]) == ("rescore", "completed", 8)
        assert one["summary"]["rewards"][0]["scored_count"] == 8
        page = (await http.get(f"/v1/rescores/{rescore_id}/results?limit=5")).json()
        assert (len(page["data"]), page["has_more"]) == (5, True)
        rest = await http.get(f"/v1/rescores/{rescore_id}/results?page_token={page['next_page_token']}")
        assert [r["completion"]["id"] for r in page["data"] + rest.json()["data"]] == [
            f"2-{n}" for n in range(8)
        ]
        refused = await http.post(
            f"/v1/training_jobs/{job_id}/rescores",
            json={"rewards": [{"server": "late", "reward": "left"}], "from_step": 9},
        )
        assert refused.status_code == 422
        assert [e["message"] for e in refused.json()["error"]["errors"]] == told  # the SDK's words
        made = await http.post(
            f"/v1/training_jobs/{job_id}/rescores", json={"to_step": 1}, headers={"Idempotency-Key": "k1"}
        )
        again = await http.post(
            f"/v1/training_jobs/{job_id}/rescores", json={"to_step": 1}, headers={"Idempotency-Key": "k1"}
        )
        assert made.status_code == 200
        assert again.json()["id"] == made.json()["id"]
        listed = (await http.get(f"/v1/training_jobs/{job_id}/rescores")).json()["data"]
        assert [r["id"] for r in listed] == [made.json()["id"], rescore_id]
        assert (await http.get("/v1/rescores?limit=1")).json()["has_more"]
        assert (await http.get("/v1/rescores/resc_none")).status_code == 404
        assert (await http.post(f"/v1/rescores/{rescore_id}/cancel")).status_code == 400
        document = (await http.get("/openapi.json")).json()
        assert "from_step" in document["components"]["schemas"]["RescoreSpec"]["properties"]


def run_cli(address, *arguments):
    return subprocess.run(
        [sys.executable, "-c", "from plaudit.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PLAUDIT_ADDRESS": address},
    )


def use_the_command_line(address, job_id):
    done = run_cli(address, "job", "rescore", job_id, "--reward", "late/right", "--limit", "3")
    assert done.returncode == 0, done.stderr
    heading, first = done.stdout.splitlines()[:2]
    assert heading.split() == ["step", "completion", "old", "new", "text", "not", "scored"]
    assert first.split()[:2] == ["1", "1-0"]
    assert "16 of 16 completions" in done.stdout
    assert "3 of 16 completions are shown" in done.stdout
    data = json.loads(run_cli(address, "job", "rescore", job_id, "--to-step", "1", "--json").stdout)
    assert data["rescore"]["status"] == "completed"
    assert [r["completion"]["completion_id"] for r in data["results"]] == [f"1-{n}" for n in range(8)]
    wrong = run_cli(address, "job", "rescore", job_id, "--reward", "right", "--config", "{", "--config", "{}")
    assert wrong.returncode == 2
    assert "late/right" not in wrong.stderr and "is no SERVER/REWARD" in wrong.stderr
    assert "each belongs to one --reward" in wrong.stderr
    found = run_cli(address, "rescore", "list", "--job", job_id, "--json")
    assert len(json.loads(found.stdout)) == 4


async def test_every_way_in(room):
    job_id = await room.job_with_completions(steps=2, groups=2)
    await room.close()
    with gateway_process(room) as (grpc_address, url):
        rescore_id, told = await asyncio.to_thread(use_the_sdk, grpc_address, job_id)
        await use_rest(url, job_id, rescore_id, told)
        await asyncio.to_thread(use_the_command_line, grpc_address, job_id)
