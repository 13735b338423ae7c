"""Runs one rescore: reads completions a chunk at a time, has them scored, and stores what came of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

import structlog

from gateway.jobs.completions import CompletionReader, RewardOutcome, ScorableCompletion
from gateway.jobs.job import JobError
from gateway.jobs.run_specs import Unresolved, reward_targets
from gateway.rescoring.parts import PartFiles
from gateway.rescoring.rescore import RescoreResult
from gateway.rescoring.tally import Tally
from gateway.store import Store
from gateway.store.completions import CompletionFile
from gateway.store.rescores import RescoreRecord
from plaudit.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    PermissionDeniedError,
    PlauditError,
    UnauthenticatedError,
)
from plaudit.scoring import (
    CAUSES,
    PROTOCOL_ERRORS,
    CompletionScores,
    ProtocolCounters,
    RewardScorer,
    weighted_sum,
)
from plaudit.service import Secrets
from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.jobs import RewardTarget
from plaudit.types.rescores import RescoreStatus
from plaudit.types.scoring import Failed, FailureCode, NotApplicable, Purpose, Scored
from plaudit.types.statuses import ErrorCode

log = structlog.get_logger(__name__)

CHUNK: Final = 512
"""Completions that are read, scored and stored at once; more only where one group is larger."""

COMPLETIONS_UNREADABLE: Final = "completions_unreadable"
NOTHING_SCORED: Final = "nothing_scored"

_TURN_SECONDS: Final = 0.5
"""The longest wait in which a cancel is not heard."""

_CLOSE_SECONDS: Final = 2.0


class _Failure(Exception):
    """The rescore cannot go on."""

    def __init__(self, code: str, message: str, *, trouble: str = "") -> None:
        """`trouble` is what reward servers did wrong meanwhile, for people."""
        super().__init__(message)
        self.error = JobError(code, message)
        self.trouble = trouble


class _Stopped(Exception):
    """Somebody cancelled it."""


class RescoreRunner:
    """Runs rescores to their end. Several may run at once, each in a task of its own."""

    def __init__(
        self,
        store: Store,
        reader: CompletionReader,
        files: PartFiles,
        secrets: Secrets,
        *,
        patience_seconds: float,
    ) -> None:
        """`secrets` are the gateway's own; `patience_seconds` is how long a rescore waits for reward servers
        before its first score.
        """
        self._store = store
        self._reader = reader
        self._files = files
        self._secrets = secrets
        self._patience_seconds = patience_seconds
        self._details: dict[str, str] = {}

    def detail(self, rescore_id: str) -> str:
        """What a rescore waits for now, for people; "" for nothing."""
        return self._details.get(rescore_id, "")

    async def run(self, record: RescoreRecord) -> None:
        """Runs a queued rescore, or one that an earlier gateway left running from where it was.

        Raises nothing but the cancellation of its own task, after which the rescore stays as it is.
        """
        try:
            record = await self._begin(record)
            trouble = await self._score(record)
            await self._end(record, RescoreStatus.COMPLETED, detail=trouble)
        except _Stopped:
            log.info("a rescore was cancelled", rescore_id=record.id)
        except _Failure as failure:
            await self._end(record, RescoreStatus.FAILED, failure.error, detail=failure.trouble)
        except PlauditError as error:
            code = COMPLETIONS_UNREADABLE if error.reason == "ARTIFACT_UNREADABLE" else ErrorCode.CONFIG_ERROR
            await self._end(record, RescoreStatus.FAILED, JobError(code, error.message))
        except Exception as error:
            log.exception("unexpected error in a rescore", rescore_id=record.id)
            cause = JobError("internal", f"unexpected {type(error).__name__}; the gateway's log says more")
            await self._end(record, RescoreStatus.FAILED, cause)
        finally:
            self._details.pop(record.id, None)

    async def _begin(self, record: RescoreRecord) -> RescoreRecord:
        async with self._store.transaction() as session:
            record = await _still_open(session.rescores.find(record.id))
            if record.status is RescoreStatus.QUEUED:
                record = replace(record, status=RescoreStatus.RUNNING, started_at=datetime.now(UTC))
                await session.rescores.save(record)
        return record

    async def _end(
        self, record: RescoreRecord, status: RescoreStatus, error: JobError | None = None, *, detail: str = ""
    ) -> None:
        async with self._store.transaction() as session:
            found = await session.rescores.find(record.id)
            if found is None or found.status.is_terminal:
                return
            await session.rescores.save(
                replace(
                    found, status=status, status_detail=detail, error=error, finished_at=datetime.now(UTC)
                )
            )
        log.info("a rescore ended", rescore_id=record.id, status=status, error=error, detail=detail)

    async def _score(self, record: RescoreRecord) -> str:
        """Scores what is left; returns what reward servers did wrong meanwhile, "" for nothing."""
        async with self._store.snapshot() as session:
            job = await session.jobs.find_by_key(record.job_key)
            assert job is not None
            try:
                targets = await reward_targets(session, record.spec.rewards, record.server_ids)
            except Unresolved as missing:
                raise _Failure(missing.error.code, missing.error.message) from None
        hyperparameters = job.job.spec.hyperparameters
        assert isinstance(hyperparameters, GrpoHyperparameters), "only grpo writes completions"
        group_size = hyperparameters.rollouts_per_prompt
        scorer = _scorer(record, targets, job.job.spec.base_model, self._secrets)
        await asyncio.to_thread(scorer.start)
        try:
            await self._await_servers(scorer, record)
            async for file, row in self._chunks(record, group_size):
                completions = await self._reader.scorable(file, row, _chunk_size(group_size))
                scores = await self._scores(scorer, record, completions, group_size)
                record = await self._store_chunk(record, file, row, completions, scores)
                _give_up_where_useless(scorer, scores)
            trouble = _trouble(scorer.counters_by_server())
            why = Tally.model_validate_json(record.tally_json).nothing_scored(record.done_count)
            if why:
                raise _Failure(NOTHING_SCORED, why, trouble=trouble)
            return trouble
        finally:
            await asyncio.shield(asyncio.to_thread(scorer.close, _CLOSE_SECONDS))

    async def _await_servers(self, scorer: RewardScorer, record: RescoreRecord) -> None:
        give_up = time.monotonic() + self._patience_seconds
        try:
            while not await asyncio.to_thread(scorer.wait_ready, _TURN_SECONDS):
                detail = scorer.status_detail() or "waiting for the reward servers"
                await self._keep_watch(record, detail)
                if time.monotonic() > give_up:
                    raise _Failure(
                        ErrorCode.REWARD_UNAVAILABLE,
                        f"after {self._patience_seconds:g} s a reward server is still not there: {detail}; "
                        "start it, and rescore again",
                    )
        except InvalidArgumentError as error:
            raise _Failure(ErrorCode.CONFIG_ERROR, error.message) from None
        except (FailedPreconditionError, UnauthenticatedError, PermissionDeniedError) as error:
            raise _Failure(ErrorCode.REWARD_UNAVAILABLE, error.message) from None

    async def _chunks(
        self, record: RescoreRecord, group_size: int
    ) -> AsyncIterator[tuple[CompletionFile, int]]:
        """Files and first rows of the chunks that are still to be scored, in order; whole groups each."""
        spec = record.spec
        async with self._store.snapshot() as session:
            files = await session.completion_files.on_line(
                record.job_key, await session.runs.line(record.job_key), through=spec.to_step
            )
        for file in reversed(files):
            if file.step < max(spec.from_step, record.next_step):
                continue
            first = record.next_row if file.step == record.next_step else 0
            for row in range(first, file.row_count, _chunk_size(group_size)):
                yield file, row

    async def _scores(
        self,
        scorer: RewardScorer,
        record: RescoreRecord,
        completions: Sequence[ScorableCompletion],
        group_size: int,
    ) -> list[CompletionScores]:
        for one in completions:
            scorer.submit(
                one.prompt,
                one.completion,
                step=one.scored.step,
                group_size=group_size,
                purpose=Purpose.EVAL,
            )
        ids = [one.completion.completion_id for one in completions]
        while not await asyncio.to_thread(scorer.wait, ids, _TURN_SECONDS):
            await self._keep_watch(record, scorer.status_detail())
        self._details[record.id] = ""
        scores = await asyncio.to_thread(scorer.take, ids)
        return [scores[completion_id] for completion_id in ids]

    async def _keep_watch(self, record: RescoreRecord, detail: str) -> None:
        self._details[record.id] = detail
        async with self._store.snapshot() as session:
            await _still_open(session.rescores.find(record.id))

    async def _store_chunk(
        self,
        record: RescoreRecord,
        file: CompletionFile,
        row: int,
        completions: Sequence[ScorableCompletion],
        scores: Sequence[CompletionScores],
    ) -> RescoreRecord:
        weights = {binding.name: binding.weight for binding in record.spec.rewards}
        results = [
            RescoreResult(one.scored, weighted_sum(new.outcomes, weights).value, _outcomes(new))
            for one, new in zip(completions, scores, strict=True)
        ]
        tally = Tally.model_validate_json(record.tally_json)
        await asyncio.to_thread(tally.add, results)
        async with self._store.snapshot() as session:
            number = await session.rescores.count_parts(record.key)
        part = await self._files.write(record.job_id, record.id, number, results)
        async with self._store.transaction() as session:
            found = await _still_open(session.rescores.find(record.id))
            record = replace(
                found,
                next_step=file.step,
                next_row=row + len(completions),
                done_count=found.done_count + len(completions),
                tally_json=tally.model_dump_json(),
            )
            await session.rescores.insert_part(record.key, part)
            await session.rescores.save(record)
        return record


def _chunk_size(group_size: int) -> int:
    """Whole groups only: a reward that ranks must see all of one."""
    return max(1, CHUNK // group_size) * group_size


def _scorer(
    record: RescoreRecord, targets: Sequence[RewardTarget], model: str, secrets: Secrets
) -> RewardScorer:
    # Its own id as the job's: a budget that the job has spent is not the rescore's.
    return RewardScorer(targets, session_scope=record.id, job_id=record.id, model=model, secrets=secrets)


def _give_up_where_useless(scorer: RewardScorer, scores: Sequence[CompletionScores]) -> None:
    reason = scorer.pause_reason()
    if reason is not None:
        raise _Failure(ErrorCode.REWARD_UNAVAILABLE, reason)
    outcomes = [(name, scored.outcome) for one in scores for name, scored in one.outcomes.items()]
    lost = [(name, o) for name, o in outcomes if isinstance(o, Failed) and o.code is FailureCode.UNAVAILABLE]
    if outcomes and len(lost) == len(outcomes):
        name, failure = lost[0]
        raise _Failure(
            ErrorCode.REWARD_UNAVAILABLE,
            f"nothing can be scored any more; reward {name}: "
            f"{failure.message or 'its server gives no reason'}",
        )


def _trouble(counters_by_server: Mapping[str, ProtocolCounters]) -> str:
    """What each server did wrong, for people; "" where all kept to the contract."""
    servers = []
    for name, counters in counters_by_server.items():
        causes = [f"{n} {CAUSES[c]}" for c in PROTOCOL_ERRORS if (n := getattr(counters, c))]
        if causes:
            servers.append(f"reward server {name}: {', '.join(causes)}")
    return "; ".join(servers)


def _outcomes(scores: CompletionScores) -> tuple[RewardOutcome, ...]:
    outcomes = []
    for name, scored in scores.outcomes.items():
        match scored.outcome:
            case Scored(value, _, explanation):
                outcomes.append(RewardOutcome(name, "scored", value, explanation, scored.scored_at))
            case NotApplicable(reason):
                outcomes.append(RewardOutcome(name, "not_applicable", None, reason, scored.scored_at))
            case Failed(code, message):
                outcomes.append(RewardOutcome(name, str(code), None, message, scored.scored_at))
    return tuple(outcomes)


async def _still_open(finding: Awaitable[RescoreRecord | None]) -> RescoreRecord:
    record = await finding
    if record is None or record.status.is_terminal:
        raise _Stopped
    return record
