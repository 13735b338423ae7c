"""Small forms: some fields and one file, held in memory and bounded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gateway.rest.bodies import Body
from gateway.rest.multipart import FileBegin, FileChunk, TextPart, read_parts
from plaudit.errors import FieldViolation, InvalidArgumentError, ResourceExhaustedError
from plaudit.types.validation import shown


@dataclass(frozen=True, slots=True)
class Form:
    """A form; `filename` is what the client calls the file, "" where it does not: never a path of ours."""

    fields: Mapping[str, str]
    content: bytes
    filename: str


async def read_form(body: Body, content_type: str | None, names: Sequence[str], *, max_bytes: int) -> Form:
    """The form in the body: text fields of these `names`, the first of which it must have, and a file named
    `file` of at most `max_bytes`. Raises InvalidArgumentError, ResourceExhaustedError (UPLOAD_TOO_LARGE).
    """
    fields: dict[str, str] = {}
    content = bytearray()
    filename: str | None = None
    async for part in read_parts(body, content_type):
        match part:
            case TextPart(name, text):
                _require_new(name, name in names, name in fields)
                fields[name] = text
            case FileBegin(name, called):
                _require_new(name, name == "file", filename is not None)
                filename = called
            case FileChunk(data):
                content += data
                if len(content) > max_bytes:
                    raise ResourceExhaustedError(
                        f"the file is larger than {max_bytes:,} bytes, the most that is accepted here",
                        reason="UPLOAD_TOO_LARGE",
                    )
    there = {names[0]: names[0] in fields, "file": filename is not None}
    missing = [name for name, is_there in there.items() if not is_there]
    if missing:
        raise InvalidArgumentError([FieldViolation(name, "is missing in the form") for name in missing])
    return Form(fields, bytes(content), filename or "")


def _require_new(name: str, is_known: bool, is_there: bool) -> None:
    if not is_known:
        raise InvalidArgumentError.of(name, f"{shown(name)} is no part of this form; leave it out")
    if is_there:
        raise InvalidArgumentError.of(name, "is sent twice; send it once")
