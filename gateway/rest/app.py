"""The REST application: routes over the domain, documented in /openapi.json."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from fastapi import Depends, FastAPI

from gateway.domain import Gateway
from gateway.rest.auth import Auth
from gateway.rest.datasets import datasets_router
from gateway.rest.errors import add_error_handlers
from gateway.rest.guard import LOOPBACK_ONLY, Guard, Hosts
from gateway.rest.links import FILES_PATH
from gateway.rest.logs import logs_router
from gateway.rest.me import me_router
from gateway.rest.models import models_router
from gateway.rest.new_job import job_schemas
from gateway.rest.objects import NewModel
from gateway.rest.queries import refuse_doubled
from gateway.rest.rescores import rescores_router
from gateway.rest.reward_functions import reward_functions_router
from gateway.rest.reward_servers import NewRewardServer, reward_servers_router
from gateway.rest.tokens import NewToken, tokens_router
from gateway.rest.training_jobs import training_jobs_router
from plaudit.types.dataset_sources import DatasetSource
from plaudit.types.rescores import RescoreSpec


def create_app(gateway: Gateway, hosts: Hosts = LOOPBACK_ONLY) -> FastAPI:
    """The ASGI application of `gateway`, which answers by the names `hosts`."""
    app = _App(
        title="Plaudit",
        version=version("plaudit"),
        description="GRPO post-training of language models, with the reward in a server of your own.",
        # Their pages load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        dependencies=[Depends(refuse_doubled)],
    )
    add_error_handlers(app)
    # The last that is added stands before the others.
    app.add_middleware(Auth, access=gateway.access, signed=(FILES_PATH,))
    app.add_middleware(Guard, hosts=hosts)
    app.include_router(training_jobs_router(gateway))
    app.include_router(datasets_router(gateway))
    app.include_router(reward_servers_router(gateway))
    app.include_router(rescores_router(gateway))
    app.include_router(tokens_router(gateway))
    app.include_router(reward_functions_router(gateway))
    app.include_router(logs_router(gateway))
    app.include_router(me_router())
    app.include_router(models_router(gateway))

    @app.head("/health", include_in_schema=False)
    @app.get("/health", tags=["service"])
    async def health() -> dict[str, str]:
        """Says that the gateway answers."""
        return {"status": "ok"}

    @app.get("/", tags=["service"])
    async def root() -> dict[str, str]:
        """Says what this is, and where to read on."""
        return {
            "service": "plaudit gateway",
            "version": app.version,
            "openapi": "/openapi.json",
            "health": "/health",
            "training_jobs": "/v1/training_jobs",
        }

    return app


class _App(FastAPI):
    """Adds to the documentation the bodies that are validated by plaudit.types and not by FastAPI."""

    def openapi(self) -> dict[str, Any]:
        if not self.openapi_schema:
            document = super().openapi()
            definitions = job_schemas()
            rescore = RescoreSpec.model_json_schema(ref_template="#/components/schemas/{model}")
            del rescore["$defs"]  # the same RewardBinding
            del rescore["required"]  # without rewards: those of the job
            server = NewRewardServer.model_json_schema(ref_template="#/components/schemas/{model}")
            definitions |= server.pop("$defs")
            source = DatasetSource.model_json_schema(ref_template="#/components/schemas/{model}")
            definitions |= source.pop("$defs")
            token = NewToken.model_json_schema(ref_template="#/components/schemas/{model}")
            definitions |= token.pop("$defs")
            named = {"name": {"type": "string"}, **source["properties"]}
            document["components"]["schemas"].update(
                definitions,
                RescoreSpec=rescore,
                NewRewardServer=server,
                NewToken=token,
                NewModel=NewModel.model_json_schema(),
                DatasetSource=source,
                NewDatasetConnection={**source, "properties": named, "required": ["name"]},
            )
        return super().openapi()
