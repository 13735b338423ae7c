"""Reward functions: upload, read, delete."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

from plaudit.client import _convert, models
from plaudit.client._blocking import Blocking, blocking, blocking_iterator
from plaudit.client._wire import Wire
from plaudit.errors import InvalidArgumentError
from plaudit.gateway.v1 import reward_function_service_pb2 as pb
from plaudit.gateway.v1.reward_function_service_pb2_grpc import RewardFunctionServiceStub
from plaudit.types.validation import shown


class AsyncRewardFunctions:
    """`client.reward_functions` of an `AsyncClient`."""

    def __init__(self, wire: Wire) -> None:
        self._stub = RewardFunctionServiceStub(wire.channel)
        self._wire = wire

    async def upload(
        self,
        path: str | Path,
        *,
        name: str | None = None,
        file_format: str = "trl",
        request_id: str | None = None,
    ) -> models.RewardFunction:
        """Uploads a Python file with a function that scores; `name` defaults to the file's without its
        ending. The same content under the same name and format gives the same function.

        `file_format` is "trl" (def reward(prompts, completions, **columns) -> list) or "miles" (async def
        reward(args, sample, **kwargs) -> float). Raises InvalidArgumentError with what the reward server
        finds wrong with the file.
        """
        file = Path(path)
        source = await self._wire.offload(_read_source, file)
        function = _convert.carry(
            pb.RewardFunction,
            {
                "name": file.stem if name is None else name,
                "format": file_format,
                "filename": file.name,
                "source": source,
            },
        )
        request = pb.CreateRewardFunctionRequest(
            reward_function=function, request_id=request_id or str(uuid.uuid4())
        )
        return _convert.reward_function_from_proto(
            await self._wire.call(self._stub.CreateRewardFunction, request)
        )

    async def get(self, function_id: str) -> models.RewardFunction:
        """A function with its source, by id, or the newest of a name."""
        request = _convert.carry(pb.GetRewardFunctionRequest, {"id": function_id})
        return _convert.reward_function_from_proto(
            await self._wire.call(self._stub.GetRewardFunction, request)
        )

    async def list(self) -> AsyncIterator[models.RewardFunction]:
        """Functions without their sources, newest first; pages are fetched as they are needed."""
        request = pb.ListRewardFunctionsRequest(page_size=100)
        async for page in self._wire.pages(self._stub.ListRewardFunctions, request):
            for item in page.reward_functions:
                yield _convert.reward_function_from_proto(item)

    async def delete(self, function_id: str) -> None:
        """Deletes a function; jobs that named it have its source."""
        await self._wire.call_once(
            self._stub.DeleteRewardFunction,
            _convert.carry(pb.DeleteRewardFunctionRequest, {"id": function_id}),
        )


class RewardFunctions(Blocking[AsyncRewardFunctions]):
    """`client.reward_functions`."""

    upload = blocking(AsyncRewardFunctions.upload)
    get = blocking(AsyncRewardFunctions.get)
    list = blocking_iterator(AsyncRewardFunctions.list)
    delete = blocking(AsyncRewardFunctions.delete)


def _read_source(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InvalidArgumentError.of(
            "path", f"{shown(str(file))} cannot be read ({why}); name a Python file in UTF-8"
        ) from None
