"""multipart/form-data as it comes in, so that an upload is never held: not in memory, not on disk twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from gateway.rest.bodies import Body
from plaudit.errors import InvalidArgumentError

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

_MAX_TEXT_BYTES: Final = 8 * 1024
_MAX_PARTS: Final = 16
_WAY_OUT: Final = "send multipart/form-data, as curl does with -F name=... -F file=@rows.jsonl"


@dataclass(frozen=True, slots=True)
class TextPart:
    """A field."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class FileBegin:
    """A file begins; its chunks follow. `filename` is what the client calls it: never a path of ours."""

    name: str
    filename: str = ""


@dataclass(frozen=True, slots=True)
class FileChunk:
    """The next bytes of the file that began last."""

    data: bytes


Part: TypeAlias = TextPart | FileBegin | FileChunk


async def read_parts(body: Body, content_type: str | None) -> AsyncIterator[Part]:
    """Yields the parts of a form in the order in which they come. InvalidArgumentError where it is none."""
    media_type, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    if media_type != b"multipart/form-data" or not boundary:
        raise _malformed(f"the Content-Type is {media_type.decode('latin-1') or 'missing'}")
    collector = _Collector()
    try:
        parser = MultipartParser(boundary, collector.callbacks())
        async for chunk in body:
            parser.write(chunk)
            for part in collector.take():
                yield part
        parser.finalize()
    except FormParserError as error:
        raise _malformed(f"the body is not the form that it claims to be ({error})") from None
    if not collector.complete:
        raise _malformed("the body ends before its form does")
    for part in collector.take():
        yield part


class _Collector:
    """Turns the parser's callbacks into parts."""

    def __init__(self) -> None:
        self.complete = False
        self._ready: list[Part] = []
        self._parts = 0
        self._header_name = b""
        self._header_value = b""
        self._disposition = b""
        self._name = ""
        self._is_file = False
        self._text = b""

    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_part_begin": self._part_begin,
            "on_part_data": self._part_data,
            "on_part_end": self._part_end,
            "on_header_field": self._header_field,
            "on_header_value": self._header_value_part,
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_finished,
            "on_end": self._end,
        }

    def take(self) -> list[Part]:
        ready, self._ready = self._ready, []
        return ready

    def _part_begin(self) -> None:
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise _malformed(f"the form has more than {_MAX_PARTS} parts")
        self._disposition = self._text = b""

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def _header_value_part(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def _header_end(self) -> None:
        if self._header_name.lower() == b"content-disposition":
            self._disposition = self._header_value
        self._header_name = self._header_value = b""

    def _headers_finished(self) -> None:
        _, options = parse_options_header(self._disposition)
        self._name = options.get(b"name", b"").decode("utf-8", "replace")
        self._is_file = b"filename" in options
        if not self._name:
            raise _malformed("a part of the form has no name")
        if self._is_file:
            filename = options[b"filename"].decode("utf-8", "replace")
            self._ready.append(FileBegin(self._name, filename))

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._is_file:
            self._ready.append(FileChunk(data[start:end]))
            return
        self._text += data[start:end]
        if len(self._text) > _MAX_TEXT_BYTES:
            raise InvalidArgumentError.of(
                self._name, f"is longer than {_MAX_TEXT_BYTES:,} bytes; a file needs a filename in the form"
            )

    def _part_end(self) -> None:
        if not self._is_file:
            self._ready.append(TextPart(self._name, self._text.decode("utf-8", "replace")))

    def _end(self) -> None:
        self.complete = True


def _malformed(what: str) -> InvalidArgumentError:
    return InvalidArgumentError.of("(request)", f"{what}; {_WAY_OUT}")
