"""Datasets that are read from the hub, or from a file below a folder that the operator lists."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from edges import Edges, details_of, open_edges
from hub_server import Hub, serve_hub

from plaudit.gateway.v1 import dataset_service_pb2 as pb

ROWS = [{"question": f"What is {n} + 1?", "answer": n + 1, "level": 1.5} for n in range(30)]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
HUB: dict[str, Any] = {
    "name": "sums",
    "source_type": "hf",
    "huggingface_dataset": "org/sums",
    "huggingface_config": {"split": "train", "column_mapping": {"question": "prompt"}},
}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Any:
    files = {"README.md": b"---\nlicense: mit\n---\n", "train.jsonl": LINES}
    served = Hub({"org/sums": files, "org/secret": files}, {"org/secret": "hf_secret"})
    with serve_hub(served) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)  # other tests of this process keep off the hub
        yield served


async def test_rows_of_the_hub_become_a_dataset(edges: Edges, hub: Hub) -> None:
    answer = await edges.http.post("/v1/datasets/connect", json=HUB, timeout=120.0)
    assert answer.status_code == 200, answer.text
    dataset = answer.json()
    assert {name: dataset[name] for name in ("name", "source_type", "num_rows", "columns")} == {
        "name": "sums",
        "source_type": "hf",
        "num_rows": 30,
        "columns": ["answer", "level"],
    }
    assert (dataset["source_uri"], dataset["huggingface_dataset"]) == ("hf://datasets/org/sums", "org/sums")
    rows = (await edges.http.get("/v1/datasets/sums/rows", params={"limit": 1})).json()["data"]
    assert (rows[0]["prompt"], rows[0]["columns"]) == ("What is 0 + 1?", {"answer": 1, "level": 1.5})
    # The same again asks nobody; the same name for something else is taken.
    asked = len(hub.seen)
    again = await edges.http.post("/v1/datasets/connect", json=HUB)
    assert again.json() == dataset
    other = {**HUB, "huggingface_config": {"split": "test"}}
    answer = await edges.http.post("/v1/datasets/connect", json=other)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "NAME_TAKEN")
    assert len(hub.seen) == asked
    got = await edges.datasets.GetDataset(pb.GetDatasetRequest(id="sums"))
    assert dict(got.source.huggingface_config.column_mapping) == {"question": "prompt"}


async def test_what_the_hub_does_not_have_is_told(edges: Edges, hub: Hub) -> None:
    wrong = {**HUB, "huggingface_config": {"split": "validation"}}
    answer = await edges.http.post("/v1/datasets/connect/validate", json=wrong, timeout=120.0)
    assert answer.status_code == 200
    assert not answer.json()["valid"]
    assert "validation" in answer.json()["error"]
    answer = await edges.http.post(
        "/v1/datasets/connect", json={**HUB, "huggingface_dataset": "org/none"}, timeout=120.0
    )
    assert answer.status_code == 422
    assert answer.json()["error"]["param"] == "huggingface_dataset"
    assert "org/none" in answer.json()["error"]["message"]


async def test_a_token_is_named_and_read_here(edges: Edges, hub: Hub, tmp_path: Path) -> None:
    secret = {
        **HUB,
        "huggingface_dataset": "org/secret",
        "huggingface_config": {"column_mapping": {"question": "prompt"}, "token": "hub"},
    }
    answer = await edges.http.post("/v1/datasets/connect", json=secret, timeout=120.0)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "SECRET_MISSING")
    folder = tmp_path / "secrets"
    folder.mkdir()
    (folder / "hub").write_text("hf_secret\n")
    (folder / "hub").chmod(0o600)
    answer = await edges.http.post("/v1/datasets/connect/validate", json=secret, timeout=120.0)
    assert answer.json() == {
        "object": "dataset_validation",
        "valid": True,
        "num_rows": None,
        "columns": ["prompt", "answer", "level"],
        "error": None,
    }
    plain = {**secret, "huggingface_config": {"token": "hf_AbcSecret"}}
    answer = await edges.http.post("/v1/datasets/connect", json=plain)
    assert answer.status_code == 422
    assert "is named here, not held" in answer.json()["error"]["message"]


async def test_files_are_read_below_listed_folders_only(tmp_path: Path) -> None:
    root, outside = tmp_path / "data", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    rows = LINES.replace(b'"question"', b'"prompt"')
    for folder in (root, outside):
        (folder / "sums.jsonl").write_bytes(rows)
    (root / "sums.csv").write_text("prompt,answer\nWhat?,1\n")
    (root / "bad.jsonl").write_text('{"prompt": "x"}\n{"answer": 1}\n')
    (root / "link.jsonl").symlink_to(outside / "sums.jsonl")
    (root / "up").symlink_to(outside)
    async with open_edges(tmp_path, dataset_roots=(root,)) as edges:

        async def connect(name: str, path: object) -> Any:
            body = {"name": name, "source_type": "path", "path": str(path)}
            return await edges.http.post("/v1/datasets/connect", json=body)

        answer = await connect("sums", root / "sums.jsonl")
        assert answer.status_code == 200, answer.text
        assert (answer.json()["num_rows"], answer.json()["source_uri"]) == (30, f"file://{root}/sums.jsonl")
        assert (await connect("table", root / "sums.csv")).json()["num_rows"] == 1
        for path in (
            outside / "sums.jsonl",
            root / "link.jsonl",
            root / "up" / "sums.jsonl",
            root / ".." / "outside" / "sums.jsonl",
            root,
            root / "none.jsonl",
            "sums.jsonl",
            "/etc/passwd",
        ):
            answer = await connect("other", path)
            assert answer.status_code == 422, path
            assert answer.json()["error"]["param"] == "path"
        answer = await connect("bad", root / "bad.jsonl")
        assert answer.status_code == 422
        assert "line 2" in answer.json()["error"]["message"]
        tried = await edges.datasets.ValidateDatasetSource(
            pb.ValidateDatasetSourceRequest(
                source=pb.DatasetSource(source_type="path", path=str(root / "bad.jsonl"))
            )
        )
        assert tried.error.startswith("line 2")
        tried = await edges.datasets.ValidateDatasetSource(
            pb.ValidateDatasetSourceRequest(
                source=pb.DatasetSource(source_type="path", path=str(root / "sums.csv"))
            )
        )
        assert (tried.error, tried.row_count, list(tried.columns)) == ("", 1, ["prompt", "answer"])


async def test_wrong_sources_are_told_by_their_fields(edges: Edges) -> None:
    for fields, params in (
        ({}, {"name", "huggingface_dataset"}),
        ({"name": "x", "source_type": "s3"}, {"source_type"}),
        ({"name": "x", "huggingface_dataset": "../etc"}, {"huggingface_dataset"}),
        ({"name": "x", "huggingface_dataset": "a/b", "path": "/x"}, {"path"}),
        ({"name": "x", "source_type": "path"}, {"path"}),
        ({"name": "x", "huggingface_dataset": "a/b", "volume": "v"}, {"volume"}),
        (
            {
                "name": "x y",
                "huggingface_dataset": "a/b",
                "huggingface_config": {
                    "config_name": "a",
                    "subset": "b",
                    "column_mapping": {"a": "prompt", "b": "prompt"},
                },
            },
            {"name", "huggingface_config.subset", "huggingface_config.column_mapping"},
        ),
    ):
        answer = await edges.http.post("/v1/datasets/connect", json=fields)
        assert answer.status_code == 422
        assert {e["param"] for e in answer.json()["error"]["errors"]} == params
    answer = await edges.http.post(
        "/v1/datasets/connect", json={"name": "x", "source_type": "path", "path": "/srv/x.jsonl"}
    )
    assert "dataset_roots" in answer.json()["error"]["message"]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await edges.datasets.ConnectDataset(
            pb.ConnectDatasetRequest(name="x", source=pb.DatasetSource(source_type="path"))
        )
    assert set(details_of(caught.value)) == {"path"}
