"""Rules about ScoreOnce."""

from __future__ import annotations

from typing import Final

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from plaudit.reward.v1 import reward_service_pb2 as pb
from reward_service.conformance._faults import Fault
from reward_service.conformance._ledger import Ledger, shown, told
from reward_service.conformance._rule import Broken, Skipped, optional
from reward_service.conformance._run import KEY, Run, range_of
from reward_service.conformance._talk import bad_fields
from reward_service.conformance.rules.opening import bad_configs


@optional(
    "O22",
    "score-once",
    "Scores one small batch in a single call, under the call's own deadline.",
    "answer ScoreOnce with what Score would have sent for the batch, one result per (completion, reward)",
)
async def score_once(run: Run) -> str | None:
    """One call gives what the stream gives."""
    batch = run.work.many(6)
    ledger = Ledger({KEY: range_of(run.reward)})
    ledger.opened = pb.SessionOpened()
    ledger.sent(batch, [KEY])
    answer = await _call(run, pb.ScoreOnceRequest(rewards=[run.selection()], batch=batch))
    # The same bookkeeping as for a stream, where a call has no done.
    ledger.take(pb.ScoreResponse(results=pb.Results(results=answer.results)).SerializeToString())
    ledger.close()
    known = (await run.plain()).ledger.faults
    for fault in ledger.faults - known - {Fault.NO_DONE}:
        raise Broken(ledger.told(fault))
    outcomes = ledger.entries[batch.batch_id].outcomes
    if run.reward.deterministic and run.per_completion:
        async with run.talk() as talk:
            await talk.open()
            await talk.send(batch)
            await talk.settled(batch)
            streamed = talk.outcomes(batch)
            for pair, outcome in outcomes.items():
                if pair in streamed and told(streamed[pair]) != told(outcome):
                    raise talk.broken(
                        f"completion {shown(pair[0])}: ScoreOnce says {told(outcome)}, Score says "
                        f"{told(streamed[pair])}"
                    )
    return None


@optional(
    "O23",
    "score-once-errors",
    "INVALID_ARGUMENT (BadRequest, every wrong field at once)",
    "check the rewards and the batch of ScoreOnce as those of Score, and answer INVALID_ARGUMENT",
)
async def score_once_errors(run: Run) -> str | None:
    """A request that is wrong is refused."""
    request = pb.ScoreOnceRequest(
        rewards=[run.selection(name="no_such_reward", config_json="")], batch=run.work.many(1)
    )
    try:
        await _call(run, request)
    except _Refused as refused:
        if refused.code is grpc.StatusCode.INVALID_ARGUMENT:
            return None
        raise
    raise Broken("ScoreOnce scored by a reward that is not on offer")


@optional(
    "O24",
    "config-check",
    "With a batch that has no groups nothing is scored: the server checks the selected rewards and their "
    "configs",
    "answer ScoreOnce without groups by an empty response where rewards and configs are right, else by "
    "INVALID_ARGUMENT that names them; or by one that names `batch`, and all is checked when a session opens",
)
async def config_check(run: Run) -> str | None:
    """Rewards and configs are checked without work."""
    empty = pb.Batch(batch_id="check")
    try:
        answer = await _call(run, pb.ScoreOnceRequest(rewards=[run.selection()], batch=empty))
    except _Refused as refused:
        if refused.fields and all(field.startswith("batch") for field in refused.fields):
            return "such a batch is refused; configs are checked when a session opens"
        raise
    if answer.results:
        raise Broken(f"a batch without groups got {len(answer.results)} results")
    if not run.reward.config_schema_json:
        return None
    for config in bad_configs(run.reward.config_schema_json, run.settings.config_json):
        try:
            await _call(run, pb.ScoreOnceRequest(rewards=[run.selection(config_json=config)], batch=empty))
        except _Refused as refused:
            if refused.code is grpc.StatusCode.INVALID_ARGUMENT:
                continue
            raise
        raise Broken(f"config {shown(config)} was found right")
    return None


class _Refused(Broken):
    def __init__(self, error: grpc.aio.AioRpcError) -> None:
        super().__init__(f"ScoreOnce ended with {error.code().name} {shown(error.details() or '')}")
        self.code = error.code()
        self.fields = bad_fields(error.trailing_metadata())


async def _call(run: Run, request: pb.ScoreOnceRequest) -> pb.ScoreOnceResponse:
    try:
        raw = await run.wire.score_once(request, run.timeout)
        return pb.ScoreOnceResponse.FromString(raw)
    except DecodeError as error:
        raise Broken(f"the answer of {len(raw)} bytes is no ScoreOnceResponse: {error}") from None
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            raise Skipped("ScoreOnce is not implemented") from None
        raise _Refused(error) from None


OPTIONAL_RULES: Final = (score_once, score_once_errors, config_check)
