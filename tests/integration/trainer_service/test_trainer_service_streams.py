"""A run's journal over the wire: from any place, live, long, to many, and never with a gap."""

import asyncio

import grpc
import grpc.aio
import pytest
from trainer_process import PATIENCE, InnerTrainer

from plaudit.rpc import error_from_rpc
from plaudit.trainer.v1 import trainer_service_pb2 as pb
from trainer_service import runs


async def test_a_stream_may_begin_anywhere(trainer: InnerTrainer) -> None:
    await trainer.start_run(steps=40)
    everything = await trainer.events()
    assert len(everything) == 47
    for after in (0, 1, 2, 20, 45, 46, 47):
        assert await trainer.events(after=after) == everything[after:]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await trainer.events(after=48)
    assert caught.value.code() == grpc.StatusCode.OUT_OF_RANGE
    error = error_from_rpc(caught.value)
    assert error.reason == "SEQUENCE_UNKNOWN"
    assert "48 is beyond the newest entry of run run_1, which is 47" in error.message


async def test_a_place_beyond_a_living_run_is_unknown_too(trainer: InnerTrainer) -> None:
    await trainer.start_run(steps=10_000, step_seconds=0.05)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await trainer.events(after=1_000_000)
    assert error_from_rpc(caught.value).reason == "SEQUENCE_UNKNOWN"


async def test_ten_thousand_entries_stream_while_they_are_written(trainer: InnerTrainer) -> None:
    await trainer.start_run(steps=10_000, batch=50)
    events = await trainer.events()
    assert [event.sequence for event in events] == list(range(1, 10_008))
    steps = [event.step_completed for event in events if event.HasField("step_completed")]
    assert [(s.step, s.metrics["reward_mean"]) for s in steps] == [(n, n / 7) for n in range(1, 10_001)]
    assert await trainer.events(after=9_990) == events[9_990:]


async def test_a_reader_that_breaks_off_again_and_again_misses_nothing(trainer: InnerTrainer) -> None:
    await trainer.start_run(steps=150, step_seconds=0.005)
    sequences: list[int] = []
    over = False
    while not over:
        request = pb.StreamRunEventsRequest(run_id="run_1", after_sequence=len(sequences))
        call = trainer.stub.StreamRunEvents(request, timeout=PATIENCE)
        taken = 0
        async for event in call:
            sequences.append(event.sequence)
            over = event.HasField("state_changed") and event.state_changed.state == pb.RUN_STATE_COMPLETED
            taken += 1
            if taken == 17:
                call.cancel()
                break
    assert sequences == list(range(1, 158))


async def test_many_readers_see_the_same(trainer: InnerTrainer) -> None:
    await trainer.start_run(steps=100, step_seconds=0.005)
    journals = await asyncio.gather(*(trainer.events() for _ in range(20)))
    assert all(journal == journals[0] for journal in journals)
    assert [event.sequence for event in journals[0]] == list(range(1, 108))


async def test_a_reader_that_stands_still_holds_up_nobody(trainer: InnerTrainer) -> None:
    await trainer.start_run(steps=3_000, batch=100)
    still = trainer.stub.StreamRunEvents(pb.StreamRunEventsRequest(run_id="run_1"), timeout=PATIENCE)
    reading = aiter(still)
    assert (await anext(reading)).sequence == 1
    events = await trainer.events()
    assert events[-1].state_changed.state == pb.RUN_STATE_COMPLETED
    assert (await trainer.get()).last_sequence == 3_007
    rest = [event.sequence async for event in reading]
    assert rest == list(range(2, 3_008))


async def test_readers_are_woken_by_what_is_written(
    trainer: InnerTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "_POLL_SECONDS", 1_000.0)
    await trainer.start_run(steps=6, step_seconds=0.1)
    events = await trainer.events()
    assert [event.sequence for event in events] == list(range(1, 14))
