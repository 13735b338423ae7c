"""The `plaudit` command."""

from plaudit.cli._main import main

__all__ = ["main"]
