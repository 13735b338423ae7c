"""From what a reward's function returned or raised to an outcome. A failure is never a number."""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterable, Mapping
from functools import lru_cache
from numbers import Real
from types import CodeType, MappingProxyType

from plaudit.types.scoring import Failed, FailureCode, NotApplicable, Outcome, Scored
from plaudit.types.validation import shown

MAX_TEXT_BYTES = 4096
MAX_METRICS = 64
MAX_METRIC_NAME_LENGTH = 128

_NO_METRICS: Mapping[str, float] = MappingProxyType({})


class OutcomeCheck:
    """Turns answers of one reward into outcomes, by its declared range."""

    def __init__(self, reward_name: str, min_value: float | None, max_value: float | None) -> None:
        self._name = reward_name
        self._min = -math.inf if min_value is None else min_value
        self._max = math.inf if max_value is None else max_value

    def outcomes_of(self, answers: Iterable[object]) -> list[Outcome]:
        """As `outcome_of`, for each of `answers`."""
        least, most, isfinite = self._min, self._max, math.isfinite
        return [
            _plain(answer)  # as nearly all are
            if type(answer) is float and least <= answer <= most and isfinite(answer)
            else self.outcome_of(answer)
            for answer in answers
        ]

    def outcome_of(self, answer: object) -> Outcome:
        """The outcome that `answer` stands for; `Failed` INTERNAL where it stands for none."""
        if answer is None:
            return NotApplicable()
        if isinstance(answer, Real):
            return self._scored(answer, Scored(0.0))
        if isinstance(answer, Scored):
            return self._scored(answer.value, answer)
        if isinstance(answer, NotApplicable):
            return NotApplicable(readable(answer.reason))
        if isinstance(answer, Failed):
            return self._failed(answer)
        return self.fault(
            f"returned {shown(answer)} ({type(answer).__name__}); return a float, Scored, NotApplicable, "
            "Failed, or None where the reward does not apply"
        )

    def fault(self, what: str) -> Failed:
        """A bug in the reward, told to its author."""
        return Failed(FailureCode.INTERNAL, readable(f"reward {self._name} {what}"))

    def _scored(self, value: object, answer: Scored) -> Outcome:
        if not isinstance(value, Real):
            return self.fault(
                f"returned the value {shown(value)} ({type(value).__name__}), which is no number"
            )
        number = _as_float(value)
        if not math.isfinite(number):
            return self.fault(
                f"returned {number}; a value is finite: return None where the reward does not apply, or "
                "Failed where it could not be computed"
            )
        if not self._min <= number <= self._max:
            return self.fault(
                f"returned {number}, outside its declared range [{self._min:g}, {self._max:g}]; mend it, or "
                "declare another min_value and max_value"
            )
        if not answer.metrics and not answer.explanation:
            return _plain(number)
        return self._with_details(number, answer)

    def _with_details(self, number: float, answer: Scored) -> Outcome:
        metrics: dict[str, float] = {}
        if not isinstance(answer.metrics, Mapping) or len(answer.metrics) > MAX_METRICS:
            return self.fault(f"returned metrics that are not a mapping of at most {MAX_METRICS} numbers")
        for name, value in answer.metrics.items():
            if not isinstance(name, str) or not 0 < len(name) <= MAX_METRIC_NAME_LENGTH:
                return self.fault(
                    f"returned a metric named {shown(name)}; a name is text of 1 to {MAX_METRIC_NAME_LENGTH} "
                    "characters"
                )
            number_of_metric = _as_float(value) if isinstance(value, Real) else math.nan
            if not math.isfinite(number_of_metric):
                return self.fault(f"returned {shown(value)} as metric {shown(name)}; a metric is finite")
            metrics[readable(name)] = number_of_metric
        return Scored(number, metrics, readable(answer.explanation))

    def _failed(self, answer: Failed) -> Outcome:
        try:
            code = FailureCode(answer.code)
        except ValueError:
            return self.fault(f"returned Failed with code {shown(answer.code)}; use FailureCode")
        delay = answer.retry_delay
        if delay is not None and not (isinstance(delay, Real) and 0 <= delay <= 86_400):
            return self.fault(f"returned Failed with retry_delay {shown(delay)}; it is seconds, 0 to 86400")
        return Failed(code, readable(answer.message), None if delay is None else float(delay))


@lru_cache(maxsize=1024)
def _plain(value: float) -> Scored:
    # One object for each value: most rewards give few of them, to many completions.
    return Scored(value, _NO_METRICS)


def _as_float(value: Real) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def readable(text: object) -> str:
    """`text` as it may travel: valid UTF-8, at most 4 KiB."""
    data = str(text).encode("utf-8", "replace")
    if len(data) <= MAX_TEXT_BYTES:
        return data.decode("utf-8")
    return data[: MAX_TEXT_BYTES - 3].decode("utf-8", "ignore") + "…"


def place_of(error: BaseException, code: CodeType | None) -> str:
    """Where `error` was raised, as `file.py:12`: in the reward's own file if it passed through it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if code is not None and frame.filename == code.co_filename]
    frame = (own or frames)[-1]
    return f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}"
