"""How an object is answered, and how failures are documented."""

from __future__ import annotations

from typing import Any, Final

from fastapi import Response

from gateway.rest.objects import ErrorEnvelope, RestObject


def answer(body: RestObject) -> Response:
    """The object as JSON."""
    return Response(body.model_dump_json(), media_type="application/json")


FAILURES: Final[dict[int | str, dict[str, Any]]] = {
    "default": {"model": ErrorEnvelope, "description": "What failed, and the way out."}
}
"""For `responses=` of every route."""
