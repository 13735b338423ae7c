"""Logs of services: structlog, one JSON object a line on stderr, or coloured lines on a terminal."""

from __future__ import annotations

import logging
import os
import sys

import structlog


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
