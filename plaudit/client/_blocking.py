"""The blocking face of a resource: its coroutines, stepped through without an event loop.

That works on a `BlockingWire` only, on which they never suspend.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar, cast

Resource = TypeVar("Resource")
Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")

_END: Final = object()


class Blocking(Generic[Resource]):
    """Base of the blocking resources, each of which holds the one that it is made of."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource


def blocking(
    method: Callable[Concatenate[Any, Parameters], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[Any, Parameters], Result]:
    """The same method of a `Blocking` resource."""

    def call(self: Blocking[Any], /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        return run(method(self._resource, *args, **kwargs))

    _show_as(call, method)
    return call


def blocking_iterator(
    method: Callable[Concatenate[Any, Parameters], AsyncIterator[Result]],
) -> Callable[Concatenate[Any, Parameters], Iterator[Result]]:
    """The same method of a `Blocking` resource, as a plain generator."""

    def call(self: Blocking[Any], /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Iterator[Result]:
        return iterate(method(self._resource, *args, **kwargs))

    _show_as(call, method)
    return call


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """The result of a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return cast(Result, done.value)
    coroutine.close()
    raise AssertionError("a blocking wire never suspends")


def iterate(items: AsyncIterator[Result]) -> Iterator[Result]:
    """The items of an asynchronous generator that never suspends, which ends with this one."""
    assert isinstance(items, AsyncGenerator)
    try:
        while (item := run(_next(items))) is not _END:
            yield cast(Result, item)
    finally:
        run(items.aclose())


async def _next(items: AsyncIterator[Any]) -> Any:
    return await anext(items, _END)


def _show_as(call: Any, method: Callable[..., Any]) -> None:
    """Lets `help()` show `call` with the names, defaults and words of `method`, and with what it returns."""
    functools.update_wrapper(call, method)
    call.__qualname__ = method.__qualname__.removeprefix("Async")
    signature = inspect.signature(method)
    returned = signature.return_annotation.replace("AsyncIterator", "Iterator").replace("JobT", "Job")
    call.__annotations__ = {**method.__annotations__, "return": returned}
    call.__signature__ = signature.replace(return_annotation=returned)
