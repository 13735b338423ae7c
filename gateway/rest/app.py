"""The REST application: routes over the domain, documented in /openapi.json."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from fastapi import FastAPI

from gateway.domain import Gateway
from gateway.rest.datasets import datasets_router
from gateway.rest.errors import add_error_handlers
from gateway.rest.guard import Guard
from gateway.rest.reward_servers import reward_servers_router
from gateway.rest.training_jobs import training_jobs_router
from plaudit.types.jobs import TrainingJobSpec


def create_app(gateway: Gateway) -> FastAPI:
    """The ASGI application of `gateway`. It answers on loopback names only."""
    app = _App(
        title="Plaudit",
        version=version("plaudit"),
        description="GRPO post-training of language models, with the reward in a server of your own.",
        # Their pages load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    add_error_handlers(app)
    app.add_middleware(Guard)
    app.include_router(training_jobs_router(gateway))
    app.include_router(datasets_router(gateway))
    app.include_router(reward_servers_router(gateway))

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
    """Adds to the documentation the job spec, whose body is validated by plaudit.types and not by FastAPI."""

    def openapi(self) -> dict[str, Any]:
        if not self.openapi_schema:
            document = super().openapi()
            spec = TrainingJobSpec.model_json_schema(ref_template="#/components/schemas/{model}")
            definitions = spec.pop("$defs")
            # The name of a binding is its reward's where it is not given.
            definitions["RewardBinding"]["required"].remove("name")
            document["components"]["schemas"].update(definitions, TrainingJobSpec=spec)
        return super().openapi()
