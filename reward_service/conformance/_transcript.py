"""What was sent and seen on a stream, in lines for people; of a long talk the beginning and the end."""

from __future__ import annotations

import time
from collections import deque
from typing import Final

from plaudit.reward.v1 import reward_service_pb2 as pb
from reward_service.conformance._ledger import Outcome, code_word, short, shown, told

_FIRST_LINES: Final = 4
_LAST_LINES: Final = 12
_SHOWN_RESULTS: Final = 3


class Transcript:
    """Lines of a talk: when, who (C the client, S the server), what. Equal ones in a row are counted."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._first: list[str] = []
        self._last: deque[str] = deque(maxlen=_LAST_LINES)
        self._left_out = 0
        self._newest = ("", "")
        self._repeats = 0

    @property
    def lines(self) -> tuple[str, ...]:
        """What is kept."""
        gap = [f"             … {self._left_out} more …"] if self._left_out else []
        return (*self._first, *gap, *self._last, *self._repeated())

    def add(self, who: str, what: str) -> None:
        """Something was sent or seen."""
        if (who, what) == self._newest:
            self._repeats += 1
            return
        for line in (*self._repeated(), f"{time.monotonic() - self._began:7.3f} s  {who}  {what}"):
            if len(self._first) < _FIRST_LINES:
                self._first.append(line)
                continue
            self._left_out += len(self._last) == _LAST_LINES
            self._last.append(line)
        self._newest, self._repeats = (who, what), 0

    def _repeated(self) -> list[str]:
        return [f"             … and {self._repeats} times the same"] if self._repeats else []


def request_line(frame: pb.ScoreRequest, size: int) -> str:
    match frame.WhichOneof("frame"):
        case "open":
            opening = frame.open
            rewards = ", ".join(
                f"{shown(r.key)} = {shown(r.name)} {r.config_json[:60]}".rstrip() for r in opening.rewards
            )
            pending = f", pending {', '.join(map(short, opening.pending_batch_ids))}"
            return (
                f"open session {short(opening.session_id)}, protocol_version {opening.protocol_version}, "
                f"rewards [{rewards}]{pending if opening.pending_batch_ids else ''}"
            )
        case "batch":
            batch = frame.batch
            count = sum(len(group.completions) for group in batch.groups)
            keys = f", reward_keys {', '.join(batch.reward_keys)}" if batch.reward_keys else ""
            seconds = batch.timeout.seconds + batch.timeout.nanos * 1e-9
            return (
                f"batch {short(batch.batch_id)}: {len(batch.groups)} groups, {count} completions, "
                f"{size} bytes, timeout {seconds:g} s{keys}"
            )
        case "cancel":
            return f"cancel {short(frame.cancel.batch_id)}"
    return f"a frame of {size} bytes whose case is not known"


def response_line(frame: pb.ScoreResponse | None, size: int) -> str:
    if frame is None:
        return f"{size} bytes that were not read as a frame"
    match frame.WhichOneof("frame"):
        case "opened":
            retained = f", retained {', '.join(map(short, frame.opened.retained_batch_ids))}"
            return (
                f"opened: window {frame.opened.max_in_flight_completions}"
                f"{retained if frame.opened.retained_batch_ids else ''}"
            )
        case "results":
            results = frame.results.results
            first = ", ".join(_result_line(result) for result in results[:_SHOWN_RESULTS])
            more = f", and {len(results) - _SHOWN_RESULTS} more" if len(results) > _SHOWN_RESULTS else ""
            return f"results {first or '(none)'}{more}"
        case "done":
            done = frame.done
            return (
                f"done {short(done.batch_id)}: scored {done.scored_count}, not applicable "
                f"{done.not_applicable_count}, failed {done.failed_count}"
            )
        case "rejected":
            failure = frame.rejected.failure
            return (
                f"rejected {short(frame.rejected.batch_id)}: {code_word(failure.code)} "
                f"{shown(failure.message)}"
            )
        case "window":
            return f"window {frame.window.max_in_flight_completions}"
        case "draining":
            return "draining"
    return f"a frame of {size} bytes whose case is not known"


def _result_line(result: pb.Result) -> str:
    match result.WhichOneof("outcome"):
        case "score":
            outcome = told(Outcome("score", result.score.value))
        case "failure":
            outcome = told(
                Outcome("failure", code=code_word(result.failure.code), message=result.failure.message)
            )
        case "not_applicable":
            outcome = "not applicable"
        case _:
            outcome = "nothing"
    ids = f"{short(result.batch_id)}, {shown(result.completion_id, 24)}, {shown(result.reward_key, 24)}"
    return f"({ids}) {outcome}"
