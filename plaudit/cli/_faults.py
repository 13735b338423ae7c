"""Everything wrong, told at once: by the options of a command, and by what each of several calls refuses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand

from plaudit.errors import FieldViolation, InvalidArgumentError, NotFoundError, PlauditError


class ToldAtOnce(TyperCommand):
    """A command that tells of every option and argument that is wrong, not of the first alone."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As a command does, but for the error, which has a line for each."""
        try:
            return super().parse_args(ctx, list(args))
        except typer.BadParameter as first:
            wrong = list(self._wrong(ctx, args)) or [first]
            for error in wrong:
                # Choices are checked by pydantic, which puts the name of Python's error before it.
                error.message = error.message.replace("Value error, ", "")
            if len(wrong) > 1:
                ctx.fail("\n".join(error.format_message() for error in wrong))
            raise wrong[0] from None

    def _wrong(self, ctx: Any, args: list[str]) -> Iterator[typer.BadParameter]:
        given, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        for parameter in self.get_params(ctx):
            try:
                parameter.handle_parse_result(ctx, given, [])
            except typer.BadParameter as error:
                yield error


@contextmanager
def told_with(violations: Sequence[FieldViolation]) -> Iterator[None]:
    """Tells `violations` together with those of what is asked within, which must change nothing.

    Where it cannot be asked, they are told alone.
    """
    if not violations:
        yield
        return
    found = list(violations)
    try:
        yield
    except InvalidArgumentError as error:
        found += error.violations
    except NotFoundError as error:
        found.append(FieldViolation(error.field, error.message))
    except PlauditError:
        pass
    raise InvalidArgumentError(found)
