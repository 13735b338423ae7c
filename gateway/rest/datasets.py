"""/v1/datasets."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from gateway.datasets import check_upload
from gateway.domain import Gateway
from gateway.rest import _convert, objects, queries
from gateway.rest.bodies import Body
from gateway.rest.errors import PAGE_FIELDS, fields_named
from gateway.rest.multipart import FileBegin, FileChunk, TextPart, read_parts
from gateway.rest.responses import FAILURES, answer
from gateway.store.datasets import StoredDataset
from plaudit.errors import DeadlineExceededError, FieldViolation, InvalidArgumentError, PlauditError
from plaudit.types.validation import shown

NoQuery = Annotated[queries.NoQuery, Query()]

_FIELDS = ("name", "format")


def datasets_router(gateway: Gateway) -> APIRouter:
    """Routes over datasets: convert, call the domain, convert back."""
    router = APIRouter(prefix="/v1/datasets", tags=["datasets"], responses=FAILURES)
    datasets = gateway.datasets

    @router.post(
        "",
        response_model=objects.DatasetObject,
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {
                    "multipart/form-data": {
                        "schema": {
                            "type": "object",
                            "required": ["name", "file"],
                            "properties": {
                                "name": {"type": "string"},
                                "format": {"type": "string", "enum": ["jsonl"]},
                                "file": {"type": "string", "format": "binary"},
                            },
                        }
                    }
                },
            }
        },
    )
    async def upload_dataset(request: Request, query: NoQuery) -> Response:
        """Stores a JSONL file as a dataset; the same bytes return the same dataset."""
        body = Body(request)
        try:
            dataset = await _upload(gateway, body, request.headers.get("content-type"))
        except DeadlineExceededError:
            raise
        except PlauditError:
            await body.discard()
            raise
        return answer(_convert.dataset_object(dataset))

    @router.get("", response_model=objects.DatasetList)
    async def list_datasets(query: Annotated[queries.ListQuery, Query()]) -> Response:
        """Lists datasets, newest first."""
        with fields_named(PAGE_FIELDS):
            page = await datasets.list(limit=query.limit, after=query.after)
        return answer(
            objects.DatasetList(
                data=[_convert.dataset_object(dataset) for dataset in page.items],
                has_more=bool(page.next_page_token),
            )
        )

    @router.get("/{id}", response_model=objects.DatasetObject)
    async def get_dataset(id: str, query: NoQuery) -> Response:
        """Returns a dataset, by id or name."""
        return answer(_convert.dataset_object(await datasets.get(id)))

    @router.delete("/{id}", response_model=objects.Deleted)
    async def delete_dataset(id: str, query: NoQuery) -> Response:
        """Deletes a dataset and its file."""
        await datasets.delete(id)
        return answer(objects.Deleted(id=id, object="dataset"))

    return router


async def _upload(gateway: Gateway, body: Body, content_type: str | None) -> StoredDataset:
    fields: dict[str, str] = {}
    files = 0
    async with gateway.datasets.upload() as upload:
        async for part in read_parts(body, content_type):
            match part:
                case TextPart(name, text):
                    if name not in _FIELDS:
                        raise _unknown(name)
                    if name in fields:
                        raise InvalidArgumentError.of(name, "is sent twice; send it once")
                    fields[name] = text
                case FileBegin(name):
                    files += 1
                    if name != "file":
                        raise _unknown(name)
                    if files > 1:
                        raise InvalidArgumentError.of("file", "is sent twice; send one file")
                    if "name" in fields:
                        # Before the file is received, where the form allows it.
                        check_upload(fields["name"], fields.get("format", ""))
                case FileChunk(data):
                    await upload.write(data)
        missing = [name for name, there in (("name", "name" in fields), ("file", files)) if not there]
        if missing:
            raise InvalidArgumentError([FieldViolation(name, "is missing in the form") for name in missing])
        return await upload.store(fields["name"], fields.get("format", ""))


def _unknown(name: str) -> InvalidArgumentError:
    return InvalidArgumentError.of(
        name, f"{shown(name)} is no part of the form; it has name, format (jsonl) and the file named file"
    )
