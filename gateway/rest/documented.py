"""What /openapi.json says of bodies that are validated by the domain and not by FastAPI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def json_body(schema: str, *, required: bool = True) -> dict[str, Any]:
    """A body of JSON, by the name of its schema: `openapi_extra` of a route."""
    reference = {"$ref": f"#/components/schemas/{schema}"}
    return _body("application/json", reference, required=required)


def file_body(file_format: Mapping[str, Any]) -> dict[str, Any]:
    """A named file in a form, and its format, whose schema is given: `openapi_extra` of a route."""
    schema = {
        "type": "object",
        "required": ["name", "file"],
        "properties": {
            "name": {"type": "string"},
            "format": file_format,
            "file": {"type": "string", "format": "binary"},
        },
    }
    return _body("multipart/form-data", schema, required=True)


def _body(media_type: str, schema: Mapping[str, Any], *, required: bool) -> dict[str, Any]:
    return {"requestBody": {"required": required, "content": {media_type: {"schema": schema}}}}
