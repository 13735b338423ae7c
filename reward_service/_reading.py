"""Reading messages of which a text is not valid UTF-8.

A protobuf string must be valid, and one lone surrogate, as clients in JavaScript can send, would fail the
whole message with all its completions. Such a message is read again with every text as bytes, and the texts
are mended: what is not UTF-8 becomes U+FFFD.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message_factory
from google.protobuf.message import DecodeError, Message

from plaudit.reward.v1 import reward_service_pb2 as pb

Request = TypeVar("Request", bound=Message)

_Field: Final = descriptor_pb2.FieldDescriptorProto


def reader_of(message_class: type[Request]) -> Callable[[bytes], Request]:
    """A deserializer of `message_class`. Raises DecodeError where the bytes are no such message at all."""

    def read(data: bytes) -> Request:
        try:
            return message_class.FromString(data)
        except DecodeError:
            message = _with_bytes(message_class.DESCRIPTOR.full_name).FromString(data)
            _mend(message)
            return message_class.FromString(message.SerializeToString())

    return read


def _with_bytes(full_name: str) -> Any:
    """The class of a message with the same encoding, whose texts are bytes."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(full_name))


def _pool_with_bytes() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(duration_pb2.DESCRIPTOR.serialized_pb)
    file = descriptor_pb2.FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(file)
    del file.service[:]
    remaining = list(file.message_type)
    while remaining:
        message = remaining.pop()
        remaining.extend(message.nested_type)
        # A map is encoded as a list of entries, and in a map a key may not be bytes.
        message.options.ClearField("map_entry")
        for field in message.field:
            if field.type == _Field.TYPE_STRING:
                field.type = _Field.TYPE_BYTES
    pool.Add(file)
    return pool


def _mend(message: Any) -> None:
    for field, value in message.ListFields():
        values = list(value) if field.is_repeated else [value]
        if field.type == _Field.TYPE_MESSAGE:
            for child in values:
                _mend(child)
        elif field.type == _Field.TYPE_BYTES:
            mended = [text.decode("utf-8", "replace").encode() for text in values]
            if field.is_repeated:
                value[:] = mended
            else:
                setattr(message, field.name, mended[0])


_POOL: Final = _pool_with_bytes()
