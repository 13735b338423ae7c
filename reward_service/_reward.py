"""Rewards as authors write them: an async function and its description."""

from __future__ import annotations

import asyncio
import inspect
import math
import re
import typing
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence, Set
from enum import StrEnum
from typing import Any, Final, TypeAlias, overload

import structlog
from pydantic import BaseModel

from plaudit.errors import FieldViolation, InvalidArgumentError, PlauditError, UnavailableError
from plaudit.types.scoring import Examples, Failed, NotApplicable, Outcome, Prompt, Scored
from plaudit.types.validation import shown
from reward_service._config import config_reader
from reward_service._item import Item
from reward_service._outcomes import OutcomeCheck, place_of, readable

log = structlog.get_logger(__name__)

Answer: TypeAlias = float | Scored | NotApplicable | Failed | None
"""What a reward may return for an item; None where it does not apply."""

ItemFunction: TypeAlias = Callable[[Item[Any]], Awaitable[Answer]]
ListFunction: TypeAlias = Callable[[list[Item[Any]]], Awaitable[Sequence[Answer]]]
ColumnsOfConfig: TypeAlias = Callable[[Any], Sequence[str]]
ConfigCheck: TypeAlias = Callable[[Any], Awaitable[Sequence[FieldViolation]]]
"""Says what is wrong with a config that is well-formed; fields are those of the config, "" is all of it."""
ExamplesFunction: TypeAlias = Callable[[Prompt, Any], Examples | None]
"""Writes, for a prompt and a config, texts that the reward ought to score high and low; None: it has none."""

CHECK_RETRY_SECONDS: Final = 5.0
"""When a client whose config could not be checked may come again."""

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")


class Scope(StrEnum):
    """What a reward must see at once."""

    COMPLETION = "completion"
    GROUP = "group"


class Reward:
    """A reward on offer: its function, and what is told about it.

    Made by the decorator `reward`. Calling it calls the function.
    """

    def __init__(
        self,
        function: ItemFunction | ListFunction,
        *,
        name: str | None = None,
        description: str | None = None,
        min_value: float | None = None,
        max_value: float | None = None,
        required_columns: Sequence[str] | ColumnsOfConfig = (),
        config: type[BaseModel] | Mapping[str, Any] | None = None,
        check: ConfigCheck | None = None,
        examples: ExamplesFunction | None = None,
        scope: Scope | str = Scope.COMPLETION,
        deterministic: bool = True,
        concurrency: int = 256,
        chunk_size: int = 64,
    ) -> None:
        """See `reward`. Raises InvalidArgumentError that names everything wrong."""
        self.function = function
        self.name = getattr(function, "__name__", "") if name is None else name
        self.description = _first_sentence(function) if description is None else description
        self.min_value = min_value
        self.max_value = max_value
        self.deterministic = deterministic
        self.concurrency = concurrency
        self.chunk_size = chunk_size
        self.examples = examples
        self._config_check = check
        wrong: list[FieldViolation] = []
        self._check_description(wrong)
        try:
            self.scope = Scope(scope)
        except ValueError:
            self.scope = Scope.COMPLETION
            wrong.append(FieldViolation("scope", f'{shown(scope)} is neither "completion" nor "group"'))
        self.takes_list = self._check_function(wrong)
        try:
            self.config = config_reader(config)
            self._columns_of, self.required_columns = self._columns(required_columns)
        except InvalidArgumentError as error:
            wrong.extend(error.violations)
        if wrong:
            raise InvalidArgumentError([FieldViolation(f"reward.{v.field}", v.message) for v in wrong])
        self._check = OutcomeCheck(self.name, min_value, max_value)
        self._code = getattr(function, "__code__", None)
        self._logged_faults: set[str] = set()

    def __call__(self, argument: Any) -> Awaitable[Any]:
        """Calls the function, as its author's own tests do."""
        return self.function(argument)

    def columns_of(self, config: Any) -> tuple[str, ...]:
        """The dataset columns that the reward needs under `config`."""
        return self._columns_of(config)

    @property
    def checks_config(self) -> bool:
        """Whether there is more to check of a config than its form."""
        return self._config_check is not None

    async def check(self, config: Any, field: str, timeout: float) -> list[FieldViolation]:
        """What the reward's own check finds wrong with a config that was read, below `field`.

        Raises UnavailableError where that cannot be told now: the check raised, or took more than `timeout`
        seconds.
        """
        assert self._config_check is not None, "asked of rewards that have a check"
        task = asyncio.ensure_future(_as_list(self._config_check(config)))
        try:
            await asyncio.wait({task}, timeout=timeout)
            violations = task.result() if task.done() else None
        except PlauditError as error:
            raise self._unchecked(error.message, error.retry_after) from None
        except Exception as error:
            place = place_of(error, getattr(self._config_check, "__code__", None))
            log.error("the check of a config raised", reward=self.name, place=place, exc_info=error)
            raise self._unchecked(f"its check raised {type(error).__name__} ({place}): {error}") from None
        finally:
            task.cancel()  # where it is not awaited any more
        if violations is None:
            raise self._unchecked(f"its check did not end within {timeout:g} s")
        return [
            FieldViolation(f"{field}.{v.field}" if v.field else field, readable(v.message))
            for v in violations
        ]

    def _unchecked(self, why: str, retry_after: float | None = None) -> UnavailableError:
        log.warning("a config could not be checked", reward=self.name, why=why)
        return UnavailableError(
            readable(f"reward {self.name} cannot check its config now: {why}"),
            reason="CONFIG_UNCHECKED",
            retry_after=CHECK_RETRY_SECONDS if retry_after is None else retry_after,
        )

    async def score(self, items: list[Item[Any]]) -> list[Outcome]:
        """One outcome per item, in order. Raises nothing but the cancellation of its own task.

        `items` is one item for a function over an item.
        """
        count = len(items)  # the list is the function's from here on
        try:
            answer = await self.function(items if self.takes_list else items[0])  # type: ignore[arg-type]  # by _check_function
            if not self.takes_list:
                return [self._check.outcome_of(answer)]
            return self._outcomes_of(answer, count)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return [self._raised(error)] * count
        except (Exception, SystemExit) as error:
            return [self._raised(error)] * count

    def _outcomes_of(self, answers: Any, expected: int) -> list[Outcome]:
        # A numpy array is no Sequence, but has a length and an order.
        if not isinstance(answers, Collection) or isinstance(answers, str | bytes | Set | Mapping):
            fault = self._check.fault(
                f"returned {shown(answers)} ({type(answers).__name__}) for {expected} items; return a list "
                "with one answer per item, in their order"
            )
            return [fault] * expected
        if len(answers) != expected:
            fault = self._check.fault(
                f"returned {len(answers)} answers for {expected} items; return one per item, in their order, "
                "and None where the reward does not apply"
            )
            return [fault] * expected
        return self._check.outcomes_of(answers)

    def _raised(self, error: BaseException) -> Failed:
        place = place_of(error, self._code)
        fault = f"{type(error).__name__} at {place}"
        if fault not in self._logged_faults:
            # Once for each place: a broken reward raises for every completion.
            self._logged_faults.add(fault)
            log.error("a reward raised", reward=self.name, place=place, exc_info=error)
        return self._check.fault(f"raised {type(error).__name__} ({place}): {error}")

    def _check_description(self, wrong: list[FieldViolation]) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            wrong.append(
                FieldViolation(
                    "name",
                    f"{shown(self.name)} is refused: lower-case letters, digits and _, at most 63 characters",
                )
            )
        if not self.description:
            wrong.append(FieldViolation("description", "is missing; say in one sentence what is rewarded"))
        bounds_are_numbers = True
        for field, value in (("min_value", self.min_value), ("max_value", self.max_value)):
            if value is not None and not (isinstance(value, int | float) and math.isfinite(value)):
                bounds_are_numbers = False
                wrong.append(
                    FieldViolation(field, f"{shown(value)} is no finite number; leave it out where unbounded")
                )
        if (
            bounds_are_numbers
            and self.min_value is not None
            and self.max_value is not None
            and self.min_value > self.max_value
        ):
            wrong.append(FieldViolation("min_value", f"{self.min_value} is above max_value {self.max_value}"))
        for field, value in (("concurrency", self.concurrency), ("chunk_size", self.chunk_size)):
            if not isinstance(value, int) or value < 1:
                wrong.append(FieldViolation(field, f"{shown(value)} is no whole number of at least 1"))

    def _check_function(self, wrong: list[FieldViolation]) -> bool:
        """Whether the function takes a list of items."""
        if not inspect.iscoroutinefunction(self.function):
            wrong.append(
                FieldViolation(
                    "function",
                    f"{_name_of(self.function)} is not an async function, and would stop the server while it "
                    "runs; write `async def`, and move work that blocks to a thread: "
                    "`await asyncio.to_thread(work, item)`",
                )
            )
            return False
        takes_list = _takes_list(self.function)
        if takes_list is None:
            wrong.append(
                FieldViolation(
                    "function",
                    f"{_name_of(self.function)} must take one argument, annotated as `item: Item` or as "
                    "`items: list[Item]`",
                )
            )
            return False
        if self._config_check is not None and not inspect.iscoroutinefunction(self._config_check):
            wrong.append(
                FieldViolation(
                    "check",
                    f"{_name_of(self._config_check)} is not an async function; write `async def`",
                )
            )
        if self.examples is not None and not _is_plain(self.examples):
            wrong.append(
                FieldViolation(
                    "examples",
                    f"{_name_of(self.examples)} must be a plain function of a prompt and the config: "
                    "`def examples(prompt: Prompt, config) -> Examples | None`",
                )
            )
        if self.scope is Scope.GROUP and not takes_list:
            wrong.append(
                FieldViolation(
                    "scope",
                    "a reward that sees the whole group takes a list: `async def f(items: list[Item])`",
                )
            )
        return takes_list

    def _columns(
        self, required_columns: Sequence[str] | ColumnsOfConfig
    ) -> tuple[Callable[[Any], tuple[str, ...]], tuple[str, ...]]:
        """The columns by config, and those that the description names: those of `{}`, if that is a config."""
        if callable(required_columns):
            of_config = required_columns
            try:
                named = tuple(of_config(self.config.read("", "config")))
            except InvalidArgumentError:
                named = ()  # a config with fields that must be given; what it needs is known when it is
            return (lambda config: tuple(of_config(config))), named
        if isinstance(required_columns, str):
            raise InvalidArgumentError.of("required_columns", 'is text; write a list, for example ["answer"]')
        columns = tuple(required_columns)
        return (lambda _: columns), columns


@overload
def reward(function: Callable[..., Awaitable[Any]], /) -> Reward: ...


@overload
def reward(
    *,
    name: str | None = None,
    description: str | None = None,
    min_value: float | None = None,
    max_value: float | None = None,
    required_columns: Sequence[str] | ColumnsOfConfig = (),
    config: type[BaseModel] | Mapping[str, Any] | None = None,
    check: ConfigCheck | None = None,
    examples: ExamplesFunction | None = None,
    scope: Scope | str = Scope.COMPLETION,
    deterministic: bool = True,
    concurrency: int = 256,
    chunk_size: int = 64,
) -> Callable[[Callable[..., Awaitable[Any]]], Reward]: ...


def reward(
    function: Callable[..., Awaitable[Any]] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    min_value: float | None = None,
    max_value: float | None = None,
    required_columns: Sequence[str] | ColumnsOfConfig = (),
    config: type[BaseModel] | Mapping[str, Any] | None = None,
    check: ConfigCheck | None = None,
    examples: ExamplesFunction | None = None,
    scope: Scope | str = Scope.COMPLETION,
    deterministic: bool = True,
    concurrency: int = 256,
    chunk_size: int = 64,
) -> Reward | Callable[[Callable[..., Awaitable[Any]]], Reward]:
    """Makes a `Reward` of an async function over one `item: Item`, or over `items: list[Item]` (faster).

    The function returns a float (within min_value and max_value), `Scored`, `NotApplicable`, `Failed`, or
    None where the reward does not apply; over a list, one of these per item, in their order. What it raises
    fails the items that it was given, and nothing else; a value that is no number, not finite or out of
    range is a failure too, never 0 and never clamped.

    `name` defaults to the function's, `description` to the first line of its docstring. `required_columns`
    are the dataset columns without which an item fails as invalid: names, or a function of the config.
    `config` is a pydantic model or a JSON Schema; without it the reward takes none. By convention a property
    of the config named `column`, or `*_column`, whose default is a required column, names that column: a job
    that sets it is checked for the column that it names.

    `check` is an async function over the config that says what else is wrong with it, as a list of
    FieldViolation (field "tags[0]" or "", and a message that names the way out): a file that is missing, a
    model that does not exist. It is awaited when a session opens, and when the gateway asks at submit, for at
    most `ServerLimits.check_timeout_seconds`; where it raises, the session is told to come again later.

    `examples` is a function of a prompt and the config that returns `Examples`: whole turns of the
    assistant's that the reward ought to score at its best (`good`) and lower (`bad`), or None where it has
    none for that prompt. A job's preflight scores them, which tells a reward that is broken from one that the
    model does not earn yet.

    With scope "group" each
    list is the whole group of one prompt; else it has at most `chunk_size` items, of one batch.
    `concurrency` is how many calls of the function run at once, over all sessions, which take turns.

    Raises InvalidArgumentError that names everything wrong.
    """

    def register(function: Callable[..., Awaitable[Any]]) -> Reward:
        return Reward(
            function,
            name=name,
            description=description,
            min_value=min_value,
            max_value=max_value,
            required_columns=required_columns,
            config=config,
            check=check,
            examples=examples,
            scope=scope,
            deterministic=deterministic,
            concurrency=concurrency,
            chunk_size=chunk_size,
        )

    return register if function is None else register(function)


def _takes_list(function: Callable[..., Any]) -> bool | None:
    """Whether the function takes a list of items; None where its signature does not say."""
    parameters = list(inspect.signature(function).parameters.values())
    needed = [p for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    if (
        not parameters
        or len(needed) > 1
        or parameters[0].kind
        not in (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
        )
    ):
        return None
    first = parameters[0]
    try:
        annotation = typing.get_type_hints(function).get(first.name)
    except Exception:  # names that exist for type checkers alone
        annotation = first.annotation
    if isinstance(annotation, str):
        annotation = annotation.partition("[")[0].rpartition(".")[2]
        return {"list": True, "Sequence": True, "List": True, "Item": False}.get(annotation)
    origin = typing.get_origin(annotation) or annotation
    if origin in (list, Sequence):
        return True
    if origin is Item:
        return False
    return {"items": True, "item": False}.get(first.name) if annotation is None else None


async def _as_list(violations: Awaitable[Sequence[FieldViolation]]) -> list[FieldViolation]:
    return list(await violations)


def _is_plain(examples: object) -> bool:
    return callable(examples) and not inspect.iscoroutinefunction(examples)


def _first_sentence(function: object) -> str:
    return (inspect.getdoc(function) or "").partition("\n")[0].strip()


def _name_of(function: object) -> str:
    return str(getattr(function, "__name__", None) or repr(function))
