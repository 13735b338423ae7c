"""The line between service and run process, each end in its own process as in life."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator

import pytest

from trainer_service.control import SERVICE_DIED_EXIT_STATUS, RunChannel, RunReport

PRELUDE = """
import sys, time
from trainer_service.control import RunControl
control = RunControl.from_fds(int(sys.argv[1]), int(sys.argv[2]))
control.start()
"""


class Child:
    """A process that holds the other end of a channel."""

    def __init__(self, program: str) -> None:
        self.channel, fds = RunChannel.open()
        self.process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + program, *map(str, fds)], pass_fds=fds, stdout=subprocess.PIPE
        )
        for fd in fds:
            os.close(fd)

    async def wait(self) -> tuple[int, str]:
        output, _ = await asyncio.to_thread(self.process.communicate, timeout=30)
        return self.process.returncode, output.decode()


@pytest.fixture
async def children() -> AsyncIterator[list[Child]]:
    started: list[Child] = []
    yield started
    for child in started:
        child.channel.close()
        if child.process.poll() is None:
            child.process.kill()
        child.process.wait(30)
        assert child.process.stdout is not None
        child.process.stdout.close()


async def test_commands_arrive(children: list[Child]) -> None:
    children.append(
        child := Child(
            "print(control.pause_requested, control.cancel_grace_seconds, flush=True)\n"
            "while not control.pause_requested: time.sleep(0.01)\n"
            "print(control.cancel_requested, flush=True)\n"
            "while not control.cancel_requested: time.sleep(0.01)\n"
            "print(control.pause_requested, control.cancel_grace_seconds)\n"
        )
    )
    assert child.process.stdout is not None
    child.channel.pause()
    # Once the pause was seen, and not before: the two must not arrive together.
    first, second = [await asyncio.to_thread(child.process.stdout.readline) for _ in range(2)]
    assert (first.split()[1], second) == (b"None", b"False\n")
    child.channel.cancel(2.5)
    status, output = await child.wait()
    assert (status, output) == (0, "True 2.5\n")


async def test_reports_arrive_and_end_with_the_process(children: list[Child]) -> None:
    children.append(
        child := Child(
            "for n in range(1, 4):\n"
            "    control.report(sequence=n, step=n - 1, total_steps=9, status_detail='é' * n)\n"
            "    time.sleep(0.1)\n"
            "time.sleep(60)\n"
        )
    )
    expected = [RunReport(n, n - 1, 9, "é" * n) for n in (1, 2, 3)]
    reports = []
    async for report in child.channel.reports():
        reports.append(report)
        if report == expected[-1]:
            child.process.kill()
    # On a busy machine a newer report may take the place of one that was not sent yet.
    assert reports[-1] == expected[-1]
    assert [report for report in expected if report in reports] == reports


async def test_details_alone_are_sent_at_most_once_a_second_and_the_newest_wins(
    children: list[Child],
) -> None:
    children.append(
        child := Child(
            "for n in range(200):\n"
            "    control.report(sequence=7, step=1, total_steps=9, status_detail=str(n))\n"
            "    time.sleep(0.002)\n"
            "time.sleep(60)\n"
        )
    )
    reports = []
    began = time.monotonic()
    async for report in child.channel.reports():
        reports.append(report)
        if report == RunReport(7, 1, 9, "199"):
            break
    assert len(reports) <= 2 + (time.monotonic() - began)


async def test_reporting_never_waits_for_the_service(children: list[Child]) -> None:
    children.append(
        child := Child(
            "began = time.monotonic()\n"
            "for n in range(1, 20_001):\n"
            "    control.report(sequence=n, step=n, total_steps=n, status_detail='x' * 5_000)\n"
            "print(time.monotonic() - began)\n"
            "sys.stdout.flush()\n"
            "time.sleep(30)\n"
        )
    )
    assert child.process.stdout is not None
    # Nobody reads the reports, of which far fewer fit the pipe.
    took = float(await asyncio.wait_for(asyncio.to_thread(child.process.stdout.readline), 20))
    assert took < 10
    async for report in child.channel.reports():
        assert len(report.status_detail) == 1_000
        if report.sequence == 20_000:
            break


async def test_the_death_of_the_service_ends_the_process_at_once(children: list[Child]) -> None:
    # The main thread is busy and never asks.
    children.append(child := Child("print('busy', flush=True)\nwhile True: sum(range(1_000))\n"))
    assert child.process.stdout is not None
    await asyncio.to_thread(child.process.stdout.readline)
    began = time.monotonic()
    child.channel.close()
    status, _ = await child.wait()
    assert status == SERVICE_DIED_EXIT_STATUS
    assert time.monotonic() - began < 5


async def test_lines_that_are_no_report_are_passed_over() -> None:
    channel, (command_read, report_write) = RunChannel.open()
    os.write(
        report_write,
        b'garbage\n{"sequence": "x"}\n[]\n'
        b'{"sequence": 3, "step": 2, "total_steps": 5, "status_detail": "", "later": 1}\n',
    )
    os.close(report_write)
    os.close(command_read)
    assert [report async for report in channel.reports()] == [RunReport(3, 2, 5)]
    channel.close()


async def test_a_process_that_is_gone_can_be_told_anything() -> None:
    channel, (command_read, report_write) = RunChannel.open()
    os.close(command_read)
    os.close(report_write)
    channel.pause()
    channel.cancel(1.0)
    channel.close()
    channel.close()
    channel.pause()


async def test_a_process_that_never_listens_blocks_nobody() -> None:
    channel, (command_read, report_write) = RunChannel.open()
    for _ in range(5_000):  # 65,536 bytes of pipe hold some 2,800
        channel.pause()
    channel.close()
    os.close(command_read)
    os.close(report_write)


async def test_a_report_that_the_wire_cannot_carry_is_no_report(children: list[Child]) -> None:
    children.append(
        child := Child(
            "control.report(sequence=1, step=0, total_steps=10**30)\n"
            "time.sleep(1.5)\n"
            "control.report(sequence=2, step=1, total_steps=9)\n"
            "time.sleep(1.5)\n"
        )
    )
    assert [report async for report in child.channel.reports()] == [RunReport(2, 1, 9, "")]
