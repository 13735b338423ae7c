"""/v1/datasets."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from gateway.datasets import FORMATS, check_upload, read_connection
from gateway.domain import Gateway
from gateway.rest import _convert, objects, queries
from gateway.rest.bodies import Body, read_json_object, while_connected
from gateway.rest.documented import file_body, json_body
from gateway.rest.errors import PAGE_FIELDS, fields_named
from gateway.rest.multipart import FileBegin, FileChunk, TextPart, read_parts
from gateway.rest.responses import FAILURES, answer
from gateway.store.datasets import StoredDataset
from plaudit.errors import DeadlineExceededError, FieldViolation, InvalidArgumentError, PlauditError
from plaudit.types.dataset_sources import parse_dataset_source
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
        openapi_extra=file_body({"type": "string", "enum": list(FORMATS)}),
    )
    async def upload_dataset(request: Request, query: NoQuery) -> Response:
        """Stores a file (JSONL, a JSON list, CSV or Parquet) as a dataset; the same bytes return the same
        dataset. Without a format, it is told by the file's beginning, and CSV by its name.
        """
        body = Body(request)
        try:
            dataset = await _upload(gateway, request, body)
        except DeadlineExceededError:
            raise
        except PlauditError:
            await body.discard()
            raise
        return answer(_convert.dataset_object(dataset))

    @router.post(
        "/connect",
        response_model=objects.DatasetObject,
        openapi_extra=json_body("NewDatasetConnection"),
    )
    async def connect_dataset(request: Request, query: NoQuery) -> Response:
        """Makes a dataset of the rows of a source, as they are now. The same name with the same source
        returns the dataset that was made of it.
        """
        data = await read_json_object(request)
        name, source = read_connection(data.pop("name", None), data)
        connecting = gateway.dataset_connection.connect(name, source)
        return answer(_convert.dataset_object(await while_connected(request, connecting)))

    @router.post(
        "/connect/validate",
        response_model=objects.TriedSourceObject,
        openapi_extra=json_body("DatasetSource"),
    )
    async def validate_dataset_source(request: Request, query: NoQuery) -> Response:
        """Reads the first rows of a source, and stores nothing."""
        data = await read_json_object(request)
        name = data.pop("name", None)
        source = parse_dataset_source(data) if name is None else read_connection(name, data)[1]
        tried = await while_connected(request, gateway.dataset_connection.try_source(source))
        return answer(
            objects.TriedSourceObject(
                valid=not tried.error,
                num_rows=tried.num_rows,
                columns=list(tried.columns),
                error=tried.error or None,
            )
        )

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

    @router.get("/{id}/rows", response_model=objects.DatasetRowList)
    async def list_dataset_rows(id: str, query: Annotated[queries.RowsQuery, Query()]) -> Response:
        """Lists rows in their order."""
        with fields_named({"page_size": "limit"}):
            page = await datasets.rows(id, limit=query.limit, page_token=query.page_token)
        return answer(
            objects.DatasetRowList(
                data=[_convert.dataset_row_object(row) for row in page.items],
                has_more=bool(page.next_page_token),
                next_page_token=page.next_page_token or None,
            )
        )

    @router.get("/{id}/token_statistics", response_model=objects.TokenStatisticsObject)
    async def get_token_statistics(id: str, query: Annotated[queries.TokensQuery, Query()]) -> Response:
        """Counts the tokens of a dataset's prompts as a model reads them. Where that takes longer than a
        call, it answers 503 with the code TOKENS_BEING_COUNTED, goes on, and is to be asked again.
        """
        statistics = await gateway.prompt_tokens.statistics(
            id, query.model, max_prompt_length=query.max_prompt_length
        )
        return answer(objects.TokenStatisticsObject(dataset_id=id, model=query.model, **asdict(statistics)))

    @router.delete("/{id}", response_model=objects.Deleted)
    async def delete_dataset(id: str, query: NoQuery) -> Response:
        """Deletes a dataset and its file."""
        await datasets.delete(id)
        return answer(objects.Deleted(id=id, object="dataset"))

    return router


async def _upload(gateway: Gateway, request: Request, body: Body) -> StoredDataset:
    fields: dict[str, str] = {}
    files = 0
    by_name = ""
    async with gateway.datasets.upload() as upload:
        async for part in read_parts(body, request.headers.get("content-type")):
            match part:
                case TextPart(name, text):
                    if name not in _FIELDS:
                        raise _unknown(name)
                    if name in fields:
                        raise InvalidArgumentError.of(name, "is sent twice; send it once")
                    fields[name] = text
                case FileBegin(name, filename):
                    files += 1
                    by_name = "csv" if filename.lower().endswith((".csv", ".tsv")) else ""
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
        return await while_connected(request, upload.store(fields["name"], fields.get("format") or by_name))


def _unknown(name: str) -> InvalidArgumentError:
    return InvalidArgumentError.of(
        name, f"{shown(name)} is no part of the form; it has name, format and the file named file"
    )
