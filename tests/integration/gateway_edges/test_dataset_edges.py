"""Datasets through gRPC and REST: uploaded, found, listed, deleted; hostile files and requests refused."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from edges import Edges, details_of, jsonl, open_edges, until

from gateway.datasets import bounds, uploads
from gateway.store import Store
from plaudit.gateway.v1 import dataset_service_pb2 as pb
from plaudit.rpc import error_from_rpc

ADDITIONS = jsonl(
    {"prompt": [{"role": "user", "content": "2 + 3?"}], "answer": 5},
    {"prompt": "4 + 4?", "answer": 8.0, "hint": None},
)


async def by_grpc(edges: Edges, data: bytes, name: str, step: int = 7) -> pb.Dataset:
    def frames() -> Iterable[pb.UploadDatasetRequest]:
        yield pb.UploadDatasetRequest(header=pb.UploadDatasetHeader(name=name))
        for start in range(0, len(data), step):
            yield pb.UploadDatasetRequest(chunk=data[start : start + step])

    return await edges.datasets.UploadDataset(iter(frames()))


async def by_rest(edges: Edges, data: bytes, name: str) -> Any:
    return await edges.http.post("/v1/datasets", data={"name": name}, files={"file": ("rows.jsonl", data)})


def leftovers(edges: Edges) -> list[str]:
    incoming = edges.artifact_root / "datasets" / "incoming"
    return [path.name for path in incoming.iterdir()]


def stored_files(edges: Edges) -> list[Path]:
    return sorted((edges.artifact_root / "datasets").glob("*.parquet"))


async def names_of_datasets(edges: Edges) -> set[str]:
    return {dataset["name"] for dataset in (await edges.http.get("/v1/datasets")).json()["data"]}


async def test_both_ways_in_make_the_same_dataset(edges: Edges) -> None:
    sent = await by_grpc(edges, ADDITIONS, "additions-v2")
    again = (await by_rest(edges, ADDITIONS, "additions-v2")).json()
    assert sent.id == again["id"] == f"ds_{hashlib.sha256(ADDITIONS).hexdigest()[:32]}"
    assert (sent.name, sent.source_type, sent.row_count) == ("additions-v2", "upload", 2)
    assert list(sent.columns) == again["columns"] == ["answer", "hint"]
    file = edges.artifact_root / "datasets" / f"{sent.sha256}.parquet"
    assert hashlib.sha256(file.read_bytes()).hexdigest() == sent.sha256 == again["sha256"]
    assert file.stat().st_size == sent.size_bytes
    table = pq.read_table(file).to_pylist()
    assert [json.loads(row["prompt"]) for row in table] == [[{"role": "user", "content": "2 + 3?"}], "4 + 4?"]
    assert [row["columns"] for row in table] == ['{"answer":5}', '{"answer":8.0,"hint":null}']
    assert leftovers(edges) == []


async def test_a_dataset_is_found_by_id_and_by_name(edges: Edges) -> None:
    sent = await by_grpc(edges, ADDITIONS, "a")
    for key in (sent.id, "a"):
        assert (await edges.datasets.GetDataset(pb.GetDatasetRequest(id=key))).id == sent.id
        assert (await edges.http.get(f"/v1/datasets/{key}")).json()["name"] == "a"
    builtin = (await edges.http.get("/v1/datasets/builtin:additions")).json()
    assert (builtin["id"], builtin["source_type"], builtin["num_rows"]) == (
        "builtin:additions",
        "builtin",
        2000,
    )
    missing = await edges.http.get("/v1/datasets/nowhere")
    assert missing.status_code == 404
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await edges.datasets.GetDataset(pb.GetDatasetRequest(id="nowhere"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert caught.value.details() == missing.json()["error"]["message"]


async def test_the_same_bytes_under_another_name_are_the_dataset_that_is_there(edges: Edges) -> None:
    first = await by_grpc(edges, ADDITIONS, "a")
    assert await by_grpc(edges, ADDITIONS, "b") == first
    assert (await edges.http.get("/v1/datasets/b")).status_code == 404
    assert len(stored_files(edges)) == 2


async def test_another_content_under_a_taken_name_is_refused(edges: Edges) -> None:
    await by_grpc(edges, ADDITIONS, "a")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await by_grpc(edges, jsonl({"prompt": "x"}), "a")
    assert caught.value.code() is grpc.StatusCode.ALREADY_EXISTS
    assert error_from_rpc(caught.value).reason == "NAME_TAKEN"
    answer = await by_rest(edges, jsonl({"prompt": "x"}), "a")
    assert answer.status_code == 409
    assert answer.json()["error"]["code"] == "NAME_TAKEN"
    assert answer.json()["error"]["message"] == caught.value.details()
    assert leftovers(edges) == []


NO_NAMES = ["", "a" * 65, "../../etc/passwd", "a/b", "a b", ".hidden", "builtin:mine", "ä", "ds_" + "0" * 32]


async def test_a_name_is_a_name_and_never_a_path(edges: Edges) -> None:
    before = stored_files(edges)
    for name in NO_NAMES:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await by_grpc(edges, ADDITIONS, name)
        told = details_of(caught.value)
        assert list(told) == ["name"]
        answer = await by_rest(edges, ADDITIONS, name)
        assert answer.status_code == 422
        assert {e["param"]: e["message"] for e in answer.json()["error"]["errors"]} == told
    assert stored_files(edges) == before


async def test_wrong_rows_are_named_in_the_same_words(edges: Edges) -> None:
    rows = [b'{"prompt": "fine"}', b"", *[b'{"question": "%d"}' % n for n in range(30)], b"\xff"]
    data = b"\n".join(rows)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await by_grpc(edges, data, "a", step=1000)
    told = details_of(caught.value)
    assert list(told) == [*(f"line {n}" for n in range(3, 23)), "file"]
    assert told["file"] == "31 of 32 rows are wrong; the first 20 are named"
    answer = await by_rest(edges, data, "a")
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert error["code"] == "WRONG_ROWS"
    assert error["param"] == "line 3"
    assert {e["param"]: e["message"] for e in error["errors"]} == told
    assert leftovers(edges) == []
    assert len(stored_files(edges)) == 1


async def test_datasets_are_listed_newest_first_in_pages(edges: Edges) -> None:
    for n in range(5):
        await by_grpc(edges, jsonl({"prompt": f"{n}?"}), f"set-{n}")
    names: list[str] = []
    token = ""
    while True:
        page = await edges.datasets.ListDatasets(pb.ListDatasetsRequest(page_size=2, page_token=token))
        assert len(page.datasets) == 2
        names += [dataset.name for dataset in page.datasets]
        token = page.next_page_token
        if not token:
            break
    assert names == ["set-4", "set-3", "set-2", "set-1", "set-0", "builtin:additions"]

    first = (await edges.http.get("/v1/datasets", params={"limit": 4})).json()
    assert (first["object"], first["has_more"]) == ("list", True)
    rest = (await edges.http.get("/v1/datasets", params={"after": first["data"][-1]["id"]})).json()
    assert [d["name"] for d in (*first["data"], *rest["data"])] == names
    assert rest["has_more"] is False

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await edges.datasets.ListDatasets(pb.ListDatasetsRequest(page_token="nowhere"))
    assert list(details_of(caught.value)) == ["page_token"]
    assert (await edges.http.get("/v1/datasets?after=nowhere")).json()["error"]["param"] == "after"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await edges.datasets.ListDatasets(pb.ListDatasetsRequest(page_size=-1))
    assert list(details_of(caught.value)) == ["page_size"]


async def test_deleting_takes_the_file_along(edges: Edges) -> None:
    sent = await by_grpc(edges, ADDITIONS, "a")
    assert (await edges.http.delete("/v1/datasets/a")).json() == {
        "id": "a",
        "object": "dataset",
        "deleted": True,
    }
    assert not (edges.artifact_root / "datasets" / f"{sent.sha256}.parquet").exists()
    assert (await edges.http.delete("/v1/datasets/a")).status_code == 404
    assert (await by_grpc(edges, ADDITIONS, "b")).id == sent.id
    await edges.datasets.DeleteDataset(pb.DeleteDatasetRequest(id=sent.id))


async def test_what_ships_can_not_be_deleted(edges: Edges) -> None:
    answer = await edges.http.delete("/v1/datasets/builtin:additions")
    assert answer.status_code == 409
    assert answer.json()["error"]["code"] == "IN_USE"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await edges.datasets.DeleteDataset(pb.DeleteDatasetRequest(id="builtin:additions"))
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_a_file_beyond_the_limit_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    async with open_edges(tmp_path, max_upload_bytes=3_000_000) as edges:
        data = jsonl({"prompt": "x" * 1_000_000}) * 4
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await by_grpc(edges, data, "a", step=500_000)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "larger than 3,000,000 bytes" in (caught.value.details() or "")
        answer = await by_rest(edges, data, "a")
        assert answer.status_code == 413
        assert answer.json()["error"]["code"] == "UPLOAD_TOO_LARGE"
        assert leftovers(edges) == []


async def test_a_full_disk_refuses_uploads(edges: Edges, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MIN_FREE_BYTES", 10**18)
    answer = await by_rest(edges, ADDITIONS, "a")
    assert answer.status_code == 507
    assert answer.json()["error"]["code"] == "DISK_FULL"


async def test_uploads_at_once_are_bounded(edges: Edges) -> None:
    release = asyncio.Event()

    async def slow() -> AsyncIterator[pb.UploadDatasetRequest]:
        yield pb.UploadDatasetRequest(header=pb.UploadDatasetHeader(name="slow"))
        yield pb.UploadDatasetRequest(chunk=ADDITIONS)
        await release.wait()

    running = [asyncio.ensure_future(edges.datasets.UploadDataset(slow())) for _ in range(4)]
    await until(lambda: len(leftovers(edges)) == 4)
    answer = await by_rest(edges, jsonl({"prompt": "x"}), "fast")
    assert answer.status_code == 429
    assert answer.json()["error"]["type"] == "rate_limit_error"
    assert answer.headers["retry-after"] == "5"
    release.set()
    # The same bytes four times at once: one dataset, and one file beside the one that ships.
    assert len({dataset.id for dataset in await asyncio.gather(*running)}) == 1
    assert len(stored_files(edges)) == 2
    assert (await by_rest(edges, jsonl({"prompt": "x"}), "fast")).status_code == 200


async def test_a_client_that_goes_away_leaves_nothing(edges: Edges) -> None:
    never = asyncio.Event()

    async def endless() -> AsyncIterator[pb.UploadDatasetRequest]:
        yield pb.UploadDatasetRequest(header=pb.UploadDatasetHeader(name="gone"))
        yield pb.UploadDatasetRequest(chunk=b"x" * 3_000_000)
        await never.wait()

    call = edges.datasets.UploadDataset(endless())
    await until(lambda: leftovers(edges))
    before = stored_files(edges)
    call.cancel()
    await until(lambda: not leftovers(edges))
    assert stored_files(edges) == before
    assert "gone" not in await names_of_datasets(edges)


def much_in_little() -> bytes:
    """A file of a few kB that would unpack to 100 GB."""
    places = pa.array([0] * 1_000_000, pa.int32())
    column = pa.DictionaryArray.from_arrays(places, pa.array(["a" * 100_000]))
    file = io.BytesIO()
    pq.write_table(pa.table({"prompt": column}), file, compression="zstd", store_schema=False)
    return file.getvalue()


async def test_what_unpacks_to_too_much_is_refused_and_leaves_nothing(
    edges: Edges, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "_FREE_BYTES", 1_000_000)
    monkeypatch.setattr(bounds, "_PER_BYTE", 10)
    data = much_in_little()
    answer = await by_rest(edges, data, "a")
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "UPLOAD_TOO_LARGE")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await by_grpc(edges, data, "a", step=100_000)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert leftovers(edges) == []


def readers() -> list[bytes]:
    """Processes of this one that read Parquet."""
    children = [tasks.read_text() for tasks in Path("/proc/self/task").glob("*/children")]
    commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pids in children for pid in pids.split()]
    return [command for command in commands if b"gateway.parquet_reader" in command]


async def test_a_client_that_goes_away_while_its_rows_are_read_frees_its_place(
    edges: Edges, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Reading would take minutes.
    monkeypatch.setattr(bounds, "_FREE_BYTES", 10**15)
    monkeypatch.setattr(edges.gateway.datasets, "_max_upload_bytes", 10**15)
    data = much_in_little()
    called = asyncio.ensure_future(by_grpc(edges, data, "a", step=100_000))
    sent = asyncio.ensure_future(by_rest(edges, data, "b"))
    await until(lambda: len([name for name in leftovers(edges) if name.endswith(".parquet")]) == 2)
    assert len(readers()) == 2
    called.cancel()
    sent.cancel()
    await asyncio.wait([called, sent])
    await until(lambda: not leftovers(edges) and not edges.gateway.datasets._uploads)
    assert called.cancelled() and sent.cancelled()
    assert not readers()
    assert not {"a", "b"} & await names_of_datasets(edges)


async def test_a_restart_keeps_datasets_and_clears_half_done_uploads(tmp_path: Path) -> None:
    async with open_edges(tmp_path) as edges:
        sent = await by_grpc(edges, ADDITIONS, "a")
        builtin = await edges.datasets.GetDataset(pb.GetDatasetRequest(id="builtin:additions"))
        (edges.artifact_root / "datasets" / "incoming" / "dead.upload").write_bytes(b"half")
    async with open_edges(tmp_path) as edges:
        assert leftovers(edges) == []
        assert await edges.datasets.GetDataset(pb.GetDatasetRequest(id="a")) == sent
        assert await edges.datasets.GetDataset(pb.GetDatasetRequest(id="builtin:additions")) == builtin


async def test_a_dataset_that_a_job_needs_can_not_be_deleted(edges: Edges) -> None:
    sent = await by_grpc(edges, ADDITIONS, "a")
    await insert_job(edges.store, sent.id)
    answer = await edges.http.delete("/v1/datasets/a")
    assert answer.status_code == 409
    assert "needed by job_1" in answer.json()["error"]["message"]


async def insert_job(store: Store, dataset_id: str) -> None:
    from datetime import UTC, datetime

    from gateway.jobs.job import Job
    from plaudit.types.statuses import JobStatus
    from plaudit.types.validation import parse_job_spec

    spec = parse_job_spec(
        {
            "base_model": "builtin:tiny",
            "dataset_id": dataset_id,
            "output_name": "x",
            "rewards": [{"server": "builtin", "reward": "exact_answer"}],
        }
    )
    now = datetime.now(UTC)
    async with store.transaction() as session:
        await session.jobs.insert(
            Job("job_1", spec, JobStatus.QUEUED, now, now), dataset_id=dataset_id, reward_server_ids=["rs_1"]
        )


async def test_the_name_of_a_file_tells_csv_and_its_beginning_the_rest(edges: Edges) -> None:
    table = b"prompt,answer\r\n2 + 3?,5\r\n"
    answer = await edges.http.post(
        "/v1/datasets", data={"name": "table"}, files={"file": ("rows.CSV", table)}
    )
    assert (answer.status_code, answer.json()["num_rows"], answer.json()["columns"]) == (200, 1, ["answer"])
    listed = await by_grpc(
        edges, b'[{"prompt": "a", "completion": "b"}, {"prompt": "c", "completion": "d"}]', "list"
    )
    assert (listed.row_count, list(listed.methods)) == (2, ["grpo", "sft"])
    # CSV under a name that does not say so, and a format that is not the file's.
    table += b"4 + 4?,8\r\n"
    refused = await edges.http.post("/v1/datasets", data={"name": "t"}, files={"file": ("rows.txt", table)})
    assert refused.status_code == 422
    refused = await edges.http.post(
        "/v1/datasets", data={"name": "t", "format": "parquet"}, files={"file": ("rows.csv", table)}
    )
    assert refused.json()["error"]["errors"][0]["param"] == "row 1"
    assert "cannot be read as Parquet" in refused.json()["error"]["message"]
    assert leftovers(edges) == []


def crashing() -> bytes:
    """Parquet at which Arrow aborts the process: a column without nulls, and statistics that count them."""
    file = io.BytesIO()
    pq.write_table(pa.table({"prompt": ["2 + 3?", "4 + 4?"]}), file)
    # In the footer: the column's type, repetition (2: OPTIONAL, 0: REQUIRED) and name.
    said = b"\x15\x0c\x25\x02\x18\x06prompt"
    assert file.getvalue().count(said) == 1
    return file.getvalue().replace(said, said.replace(b"\x25\x02", b"\x25\x00"))


async def test_a_damaged_file_ends_its_reader_and_not_the_gateway(tmp_path: Path) -> None:
    told = "the file is damaged: its reader crashed (SIGABRT); write it anew, e.g. with pandas or pyarrow"
    root = tmp_path / "shared"
    root.mkdir()
    (root / "crash.parquet").write_bytes(crashing())
    async with open_edges(tmp_path, dataset_roots=(root,)) as edges:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await by_grpc(edges, crashing(), "a", step=100)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert details_of(caught.value) == {"row 1": told}
        sent, *connected = await asyncio.gather(
            by_rest(edges, crashing(), "b"),
            edges.http.post(
                "/v1/datasets/connect",
                json={"name": "c", "source_type": "path", "path": str(root / "crash.parquet")},
            ),
            edges.http.post(
                "/v1/datasets/connect/validate",
                json={"source_type": "path", "path": str(root / "crash.parquet")},
            ),
        )
        for answer in (sent, connected[0]):
            assert answer.status_code == 422
            assert answer.json()["error"]["errors"] == [{"param": "row 1", "message": told}]
        assert told in connected[1].text
        assert leftovers(edges) == [] and not edges.gateway.datasets._uploads
        assert (await by_grpc(edges, ADDITIONS, "a")).row_count == 2


async def test_rows_are_read_as_jobs_read_them(edges: Edges) -> None:
    rows = [{"prompt": f"{n}?", "answer": n, "kind": None if n % 2 else 0.5} for n in range(2500)]
    sent = await by_grpc(edges, jsonl(*rows), "numbers", step=100_000)
    first = (await edges.http.get("/v1/datasets/numbers/rows")).json()
    assert [row["row_number"] for row in first["data"]] == list(range(20))
    assert first["data"][7] == {
        "object": "dataset_row", "row_number": 7, "prompt": "7?", "columns": {"answer": 7, "kind": None}
    }  # fmt: skip
    # Every row once, in order, over the groups of the file.
    seen: list[dict[str, Any]] = []
    token = ""
    while True:
        page = await edges.datasets.ListDatasetRows(
            pb.ListDatasetRowsRequest(id=sent.id, page_size=300, page_token=token)
        )
        seen.extend({"prompt": json.loads(r.prompt_json), **json.loads(r.columns_json)} for r in page.rows)
        token = page.next_page_token
        if not token:
            break
    assert seen == rows
    for request, field in (
        (pb.ListDatasetRowsRequest(id=sent.id, page_size=-1), "page_size"),
        (pb.ListDatasetRowsRequest(id=sent.id, page_token="x"), "page_token"),
        (pb.ListDatasetRowsRequest(id=sent.id, page_token="-1"), "page_token"),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await edges.datasets.ListDatasetRows(request)
        assert list(details_of(caught.value)) == [field]
    behind = await edges.datasets.ListDatasetRows(pb.ListDatasetRowsRequest(id=sent.id, page_token="2500"))
    assert (list(behind.rows), behind.next_page_token) == ([], "")
    assert (await edges.http.get("/v1/datasets/nowhere/rows")).status_code == 404


async def test_a_page_of_large_rows_is_short(edges: Edges) -> None:
    sent = await by_grpc(
        edges, jsonl(*({"prompt": f"{n}" + "x" * 900_000} for n in range(5))), "large", 1_000_000
    )
    page = await edges.datasets.ListDatasetRows(pb.ListDatasetRowsRequest(id=sent.id))
    assert [row.number for row in page.rows] == [0, 1]
    assert page.next_page_token == "2"


async def test_rows_that_serve_no_method_together_are_refused(edges: Edges) -> None:
    answer = await by_rest(edges, jsonl({"prompt": "a"}, {"prompt": "b"}, {"text": "c"}), "mixed")
    assert answer.status_code == 422
    assert "2 serve grpo and 1 serve sft" in answer.json()["error"]["message"]
