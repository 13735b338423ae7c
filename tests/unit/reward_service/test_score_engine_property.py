"""Whatever a client does, each (completion, reward key) gets one result per stream, and then comes `done`."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from plaudit.errors import AbortedError, PlauditError
from plaudit.types.scoring import Completion, FailureCode, NotApplicable, Outcome, Prompt, Scored
from reward_service._session import Selection, Session, SessionRequest
from reward_service._stream import Bundle, Done, Frame, Opened, Rejected, Stream
from reward_service._work import Batch, Group, Report
from reward_service.limits import ServerLimits
from reward_service.session import ScoreEngine

WINDOW = 12
KEYS = ("left", "right")


@dataclass
class Scorer:
    """Scores when it is told to, and counts how often it was asked."""

    rng: random.Random
    keys: tuple[str, ...] = KEYS
    started: Counter[str] = field(default_factory=Counter)
    stopped: set[str] = field(default_factory=set)
    open: dict[str, tuple[Report, list[int]]] = field(default_factory=dict)

    def start(self, batch: Batch, keys: Sequence[str], report: Report) -> Callable[[], None]:
        self.started[batch.batch_id] += 1
        self.open[batch.batch_id] = (report, list(range(batch.completion_count * len(keys))))

        def stop() -> None:
            self.stopped.add(batch.batch_id)
            # Work that was stopped may still report: nothing may come of it.
            report, left = self.open.pop(batch.batch_id)
            report(left, [Scored(-1.0)] * len(left), 0.0)

        return stop

    def score_some(self) -> None:
        if not self.open:
            return
        batch_id = self.rng.choice(list(self.open))
        report, left = self.open[batch_id]
        self.rng.shuffle(left)
        count = self.rng.randint(1, len(left))
        chosen, rest = left[:count], left[count:]
        outcomes: list[Outcome] = [self.rng.choice((Scored(1.0), NotApplicable("n/a"))) for _ in chosen]
        if rest:
            self.open[batch_id] = (report, rest)
        else:
            del self.open[batch_id]
        report(chosen, outcomes, 0.1)


class Client:
    """Keeps to the contract, and notes what it is sent on each stream."""

    def __init__(self, engine: ScoreEngine) -> None:
        self.engine = engine
        self.sent: dict[str, Batch] = {}
        self.done: set[str] = set()
        self.done_on_older_streams: set[str] = set()
        self.rejected: list[Rejected] = []
        self.having: set[tuple[str, str, str]] = set()
        self.session: Session | None = None
        self.stream: Stream | None = None
        self.reader: asyncio.Task[None] | None = None
        self.reading = asyncio.Event()
        self.reading.set()
        self.retained: list[str] = []
        self.ended_with: list[PlauditError] = []

    async def connect(self) -> None:
        pending = [batch_id for batch_id in self.sent if batch_id not in self.done]
        self.done_on_older_streams = set(self.done)
        self.session, self.stream = await self.engine.open(
            SessionRequest("session", (Selection("left", "x"), Selection("right", "x")), pending)
        )
        self.reader = asyncio.create_task(self.read(self.stream.frames()))

    async def cut(self) -> None:
        assert self.reader is not None
        assert self.session is not None
        assert self.stream is not None
        self.reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.reader
        self.engine.detach(self.session, self.stream)

    async def read(self, frames: AsyncIterator[Frame]) -> None:
        on_stream: set[tuple[str, str, str]] = set()
        outcomes: Counter[tuple[str, str]] = Counter()
        finished: set[str] = set()
        try:
            async for frame in frames:
                await self.reading.wait()
                match frame:
                    case Opened():
                        self.retained = list(frame.retained_batch_ids)
                    case Bundle():
                        for results in frame.results:
                            batch_id = results.batch_id
                            assert batch_id not in finished, "a result came after done"
                            for completion_id, outcome in zip(
                                results.completion_ids, results.outcomes, strict=True
                            ):
                                key = batch_id, completion_id, results.reward_key
                                assert key not in on_stream, f"{key} came twice on one stream"
                                on_stream.add(key)
                                self.having.add(key)
                                outcomes[batch_id, type(outcome).__name__] += 1
                    case Done():
                        batch_id = frame.batch_id
                        assert batch_id not in finished, "done came twice on one stream"
                        finished.add(batch_id)
                        self.done.add(batch_id)
                        due = {
                            (batch_id, c.completion_id, key)
                            for c in self.sent[batch_id].groups[0].completions
                            for key in KEYS
                        }
                        assert due <= on_stream, "done came before all results"
                        assert frame.scored_count == outcomes[batch_id, "Scored"]
                        assert frame.not_applicable_count == outcomes[batch_id, "NotApplicable"]
                        assert frame.failed_count == outcomes[batch_id, "Failed"]
                    case Rejected():
                        self.rejected.append(frame)
        except PlauditError as error:
            self.ended_with.append(error)

    def in_flight(self) -> int:
        return sum(
            1
            for batch in self.sent.values()
            for c in batch.groups[0].completions
            if not all((batch.batch_id, c.completion_id, key) in self.having for key in KEYS)
        )

    def send(self, count: int) -> None:
        batch_id = f"b{len(self.sent)}"
        completions = [Completion(f"{batch_id}-{i}", "text") for i in range(count)]
        batch = Batch(batch_id, [Group(Prompt("g", ()), completions)], fingerprint=len(self.sent))
        in_flight = self.in_flight()
        if in_flight and in_flight + count > WINDOW:
            return
        self.sent[batch_id] = batch
        self.submit(batch)

    def resendable(self) -> list[Batch]:
        """Batches that the server knows: in the long run it forgets those that were done on older streams."""
        few = sum(b.completion_count for b in self.sent.values()) * len(KEYS) <= 4 * WINDOW
        return [b for b in self.sent.values() if few or b.batch_id not in self.done_on_older_streams]

    def submit(self, batch: Batch) -> None:
        assert self.session is not None
        assert self.stream is not None
        self.engine.submit(self.session, self.stream, batch)


async def settle() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


async def play(operations: list[tuple[str, int]], seed: int) -> None:
    rng = random.Random(seed)
    scorer = Scorer(rng)
    limits = ServerLimits(window=WINDOW, max_batch_completions=20, result_retention_seconds=60)

    async def select(selections: Sequence[Selection], job_id: str, *, known: bool) -> Scorer:
        return scorer

    engine = ScoreEngine(select, limits)
    client = Client(engine)
    await client.connect()
    superseded = 0
    for name, number in operations:
        assert client.session is not None
        match name:
            case "send":
                client.send(number)
            case "score":
                scorer.score_some()
            case "settle":
                await settle()
            case "cancel" if client.sent:
                batch_id = rng.choice(list(client.sent))
                assert client.stream is not None
                engine.cancel(client.session, client.stream, batch_id)
            case "resend" if client.resendable():
                client.submit(rng.choice(client.resendable()))
            case "conflict" if client.resendable():
                batch = rng.choice(client.resendable())
                client.submit(Batch(batch.batch_id, batch.groups, fingerprint=-1))
            case "cut":
                pending = [batch_id for batch_id in client.sent if batch_id not in client.done]
                await client.cut()
                for _ in range(number):
                    scorer.score_some()
                await client.connect()
                await settle()
                if client.reading.is_set():
                    assert client.retained == pending, "work of this very server was not retained"
            case "second open":
                old = client.reader
                client.reading.set()
                await client.connect()
                superseded += 1
                assert old is not None
                await asyncio.wait_for(old, 5)
            case "stall":
                client.reading.clear()
            case "unstall":
                client.reading.set()
    client.reading.set()
    while scorer.open:
        scorer.score_some()
    assert client.stream is not None
    assert client.reader is not None
    client.stream.half_close()
    await asyncio.wait_for(client.reader, 5)
    assert client.done == set(client.sent)
    assert all(count == 1 for count in scorer.started.values()), "a batch was scored twice"
    assert {r.failure.code for r in client.rejected} <= {FailureCode.CONFLICT}
    assert [type(error) for error in client.ended_with] == [AbortedError] * superseded


OPERATIONS = st.one_of(
    st.tuples(st.just("send"), st.integers(1, 16)),
    st.tuples(st.sampled_from(("send one", "score", "score", "score", "settle")), st.just(1)),
    st.tuples(st.sampled_from(("cancel", "resend", "conflict")), st.just(1)),
    st.tuples(st.just("cut"), st.integers(0, 3)),
    st.tuples(st.sampled_from(("second open", "stall", "unstall")), st.just(0)),
).map(lambda operation: ("send", 1) if operation[0] == "send one" else operation)


@settings(max_examples=200, deadline=None, database=None, phases=(Phase.generate, Phase.shrink))
@given(operations=st.lists(OPERATIONS, min_size=10, max_size=60), seed=st.integers(0, 2**16))
def test_one_result_per_key_and_stream(operations: list[tuple[str, int]], seed: int) -> None:
    asyncio.run(play(operations, seed))
