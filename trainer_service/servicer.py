"""plaudit.trainer.v1 over the run registry: convert, call, convert back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

from plaudit.errors import InvalidArgumentError
from plaudit.trainer.v1 import trainer_service_pb2 as pb
from plaudit.trainer.v1 import trainer_service_pb2_grpc as pb_grpc
from trainer_service import _convert
from trainer_service.capabilities import Capabilities
from trainer_service.exports import Exports
from trainer_service.run_checks import check_run
from trainer_service.runs import RunRegistry
from trainer_service.token_counts import TokenCounts
from trainer_service.unsloth import FIELD as UNSLOTH_FIELD
from trainer_service.unsloth import UnslothEnvironment


class TrainerServicer(pb_grpc.TrainerServiceServicer):
    """Serves one registry, exports, and what is asked before a run."""

    def __init__(
        self,
        registry: RunRegistry,
        exports: Exports,
        token_counts: TokenCounts,
        *,
        artifact_root: Path,
        secrets_dir: Path,
        capabilities: Capabilities,
        unsloth: UnslothEnvironment,
        version: str,
    ) -> None:
        self._registry = registry
        self._exports = exports
        self._token_counts = token_counts
        self._artifact_root = artifact_root
        self._secrets_dir = secrets_dir
        self._capabilities = capabilities
        self._unsloth = unsloth
        self._version = version

    async def GetTrainerInfo(
        self, request: pb.GetTrainerInfoRequest, context: Any
    ) -> pb.GetTrainerInfoResponse:
        return pb.GetTrainerInfoResponse(
            trainer_version=self._version,
            devices=[_convert.device_message(device) for device in self._capabilities.devices],
            max_concurrent_runs=self._registry.max_concurrent_runs,
            quantization=self._capabilities.quantization,
            trainer_id=self._registry.trainer_id,
        )

    async def StartRun(self, request: pb.StartRunRequest, context: Any) -> pb.StartRunResponse:
        start = _convert.run_start(request, self._artifact_root, self._secrets_dir)
        if start.spec.hyperparameters.use_unsloth and (obstacle := await self._unsloth.obstacle()):
            raise InvalidArgumentError.of(UNSLOTH_FIELD, obstacle)
        view = await self._registry.start(start)
        return pb.StartRunResponse(run=_convert.run_message(view))

    async def GetRun(self, request: pb.GetRunRequest, context: Any) -> pb.GetRunResponse:
        view = await self._registry.get(_convert.run_id(request.run_id))
        return pb.GetRunResponse(run=_convert.run_message(view))

    async def ListRuns(self, request: pb.ListRunsRequest, context: Any) -> pb.ListRunsResponse:
        views = await self._registry.views()
        return pb.ListRunsResponse(runs=[_convert.run_message(view) for view in views])

    async def PauseRun(self, request: pb.PauseRunRequest, context: Any) -> pb.PauseRunResponse:
        view = await self._registry.pause(_convert.run_id(request.run_id))
        return pb.PauseRunResponse(run=_convert.run_message(view))

    async def CancelRun(self, request: pb.CancelRunRequest, context: Any) -> pb.CancelRunResponse:
        view = await self._registry.cancel(*_convert.cancel_request(request))
        return pb.CancelRunResponse(run=_convert.run_message(view))

    async def StreamRunEvents(
        self, request: pb.StreamRunEventsRequest, context: Any
    ) -> AsyncIterator[pb.StreamRunEventsResponse]:
        records = self._registry.follow(_convert.run_id(request.run_id), request.after_sequence)
        async with aclosing(records):
            async for record in records:
                yield _convert.event_message(record)

    async def DeleteRun(self, request: pb.DeleteRunRequest, context: Any) -> pb.DeleteRunResponse:
        await self._registry.delete(_convert.run_id(request.run_id))
        return pb.DeleteRunResponse()

    async def ExportCheckpoint(
        self, request: pb.ExportCheckpointRequest, context: Any
    ) -> pb.ExportCheckpointResponse:
        asked = _convert.export_request(request, self._artifact_root)
        return _convert.export_message(await self._exports.ask(asked))

    async def CheckRun(self, request: pb.CheckRunRequest, context: Any) -> pb.CheckRunResponse:
        asked = _convert.check_request(request)
        return _convert.checked_message(
            await check_run(asked, self._capabilities, self._unsloth, self._artifact_root, self._token_counts)
        )

    async def CountTokens(self, request: pb.CountTokensRequest, context: Any) -> pb.CountTokensResponse:
        asked = _convert.token_request(request, self._artifact_root)
        return _convert.token_message(await self._token_counts.ask(asked))
