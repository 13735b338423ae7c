"""Uploads frame by frame and part by part: what is out of order or no form is told, and leaves nothing."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator

import grpc
import pytest
from edges import Edges, details_of, jsonl

from plaudit.gateway.v1 import dataset_service_pb2 as pb

ADDITIONS = jsonl(
    {"prompt": [{"role": "user", "content": "2 + 3?"}], "answer": 5},
    {"prompt": "4 + 4?", "answer": 8.0, "hint": None},
)
OUT_OF_ORDER: list[tuple[list[pb.UploadDatasetRequest], str]] = [
    ([], "header"),
    ([pb.UploadDatasetRequest(chunk=ADDITIONS)], "header"),
    ([pb.UploadDatasetRequest()], "header"),
    ([pb.UploadDatasetRequest(header=pb.UploadDatasetHeader(name="a"))] * 2, "chunk"),
    ([pb.UploadDatasetRequest(header=pb.UploadDatasetHeader(name="a", format="xml"))], "format"),
    ([pb.UploadDatasetRequest(header=pb.UploadDatasetHeader(name="a"))], "file"),
]


async def test_a_conversation_out_of_order_is_refused(edges: Edges) -> None:
    for frames, field in OUT_OF_ORDER:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await edges.datasets.UploadDataset(iter(frames))
        assert list(details_of(caught.value)) == [field]


async def test_a_refusal_waits_until_the_client_has_written(edges: Edges) -> None:
    """A status that reaches grpc.aio in the middle of a write is lost: it reports INTERNAL in its place."""
    call = edges.datasets.UploadDataset()
    await call.write(pb.UploadDatasetRequest(header=pb.UploadDatasetHeader(name="no name")))
    await asyncio.sleep(0.2)
    assert not call.done()
    await call.write(pb.UploadDatasetRequest(chunk=ADDITIONS))
    await call.done_writing()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert list(details_of(caught.value)) == ["name"]


BOUNDARY = "b0undary"


def form(*parts: tuple[str, bytes], end: str = f"--{BOUNDARY}--\r\n") -> bytes:
    text = b"".join(
        f"--{BOUNDARY}\r\nContent-Disposition: form-data; {disposition}\r\n\r\n".encode() + body + b"\r\n"
        for disposition, body in parts
    )
    return text + end.encode()


NAME = ('name="name"', b"a")
FILE = ('name="file"; filename="x"', ADDITIONS)


WRONG_FORMS = [
    (form(NAME), ["file"]),
    (form(FILE), ["name"]),
    (form(), ["name", "file"]),
    (form(NAME, FILE, FILE), ["file"]),
    (form(NAME, FILE, ('name="purpose"', b"x")), ["purpose"]),
    (form(NAME, ('name="other"; filename="x"', b"x")), ["other"]),
    (form(('name="name"', b"a" * 10_000), FILE), ["name"]),
    (form(NAME, ("filename=x", ADDITIONS)), ["(request)"]),
    (form(NAME, NAME, FILE), ["name"]),
    (form(*[NAME] * 20), ["(request)"]),
    (form(NAME, FILE, end=""), ["(request)"]),
    (b"no form at all", ["(request)"]),
    (b"", ["(request)"]),
]


async def test_a_wrong_form_is_told_what_is_wrong(edges: Edges) -> None:
    for body, params in WRONG_FORMS:
        answer = await edges.http.post(
            "/v1/datasets",
            content=body,
            headers={"content-type": f"multipart/form-data; boundary={BOUNDARY}"},
        )
        assert answer.status_code == 422
        assert [e["param"] for e in answer.json()["error"]["errors"]] == params
    assert list((edges.artifact_root / "datasets" / "incoming").iterdir()) == []


async def test_a_form_in_any_order_and_in_any_pieces_is_taken(edges: Edges) -> None:
    body = form(FILE, NAME)

    async def byte_by_byte() -> AsyncIterator[bytes]:
        for value in body:
            yield bytes([value])

    answer = await edges.http.post(
        "/v1/datasets",
        content=byte_by_byte(),
        headers={"content-type": f'multipart/form-data; boundary="{BOUNDARY}"'},
    )
    assert answer.json()["id"] == f"ds_{hashlib.sha256(ADDITIONS).hexdigest()[:32]}"


async def test_a_body_that_is_no_form_says_what_to_send(edges: Edges) -> None:
    answer = await edges.http.post("/v1/datasets", json={"name": "a"})
    assert answer.status_code == 422
    assert (
        "the Content-Type is application/json; send multipart/form-data" in answer.json()["error"]["message"]
    )
