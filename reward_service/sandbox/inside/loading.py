"""From a source to the function that it defines."""

from __future__ import annotations

import inspect
import linecache
import sys
import types
from collections.abc import Callable
from typing import Any, Final

from .calls import NOT_SENT, OFFERED, Form, Function
from .failures import line_of, raised

MODULE_NAME: Final = "reward_source"
_PREFERRED_NAME: Final = "reward"


class Refused(Exception):  # the word of the protocol
    """The source gives no reward function; `line` is where, or 0."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


def load(request: dict[str, Any]) -> Function:
    """Imports the source and finds its function.

    `request` has source, filename, function (name or None), format ("trl", "miles" or None), form and
    batch_size.
    """
    source, filename = request["source"], request["filename"]
    try:
        code = compile(source, filename, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise Refused(f"does not parse: {error.msg}", error.lineno or 0) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise Refused(f"does not parse: {error or type(error).__name__}") from None
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    module = types.ModuleType(MODULE_NAME)
    module.__file__ = filename
    sys.modules[MODULE_NAME] = module
    try:
        exec(code, module.__dict__)  # noqa: S102  # what the sandbox is for
    except BaseException as error:
        raise Refused(raised(error, filename), line_of(error, filename)) from None
    name, function = _find(module, filename, request["function"])
    kind = request["format"] or _format_of(function)
    if kind is None:
        raise Refused(
            f"{name} has neither of the signatures that are known: def {name}(prompts, completions, "
            f"**columns), or async def {name}(args, sample, **kwargs)",
            function.__code__.co_firstlineno,
        )
    _check_signature(name, function, kind)
    return Function(name, function, kind, Form(request["form"]), filename)


def _find(module: types.ModuleType, filename: str, name: str | None) -> tuple[str, Callable[..., Any]]:
    if name is not None:
        found = module.__dict__.get(name)
        if isinstance(found, types.FunctionType):
            return name, found
        if found is not None:
            raise Refused(f"{name} is no function, but a {type(found).__name__}")
    own = {
        key: value
        for key, value in module.__dict__.items()
        if isinstance(value, types.FunctionType)
        and value.__code__.co_filename == filename
        and not key.startswith("_")
    }
    if not own:
        raise Refused("defines no function; write def reward(prompts, completions, **columns)")
    if name is not None:
        raise Refused(f"defines no function {name}; there are {', '.join(own)}")
    if _PREFERRED_NAME in own:
        return _PREFERRED_NAME, own[_PREFERRED_NAME]
    fitting = {key: value for key, value in own.items() if _format_of(value) is not None} or own
    if len(fitting) > 1:
        raise Refused(
            f"defines {len(fitting)} functions, {', '.join(fitting)}; say which in `function`, or call it "
            f"{_PREFERRED_NAME}"
        )
    return next(iter(fitting.items()))


def _format_of(function: Callable[..., Any]) -> str | None:
    parameters = list(inspect.signature(function).parameters.values())
    if [parameter.name for parameter in parameters[:2]] == ["args", "sample"]:
        return "miles"
    if any(parameter.name == "completions" for parameter in parameters):
        return "trl"
    return None


def _check_signature(name: str, function: Callable[..., Any], kind: str) -> None:
    parameters = list(inspect.signature(function).parameters.values())
    line = function.__code__.co_firstlineno
    if kind == "miles":
        others = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        needed = [p for p in parameters if p.default is p.empty and p.kind not in others]
        if [p.name for p in needed] != ["args", "sample"]:
            told = ", ".join(p.name for p in needed)
            raise Refused(f"{name} needs ({told}); the format miles gives it (args, sample)", line)
        return
    named = {p.name for p in parameters}
    if "completions" not in named and not any(p.kind is p.VAR_KEYWORD for p in parameters):
        raise Refused(f"{name} takes no completions; the format trl gives them to it", line)
    for p in parameters:
        if p.kind is p.POSITIONAL_ONLY:
            raise Refused(f"{name} takes {p.name} by position alone; the format trl gives names", line)
        if p.name in NOT_SENT and p.default is p.empty and p.kind is not p.VAR_KEYWORD:
            raise Refused(
                f"{name} needs {p.name}, which a reward server does not get; leave it out, or give it a "
                f"default. There are {', '.join(OFFERED)}, and the columns of the dataset",
                line,
            )


__all__ = ["Refused", "load"]
