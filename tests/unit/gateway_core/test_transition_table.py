"""The table of design section 5, written out by hand, cell by cell."""

from __future__ import annotations

import pytest

from gateway.jobs.transitions import RUN_EVENTS, JobEvent, status_after
from plaudit.types.statuses import JobStatus, RunState

# Columns: what a caller asks (pause, cancel, resume), and the loss of the run. "-" is a refusal, or what can
# not be. A job whose run must first be stopped passes through pausing and cancelling.
ASKED = """
status        pause     cancel      resume  lost
queued        paused    cancelled   -       -
provisioning  pausing   cancelling  -       queued
configuring   pausing   cancelling  -       queued
running       pausing   cancelling  -       queued
pausing       pausing   cancelling  -       paused
paused        paused    cancelled   queued  -
cancelling    -         cancelling  -       cancelled
completed     -         -           -       -
failed        -         -           queued  -
cancelled     -         cancelled   -       -
"""

# What the states of the job's run do to it.
REPORTED = """
status        starting     running     pausing     paused     cancelling  cancelled  completed  failed
queued        -            -           -           -          -           -          -          -
provisioning  configuring  running     pausing     paused     cancelling  cancelled  completed  failed
configuring   configuring  running     pausing     paused     cancelling  cancelled  completed  failed
running       -            running     pausing     paused     cancelling  cancelled  completed  failed
pausing       pausing      pausing     pausing     paused     cancelling  paused     completed  failed
paused        -            -           -           -          -           -          -          -
cancelling    cancelling   cancelling  cancelling  cancelled  cancelling  cancelled  completed  cancelled
completed     -            -           -           -          -           -          -          -
failed        -            -           -           -          -           -          -          -
cancelled     -            -           -           -          -           -          -          -
"""

ASKED_EVENTS = {
    "pause": JobEvent.PAUSE,
    "cancel": JobEvent.CANCEL,
    "resume": JobEvent.RESUME,
    "lost": JobEvent.RUN_LOST,
}


def cells(table: str) -> dict[tuple[str, str], str]:
    head, *rows = (line.split() for line in table.strip().splitlines())
    return {(row[0], column): cell for row in rows for column, cell in zip(head[1:], row[1:], strict=True)}


def expected(cell: str) -> JobStatus | None:
    return None if cell == "-" else JobStatus(cell)


def test_the_tables_are_complete() -> None:
    assert {status for status, _ in cells(ASKED)} == set(JobStatus)
    assert {status for status, _ in cells(REPORTED)} == set(JobStatus)
    assert {state for _, state in cells(REPORTED)} == set(RunState)
    assert {*ASKED_EVENTS.values(), *RUN_EVENTS.values(), JobEvent.ASSIGNED} == set(JobEvent)


@pytest.mark.parametrize(("where", "cell"), cells(ASKED).items())
def test_what_is_asked_and_the_loss_of_the_run(where: tuple[str, str], cell: str) -> None:
    status, event = where
    assert status_after(JobStatus(status), ASKED_EVENTS[event]) is expected(cell)


@pytest.mark.parametrize(("where", "cell"), cells(REPORTED).items())
def test_what_the_run_reports(where: tuple[str, str], cell: str) -> None:
    status, state = where
    assert status_after(JobStatus(status), RUN_EVENTS[RunState(state)]) is expected(cell)


@pytest.mark.parametrize("status", JobStatus)
def test_only_queued_jobs_are_assigned(status: JobStatus) -> None:
    after = status_after(status, JobEvent.ASSIGNED)
    assert after is (JobStatus.PROVISIONING if status is JobStatus.QUEUED else None)
