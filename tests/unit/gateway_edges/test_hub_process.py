"""The process that reads from the hub ends where a dataset would take all memory."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict

import pyarrow as pa

from gateway.datasets.hub_process import FAILED, HubRequest

BOUNDED = """
import sys
from gateway.datasets import hub_process

hub_process.MAX_MEMORY_BYTES = 600_000_000
hub_process._write = {write}
sys.exit(hub_process.main())
"""
REQUEST = json.dumps(asdict(HubRequest("a/b", None, "train", {}, None)))


def ended(write: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", BOUNDED.format(write=write)],
        input=REQUEST,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr


def test_memory_that_runs_out_is_told_in_a_line() -> None:
    for too_much in (
        "lambda request: bytearray(10**9)",
        "lambda request: __import__('pyarrow').nulls(10**9, 'int64')",
    ):
        status, told = ended(too_much)
        assert status == FAILED, told
        assert told.splitlines()[-1].startswith("it takes more than 0.6 GB of memory to read a part of it"), (
            told
        )
    # pyarrow tells it in its own way, which is Python's too.
    assert issubclass(pa.ArrowMemoryError, MemoryError)


def test_what_fits_is_read() -> None:
    assert ended("lambda request: bytearray(10**8)") == (0, "")
