"""/v1/models, the checkpoints and the model of a job, and the files of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from gateway.domain import Gateway
from gateway.models.checkpoints import Checkpoint
from gateway.models.links import SignedAddress
from gateway.models.model import Model, ModelForm
from gateway.rest import objects, queries
from gateway.rest.bodies import read_json_object
from gateway.rest.documented import json_body
from gateway.rest.errors import PAGE_FIELDS, fields_named
from gateway.rest.links import FILES_PATH, DownloadLinks, OpenFileResponse
from gateway.rest.responses import FAILURES, answer
from plaudit.errors import FieldViolation, InvalidArgumentError
from plaudit.types.validation import parse_model

NoQuery = Annotated[queries.NoQuery, Query()]


def models_router(gateway: Gateway) -> APIRouter:
    """Routes over models and checkpoints: convert, call the domain, convert back."""
    router = APIRouter(tags=["models"], responses=FAILURES)
    models = gateway.models
    links = DownloadLinks(models)

    def shown(request: Request, model: Model) -> objects.ModelObject:
        return objects.ModelObject(
            id=model.id,
            name=model.name,
            status=model.status.value,
            status_detail=model.status_detail,
            base_model=model.base_model,
            training_job_id=model.job_id,
            step=model.step,
            attempt=model.attempt,
            is_final=model.is_final,
            kind=model.kind.value,
            artifact_type="adapter" if model.form == "adapter" else "full",
            dtype=model.dtype,
            size_bytes=model.size_bytes,
            download_url=links.weights(request, model),
            files=links.files(request, model.uri, model.files),
            created_at=model.created_at,
        )

    @router.get("/v1/models", response_model=objects.ModelList)
    async def list_models(request: Request, query: Annotated[queries.ModelsQuery, Query()]) -> Response:
        """Lists models, newest first."""
        with fields_named({**PAGE_FIELDS, "id": "training_job_id"}):
            page = await models.list(limit=query.limit, after=query.after, job_id=query.training_job_id)
        return answer(
            objects.ModelList(
                data=[shown(request, model) for model in page.items], has_more=bool(page.next_page_token)
            )
        )

    @router.post(
        "/v1/models",
        response_model=objects.ModelObject,
        openapi_extra=json_body("NewModel"),
    )
    async def export_model(request: Request, query: NoQuery) -> Response:
        """Begins the export of a checkpoint; answers before it is done. The same again is the same model.

        With `source` instead of `checkpoint`: the model of a completed job, which it has by itself.
        """
        asked = parse_model(objects.NewModel, await read_json_object(request))
        if asked.source is not None:
            job_id = _job_to_save(asked, asked.source)
            form: ModelForm = "adapter" if asked.artifact == "adapter" else "merged"
            with fields_named({"id": "source.training_job_id"}):
                model = await models.save(job_id, form=form, name=asked.name or "")
        elif asked.checkpoint is None:
            raise InvalidArgumentError.of("checkpoint", 'is missing; for example "job_01@120"')
        else:
            _refuse(asked, ("name", "artifact"), "goes with source; leave it out")
            model = await models.export(asked.checkpoint, form=asked.form, dtype=asked.dtype)
        return answer(shown(request, model))

    @router.get("/v1/models/{id}", response_model=objects.ModelObject)
    async def get_model(id: str, request: Request, query: NoQuery) -> Response:
        """Returns a model, by id, or by the name of the newest job with it."""
        return answer(shown(request, await models.get(id)))

    @router.delete("/v1/models/{id}", response_model=objects.Deleted)
    async def delete_model(id: str, query: NoQuery) -> Response:
        """Deletes a model and its files; its job and checkpoints stay."""
        return answer(objects.Deleted(id=(await models.delete(id)).id, object="model"))

    @router.get("/v1/training_jobs/{id}/model", response_model=objects.ModelObject)
    async def get_training_job_model(id: str, request: Request, query: NoQuery) -> Response:
        """Returns the model of a completed job, with a URL for each file."""
        return answer(shown(request, await models.of_job(id)))

    @router.get("/v1/training_jobs/{id}/checkpoints", response_model=objects.CheckpointList)
    async def list_checkpoints(id: str, query: Annotated[queries.ListQuery, Query()]) -> Response:
        """Lists the checkpoints of a job that are there, newest step first."""
        with fields_named(PAGE_FIELDS):
            page = await models.checkpoints.list(id, limit=query.limit, after=query.after)
        return answer(
            objects.CheckpointList(
                data=[_checkpoint(checkpoint) for checkpoint in page.items],
                has_more=bool(page.next_page_token),
            )
        )

    @router.get("/v1/training_jobs/{id}/checkpoints/{checkpoint}", response_model=objects.CheckpointObject)
    async def get_checkpoint(id: str, checkpoint: str, query: NoQuery) -> Response:
        """Returns a checkpoint, by its id, "job_...@120"."""
        return answer(_checkpoint(await models.checkpoints.get(id, checkpoint)))

    @router.get(
        "/v1/training_jobs/{id}/checkpoints/{checkpoint}/download",
        response_model=objects.CheckpointDownload,
    )
    async def download_checkpoint(
        id: str, checkpoint: str, request: Request, query: Annotated[queries.ArtifactQuery, Query()]
    ) -> Response:
        """Returns a URL for each file of a checkpoint, or of a part of it."""
        found = await models.checkpoints.get(id, checkpoint)
        files = links.files(request, found.uri, found.files_of(query.artifact))
        return answer(objects.CheckpointDownload(id=found.id, artifact=query.artifact, files=files))

    @router.head(FILES_PATH + "{address:path}", include_in_schema=False)
    @router.get(FILES_PATH + "{address:path}", response_class=Response)
    async def read_file(address: str, query: Annotated[queries.LinkQuery, Query()]) -> Response:
        """Serves the file of a URL that was given out, for an hour; ranges are honoured."""
        link = SignedAddress(address, query.expires, query.signature)
        return OpenFileResponse(await models.open_link(link), address)

    return router


def _checkpoint(checkpoint: Checkpoint) -> objects.CheckpointObject:
    return objects.CheckpointObject(
        id=checkpoint.id,
        training_job_id=checkpoint.job_id,
        step=checkpoint.step,
        attempt=checkpoint.attempt,
        size_bytes=checkpoint.size_bytes,
        file_count=len(checkpoint.files_of("resumable")),
        has_adapters=checkpoint.has_adapters,
        created_at=checkpoint.created_at,
    )


def _job_to_save(asked: objects.NewModel, source: dict[str, Any]) -> str:
    """The job that `source` names. InvalidArgumentError where it names none, or goes with what it cannot."""
    _refuse(asked, ("checkpoint", "form", "dtype"), "goes without source; leave one of the two out")
    return parse_model(objects.ModelSource, source, "source").training_job_id


def _refuse(asked: objects.NewModel, names: Sequence[str], why: str) -> None:
    given = [name for name in names if name in asked.model_fields_set and getattr(asked, name) is not None]
    if given:
        raise InvalidArgumentError([FieldViolation(name, why) for name in given])
