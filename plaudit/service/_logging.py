"""Logs of services: structlog, one JSON object a line on stderr, or coloured lines on a terminal.

Modules that are part of the library as well log by `get_logger`: stdout is the program's that uses it.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Final

import structlog
from structlog.typing import Processor


def configure_logging(service: str, level: str = "info") -> None:
    """Sets up structlog for this process; `service` stands in every record."""
    numeric = logging.getLevelNamesMapping()[level.upper()]
    on_terminal = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    renderer = (
        # Texts as Python writes them: one of another program's may hold what steers a terminal.
        structlog.dev.ConsoleRenderer(repr_native_str=True)
        if on_terminal
        else structlog.processors.JSONRenderer(default=repr)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(numeric),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.bind_contextvars(service=service)
    logging.basicConfig(
        level=max(numeric, logging.WARNING), stream=sys.stderr, format="%(name)s: %(message)s"
    )


class LibraryLogger:
    """Logs by structlog where the process has set it up, else by Python's logging, under the name `name`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._plain: structlog.stdlib.BoundLogger = structlog.wrap_logger(
            logging.getLogger(name), processors=_PLAIN, wrapper_class=structlog.stdlib.BoundLogger
        )

    def info(self, event: str, **fields: object) -> None:
        """What is as it should be."""
        self._logger().info(event, **fields)

    def warning(self, event: str, **fields: object) -> None:
        """What may need a look."""
        self._logger().warning(event, **fields)

    def error(self, event: str, **fields: object) -> None:
        """What failed."""
        self._logger().error(event, **fields)

    def exception(self, event: str, **fields: object) -> None:
        """What failed, with the exception that is handled now."""
        self._logger().exception(event, **fields)

    def log(self, level: int, event: str, **fields: object) -> None:
        """At a level of Python's logging."""
        self._logger().log(level, event, **fields)

    def _logger(self) -> structlog.stdlib.BoundLogger:
        # Unconfigured, structlog prints on stdout.
        if structlog.is_configured():
            logger: structlog.stdlib.BoundLogger = structlog.get_logger(self._name)
            return logger
        return self._plain


def get_logger(name: str) -> LibraryLogger:
    """The logger of a module of the library."""
    return LibraryLogger(name)


_PLAIN: Final[list[Processor]] = [
    structlog.stdlib.filter_by_level,
    structlog.processors.format_exc_info,
    structlog.processors.KeyValueRenderer(key_order=["event"], drop_missing=True),
]
