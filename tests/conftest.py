"""Makes tests/stack.py importable, and lets CI fail where a test is skipped for a missing system package."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import structlog

sys.path.insert(0, str(Path(__file__).parent))

from stack import Stack


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """A test that configures logging, by starting a service in this process, does it for itself alone."""
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    yield
    structlog.reset_defaults()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Looks for no garbage among all that is imported here, then or ever: a seventh of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A job that a failing test leaves behind would hold the trainer of all tests after it."""
    report = yield
    if report.when == "call" and report.failed and isinstance(item, pytest.Function):
        for value in item.funcargs.values():
            if isinstance(value, Stack):
                value.cancel_jobs()
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Names what was skipped, and how many."""
    skipped = terminalreporter.stats.get("skipped", [])
    if skipped:
        terminalreporter.write_line(f"{len(skipped)} tests were skipped:")
        for report in skipped:
            terminalreporter.write_line(f"  {report.nodeid}")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """In CI every system package is installed, so that a skipped test is a failure."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter is not None and reporter.stats.get("skipped") and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
