"""Models and checkpoints over REST and gRPC: what they say, and what their links open."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import grpc
import pytest
from edges import Edges, open_edges
from model_files import ADAPTER, WEIGHTS, WHOLE, add_checkpoint, add_job, add_model

from gateway.events import LogLine
from gateway.models import links
from plaudit.gateway.v1 import model_service_pb2 as pb
from plaudit.gateway.v1.model_service_pb2_grpc import ModelServiceStub
from plaudit.types.statuses import JobStatus


@pytest.fixture
async def edges(tmp_path: Path) -> AsyncIterator[Edges]:
    async with open_edges(tmp_path) as edges:
        yield edges


async def test_the_model_of_a_job_is_told_alike_everywhere(edges: Edges) -> None:
    job = await add_job(edges.store)
    model = await add_model(edges.store, edges.artifact_root, job)
    of_job = (await edges.http.get(f"/v1/training_jobs/{job.job.id}/model")).json()
    assert of_job["id"] == model.id
    assert (of_job["object"], of_job["status"], of_job["kind"]) == ("model", "available", "merged")
    assert (of_job["name"], of_job["step"], of_job["is_final"]) == ("adder", 40, True)
    assert of_job["size_bytes"] == sum(map(len, WHOLE.values()))
    assert [f["path"] for f in of_job["files"]] == list(WHOLE)

    def without_links(shown: dict) -> dict:
        files = [{k: v for k, v in f.items() if k != "url"} for f in shown["files"]]
        return {**shown, "files": files, "download_url": None}

    for by in (model.id, "adder"):
        shown = (await edges.http.get(f"/v1/models/{by}")).json()
        assert without_links(shown) == without_links(of_job)
        message = await ModelServiceStub(edges.channel).GetModel(pb.GetModelRequest(id=by))
        assert (message.id, message.job_id, message.kind) == (model.id, job.job.id, pb.MODEL_KIND_MERGED)
        assert message.status == pb.MODEL_STATUS_AVAILABLE
        assert {f.path: f.size_bytes for f in message.files} == {p: len(d) for p, d in WHOLE.items()}
    shown_job = (await edges.http.get(f"/v1/training_jobs/{job.job.id}")).json()
    assert shown_job["model_id"] == model.id
    weights = await edges.http.get(shown_job["download_url"])
    assert weights.content == WEIGHTS
    listed = (await edges.http.get("/v1/training_jobs")).json()["data"]
    assert [urlsplit(each["download_url"]).path for each in listed] == [
        urlsplit(shown_job["download_url"]).path
    ]


async def test_a_link_serves_its_file_with_ranges_and_head(edges: Edges) -> None:
    job = await add_job(edges.store)
    await add_model(edges.store, edges.artifact_root, job)
    files = (await edges.http.get(f"/v1/training_jobs/{job.job.id}/model")).json()["files"]
    by_path = {file["path"]: file["url"] for file in files}
    for path, url in by_path.items():
        assert url.startswith(f"{edges.http_url}/v1/files/")
        answer = await edges.http.get(url)
        assert answer.content == WHOLE[path]
        # A page in it is never shown as one of ours.
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"].startswith("attachment")
        assert answer.headers["x-content-type-options"] == "nosniff"
    url = by_path["model.safetensors"]
    head = await edges.http.head(url)
    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["content-length"]) == len(WEIGHTS)
    part = await edges.http.get(url, headers={"Range": "bytes=1000-1999"})
    assert (part.status_code, part.content) == (206, WEIGHTS[1000:2000])
    assert part.headers["content-range"] == f"bytes 1000-1999/{len(WEIGHTS)}"
    tail = await edges.http.get(url, headers={"Range": "bytes=-100"})
    assert tail.content == WEIGHTS[-100:]
    beyond = await edges.http.get(url, headers={"Range": f"bytes={len(WEIGHTS)}-"})
    assert beyond.status_code == 416


async def test_a_link_opens_nothing_else_and_not_for_ever(edges: Edges, monkeypatch, tmp_path: Path) -> None:
    job = await add_job(edges.store)
    await add_model(edges.store, edges.artifact_root, job)
    url = (await edges.http.get(f"/v1/training_jobs/{job.job.id}/model")).json()["download_url"]
    query = urlsplit(url).query
    for address in ("gateway.sqlite3", "../gateway.sqlite3", "%2e%2e/gateway.sqlite3", "/etc/passwd"):
        answer = await edges.http.get(f"{edges.http_url}/v1/files/{address}?{query}")
        assert answer.status_code in (403, 404), address
    changed = await edges.http.get(url.replace("model.safetensors", "config.json"))
    assert (changed.status_code, changed.json()["error"]["code"]) == (403, "LINK_INVALID")
    longer = await edges.http.get(url.replace("expires=", "expires=9"))
    assert longer.status_code == 403
    for part in ("expires=1", "signature=ab", "expires=soon&signature=ab", f"{query}&more=1"):
        answer = await edges.http.get(f"{url.partition('?')[0]}?{part}")
        assert answer.status_code == 422, part
    # Links that were signed, and lead astray all the same.
    (edges.artifact_root / "link").symlink_to(tmp_path / "gateway.sqlite3")
    for address in ("../gateway.sqlite3", "link", "jobs", "/etc/passwd"):
        link = edges.gateway.models.link(address)
        target = f"/v1/files/{quote(address, safe='')}?expires={link.expires}&signature={link.signature}"
        assert (await edges.http.get(target)).status_code == 404, address
    clock = int(parse_qs(query)["expires"][0])
    monkeypatch.setattr(links.time, "time", lambda: float(clock))
    expired = await edges.http.get(url)
    assert (expired.status_code, expired.json()["error"]["code"]) == (403, "LINK_EXPIRED")
    assert "ask for the model" in expired.json()["error"]["message"]


async def test_grpc_streams_a_file_from_any_byte(edges: Edges) -> None:
    job = await add_job(edges.store)
    model = await add_model(edges.store, edges.artifact_root, job)
    stub = ModelServiceStub(edges.channel)

    async def read(path: str, offset: int = 0) -> bytes:
        request = pb.DownloadModelFileRequest(id=model.id, path=path, offset=offset)
        return b"".join([message.chunk async for message in stub.DownloadModelFile(request)])

    assert await read("model.safetensors") == WEIGHTS
    assert await read("model.safetensors", 4321) == WEIGHTS[4321:]
    assert await read("model.safetensors", len(WEIGHTS)) == b""
    for path, offset, code in [
        ("nothing", 0, grpc.StatusCode.NOT_FOUND),
        ("../checkpoint-000040/optimizer.pt", 0, grpc.StatusCode.NOT_FOUND),
        ("manifest.json", 0, grpc.StatusCode.NOT_FOUND),
        ("model.safetensors", len(WEIGHTS) + 1, grpc.StatusCode.INVALID_ARGUMENT),
    ]:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await read(path, offset)
        assert caught.value.code() is code, path
    # Cut short behind our back: told, and never taken for the whole.
    (edges.artifact_root / model.uri / "model.safetensors").write_bytes(WEIGHTS[:2000])
    with pytest.raises(grpc.aio.AioRpcError, match="ends at byte 2000"):
        await read("model.safetensors")


async def test_a_job_without_a_model_says_why(edges: Edges) -> None:
    running = await add_job(edges.store, JobStatus.RUNNING)
    answer = await edges.http.get(f"/v1/training_jobs/{running.job.id}/model")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "STATUS_FORBIDS")
    done = await add_job(edges.store)
    answer = await edges.http.get(f"/v1/training_jobs/{done.job.id}/model")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "MODEL_UNAVAILABLE")
    assert f"plaudit model export {done.job.id}" in answer.json()["error"]["message"]
    assert (await edges.http.get("/v1/training_jobs/job_nope/model")).status_code == 404
    assert (await edges.http.get("/v1/models/adder")).status_code == 404
    shown = (await edges.http.get(f"/v1/training_jobs/{done.job.id}")).json()
    assert (shown["model_id"], shown["download_url"]) == (None, None)


async def test_the_model_of_a_job_is_saved_as_clients_of_the_dialect_ask(edges: Edges) -> None:
    job = await add_job(edges.store)
    model = await add_model(edges.store, edges.artifact_root, job)
    asked = {"name": "acme", "source": {"type": "training_job", "training_job_id": job.job.id}}
    for body in (asked, asked, {**asked, "name": "adder", "artifact": "full"}):
        answer = await edges.http.post("/v1/models", json=body)
        assert answer.status_code == 200, answer.text
        saved = answer.json()
        found = [saved[name] for name in ("id", "name", "source", "status")]
        assert found == [model.id, "adder", "training_job", "available"]
    async with edges.store.snapshot() as session:
        events = await session.events.after(0, job_id=job.job.id, limit=50)
    told = [event.payload.message for event in events if isinstance(event.payload, LogLine)]
    assert told == [f'model {model.id} is called adder, as its job\'s output: "acme" has no effect'] * 2

    async def refused(status: int, **changed: object) -> dict[str, str]:
        answer = await edges.http.post("/v1/models", json={**asked, **changed})
        assert answer.status_code == status, answer.text
        error = answer.json()["error"]
        return {e["param"]: e["message"] for e in error.get("errors") or [error]}

    assert set(await refused(422, source={"type": "huggingface"})) == {
        "source.type",
        "source.training_job_id",
    }
    assert set(await refused(422, checkpoint="x@1")) == {"checkpoint"}
    assert set(await refused(422, source=None)) == {"checkpoint"}
    assert set(await refused(422, source=None, checkpoint="x@1", artifact="full")) == {"name", "artifact"}
    running = await add_job(edges.store, JobStatus.RUNNING)
    source = {"type": "training_job", "training_job_id": running.job.id}
    assert "it has a model when it is completed" in next(iter((await refused(400, source=source)).values()))
    unknown = {"type": "training_job", "training_job_id": "job_x"}
    assert "there is no training job" in next(iter((await refused(404, source=unknown)).values()))


async def test_models_are_listed_by_pages_and_deleted_with_their_files(edges: Edges) -> None:
    jobs = [await add_job(edges.store, output_name=name) for name in ("a", "b", "b")]
    models = [await add_model(edges.store, edges.artifact_root, job) for job in jobs]
    page = (await edges.http.get("/v1/models?limit=2")).json()
    assert [m["id"] for m in page["data"]] == [models[2].id, models[1].id]
    assert page["has_more"] is True
    rest = (await edges.http.get(f"/v1/models?limit=2&after={models[1].id}")).json()
    assert [m["id"] for m in rest["data"]] == [models[0].id]
    assert rest["has_more"] is False
    assert (await edges.http.get("/v1/models?after=b")).status_code == 422
    assert (await edges.http.get("/v1/models?limit=-1")).json()["error"]["param"] == "limit"
    of_job = (await edges.http.get(f"/v1/models?training_job_id={jobs[0].job.id}")).json()
    assert [m["id"] for m in of_job["data"]] == [models[0].id]
    # The newest job of a name goes by it; its model deleted, the one before does.
    for expected in (models[2], models[1]):
        assert (await edges.http.get("/v1/models/b")).json()["id"] == expected.id
        answer = (await edges.http.delete("/v1/models/b")).json()
        assert answer == {"id": expected.id, "object": "model", "deleted": True}
        assert not (edges.artifact_root / expected.uri).exists()
    assert (await edges.http.delete("/v1/models/b")).status_code == 404
    assert (edges.artifact_root / models[0].uri).exists()
    async with edges.store.snapshot() as session:
        assert await session.removals.list() == []


async def test_checkpoints_are_listed_and_downloaded_in_parts(edges: Edges) -> None:
    job = await add_job(edges.store, JobStatus.RUNNING)
    for step in (10, 20, 30):
        await add_checkpoint(edges.store, edges.artifact_root, job, step)
    job_id, base = job.job.id, f"/v1/training_jobs/{job.job.id}/checkpoints"
    page = (await edges.http.get(f"{base}?limit=2")).json()
    assert [(c["id"], c["status"], c["payload"]) for c in page["data"]] == [
        (f"{job_id}@30", "ready", "resumable"),
        (f"{job_id}@20", "ready", "resumable"),
    ]
    assert page["has_more"] is True
    rest = (await edges.http.get(f"{base}?limit=2&after={job_id}@20")).json()
    assert ([c["step"] for c in rest["data"]], rest["has_more"]) == ([10], False)
    one = (await edges.http.get(f"{base}/{job_id}@20")).json()
    assert (one["step"], one["file_count"], one["has_adapters"]) == (20, len(ADAPTER) + 1, True)
    wanted = {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json"}
    for artifact, names in [
        ("weights", wanted),
        ("adapter", wanted),
        ("resumable", {*ADAPTER, "manifest.json"}),
    ]:
        answer = (await edges.http.get(f"{base}/{job_id}@20/download?artifact={artifact}")).json()
        assert {file["path"] for file in answer["files"]} == names
        for file in answer["files"]:
            data = (await edges.http.get(file["url"])).content
            assert (len(data), hashlib.sha256(data).hexdigest()) == (file["size_bytes"], file["sha256"])
    by_default = (await edges.http.get(f"{base}/{job_id}@20/download")).json()
    assert by_default["artifact"] == "weights"
    assert (await edges.http.get(f"{base}/{job_id}@20/download?artifact=all")).status_code == 422
    missing = await edges.http.get(f"{base}/{job_id}@25")
    assert missing.status_code == 404
    assert "there is @30, @20, @10" in missing.json()["error"]["message"]
    assert (await edges.http.get(f"{base}?after=nonsense")).json()["error"]["param"] == "after"
    message = await ModelServiceStub(edges.channel).ListCheckpoints(pb.ListCheckpointsRequest(job_id=job_id))
    assert [c.id for c in message.checkpoints] == [f"{job_id}@{step}" for step in (30, 20, 10)]


async def test_removed_checkpoints_and_whole_ones_are_told(edges: Edges) -> None:
    job = await add_job(edges.store)
    uri = await add_checkpoint(edges.store, edges.artifact_root, job, 10, WHOLE)
    base = f"/v1/training_jobs/{job.job.id}/checkpoints"
    no_adapter = await edges.http.get(f"{base}/{job.job.id}@10/download?artifact=adapter")
    assert (no_adapter.status_code, no_adapter.json()["error"]["code"]) == (400, "NO_ADAPTERS")
    async with edges.store.transaction() as session:
        await session.checkpoints.mark_removed(job.key, uri, job.job.created_at)
    assert (await edges.http.get(base)).json()["data"] == []
    gone = await edges.http.get(f"{base}/{job.job.id}@10")
    assert gone.status_code == 404
    assert "only the newest checkpoint_keep are kept; there is none" in gone.json()["error"]["message"]
