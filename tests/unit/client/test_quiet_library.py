"""A library writes nothing on the stdout of the program that uses it."""

from __future__ import annotations

import os
import subprocess
import sys


def run(program: str) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_a_call_that_is_repeated_says_nothing() -> None:
    out, told = run(
        "from plaudit import Client, errors\n"
        "try: Client(address='127.0.0.1:1', retry_seconds=0.5).training_jobs.get('x')\n"
        "except errors.UnavailableError: pass\n"
    )
    assert (out, told) == ("", "")


def test_what_the_library_logs_goes_to_the_logging_of_the_program() -> None:
    out, told = run(
        "import plaudit.scoring._replica as replica, plaudit.rpc._interceptors as rpc, logging\n"
        "replica.log.warning('lost', address='here')\n"
        "rpc.log.info('nobody asked for it')\n"
        "try: 1 / 0\n"
        "except ZeroDivisionError: rpc.log.exception('failed')\n"
        "replica.log.log(logging.INFO, 'nor for this')\n"
    )
    assert out == ""
    assert "event='lost' address='here'" in told
    assert "event='failed'" in told
    assert "ZeroDivisionError" in told
    assert "nobody" not in told
    assert "nor for this" not in told


def test_where_a_program_has_set_structlog_up_it_is_asked() -> None:
    out, told = run(
        "from plaudit.service import configure_logging\n"
        "import plaudit.scoring._replica as replica\n"
        "configure_logging('mine')\n"
        "replica.log.info('open', address='here')\n"
    )
    assert out == ""
    assert '"event": "open"' in told
