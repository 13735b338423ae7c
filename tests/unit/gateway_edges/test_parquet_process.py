"""Parquet of strangers is read in a process of its own: how that one may end, and that none is left."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Timer
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.datasets.faults import AbandonedError, RowFault
from gateway.datasets.formats import _parquet_process, read_rows
from gateway.datasets.rows import Row
from gateway.parquet_reader.protocol import BATCH, END, LAST
from plaudit.errors import ResourceExhaustedError


def parquet(table: Any, **settings: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, **settings)
    return file.getvalue()


def crashing() -> bytes:
    """A file whose column is said to be without nulls, against what its statistics count: Arrow aborts."""
    data = parquet(pa.table({"prompt": ["2 + 3?", "4 + 4?"]}))
    # Of the column's element in the footer: its type, repetition (2: OPTIONAL, 0: REQUIRED) and name.
    said = b"\x15\x0c\x25\x02\x18\x06prompt"
    assert data.count(said) == 1
    return data.replace(said, said.replace(b"\x25\x02", b"\x25\x00"))


CRASHED = "the file is damaged: its reader crashed (SIGABRT); write it anew, e.g. with pandas or pyarrow"


@pytest.fixture
def many_rows(tmp_path: Path) -> Iterator[IO[bytes]]:
    """A file of more rows than a pipe holds."""
    path = tmp_path / "many.parquet"
    path.write_bytes(parquet(pa.table({"prompt": ["a" * 100] * 100_000})))
    with path.open("rb") as file:
        yield file


def children(pid: int | None = None) -> set[int]:
    """Of a process, by default this one."""
    found = [tasks.read_text() for tasks in Path(f"/proc/{pid or os.getpid()}/task").glob("*/children")]
    return {int(pid) for pids in found for pid in pids.split()}


@pytest.fixture(autouse=True)
def _none_is_left() -> Iterator[None]:
    before = children()
    yield
    assert children() <= before


def as_program(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(_parquet_process, "_PROGRAM", program)


def test_a_reader_that_crashes_is_told_as_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "crash.parquet"
    path.write_bytes(crashing())
    with path.open("rb") as file:
        assert list(read_rows(file, "")) == [RowFault("row 1", CRASHED)]
    assert not list(Path.cwd().glob("core*"))


@pytest.mark.parametrize(
    ("end", "told"),
    [
        ("os.kill(os.getpid(), 11)", "the file is damaged: its reader crashed (SIGSEGV)"),
        ("sys.exit(7)", "the file is damaged: its reader ended with status 7"),
        ("print('?')", "the file is damaged: its reader writes what is no row"),
        ("print('a' * 9_000_000)", "the file is damaged: its reader writes rows without an end"),
        ("time.sleep(600)", "the file's reader found nothing more in 0.3 s"),
    ],
)
def test_rows_before_the_end_are_kept_and_the_place_is_told(
    monkeypatch: pytest.MonkeyPatch, many_rows: IO[bytes], end: str, told: str
) -> None:
    if "sleep" in end:
        monkeypatch.setattr(_parquet_process, "IDLE_SECONDS", 0.3)
    start = 'print("hnull\\nb[1,1]\\nr{\\"prompt\\":\\"a\\"}", flush=True)'
    as_program(monkeypatch, f"import os, sys, time; {start}; {end}")
    first, fault = read_rows(many_rows, "")
    assert isinstance(first, Row) and isinstance(fault, RowFault)
    assert fault == RowFault("row 2", f"{told}; write it anew, e.g. with pandas or pyarrow")


def test_a_reader_that_does_not_start_is_no_fault_of_the_file(
    monkeypatch: pytest.MonkeyPatch, many_rows: IO[bytes]
) -> None:
    as_program(monkeypatch, "import gateway.no_such_module")
    with pytest.raises(RuntimeError, match=r"does not start \(status 1\).*no_such_module"):
        list(read_rows(many_rows, ""))


def test_memory_that_runs_out_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    as_program(
        monkeypatch,
        "from gateway.parquet_reader import process; process.MAX_MEMORY_BYTES = 200_000_000; "
        + _parquet_process._PROGRAM,
    )
    path = tmp_path / "large.parquet"
    table = pa.table({"prompt": ["a" * 200_000_000]})
    path.write_bytes(parquet(table, compression="zstd", use_dictionary=False, write_statistics=False))
    with (
        path.open("rb") as file,
        pytest.raises(
            ResourceExhaustedError, match="more memory than its reader may have; write it"
        ) as refused,
    ):
        list(read_rows(file, ""))
    assert refused.value.reason == "UPLOAD_TOO_LARGE"


def test_a_reader_whose_rows_nobody_wants_ends(many_rows: IO[bytes]) -> None:
    before = children()
    rows = read_rows(many_rows, "")
    assert isinstance(next(rows), Row)
    assert len(children() - before) == 1
    rows.close()
    assert children() <= before


def test_a_reader_that_hangs_ends_once_it_is_abandoned(
    monkeypatch: pytest.MonkeyPatch, many_rows: IO[bytes]
) -> None:
    as_program(monkeypatch, 'import time; print("hnull", flush=True); time.sleep(600)')
    abandoned = Event()
    Timer(0.1, abandoned.set).start()
    with pytest.raises(AbandonedError):
        list(read_rows(many_rows, "", abandoned=abandoned))


GATEWAY = """
import sys
from gateway.datasets.formats import _parquet_process, read_rows

# A file that keeps Arrow busy: nothing is written, which would tell that nobody reads.
_parquet_process._PROGRAM = f'''
import time
from gateway.parquet_reader import _lines

def blocks(*file):
    open({sys.argv[2]!r}, "x").close()
    time.sleep(600)

_lines.blocks = blocks
{_parquet_process._PROGRAM}
'''
with open(sys.argv[1], "rb") as file:
    next(read_rows(file, ""))
"""


def test_a_reader_that_hangs_ends_with_the_gateway(many_rows: IO[bytes], tmp_path: Path) -> None:
    hangs = tmp_path / "hangs"
    with subprocess.Popen([sys.executable, "-c", GATEWAY, many_rows.name, str(hangs)]) as reading:
        while not hangs.exists():
            assert reading.poll() is None
            time.sleep(0.02)
        readers = children(reading.pid)
        reading.kill()
    (reader,) = readers
    deadline = time.monotonic() + 30
    while is_running(reader):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    """A dead process that nobody waits for keeps its number."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_nothing_of_the_gateway_s_secrets_is_given(
    monkeypatch: pytest.MonkeyPatch, many_rows: IO[bytes]
) -> None:
    monkeypatch.setenv("PLAUDIT_GATEWAY_TOKEN", "secret")
    monkeypatch.setenv("HF_TOKEN", "secret")
    as_program(monkeypatch, "import os, sys; sys.exit(str(sorted(os.environ)))")
    with pytest.raises(RuntimeError) as told:
        list(read_rows(many_rows, ""))
    assert "PATH" in str(told.value)
    assert "TOKEN" not in str(told.value)


DAMAGED = """
import sys
from gateway.parquet_reader._lines import blocks
for path in sys.argv[1:]:
    print(path, flush=True)
    with open(path, "rb") as file:
        found = b"".join(blocks(file, 4 * 1024 * 1024))
    print(repr(found.splitlines()[-1][:1]), flush=True)
"""


def test_damaged_files_are_read_to_an_end_or_crash(tmp_path: Path) -> None:
    """Seeded; the process begins anew behind a file at which it crashes."""
    rows = pa.table(
        {"prompt": [f"{n} + 3?" for n in range(40)], "more": [[{"n": n}] * (n % 3) for n in range(40)]}
    )
    whole = [
        parquet(rows, compression=codec, row_group_size=15) for codec in ("none", "snappy", "zstd", "gzip")
    ]
    chance = random.Random(5)
    paths = []
    for number in range(100):
        damaged = bytearray(whole[number % len(whole)])
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(4, len(damaged) - 4)] = chance.randrange(256)
        if number % 10 == 0:
            del damaged[chance.randrange(4, len(damaged)) :]
        path = tmp_path / f"{number:03}.parquet"
        path.write_bytes(damaged)
        paths.append(str(path))
    ends = []
    while paths:
        done = subprocess.run(
            [sys.executable, "-c", DAMAGED, *paths], capture_output=True, timeout=60, check=False
        )
        told = done.stdout.decode().splitlines()
        seen = sum(line in paths for line in told)
        assert seen
        ends += told[1::2]
        assert done.returncode <= 0, done.stderr
        if done.returncode == 0:
            break
        assert -done.returncode in (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE)
        paths = paths[seen:]
    kinds = {repr(kind) for kind in LAST}
    assert len(ends) > 80 and set(ends) <= kinds and repr(END) in ends


def test_batches_are_told_with_what_they_take(many_rows: IO[bytes]) -> None:
    lines = list(_parquet_process.parquet_lines(many_rows, Event()))
    batches = [json.loads(line[1:]) for line in lines if line[:1] == BATCH]
    assert sum(rows for rows, _ in batches) == 100_000
    assert max(rows for rows, _ in batches) == 16
    # Of each row its text and where it ends.
    assert 100_000 * 104 <= sum(taken for _, taken in batches) <= 100_000 * 110


def test_it_leaves_no_compiled_modules_cut_off_at_what_it_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was compiled yet, as after an installation without it; numpy has modules above the limit."""
    compiled = tmp_path / "compiled"
    environment = {**_parquet_process._environment(), "PYTHONPYCACHEPREFIX": str(compiled)}
    monkeypatch.setattr(_parquet_process, "_environment", lambda: environment)
    path = tmp_path / "rows.parquet"
    path.write_bytes(parquet(pa.table({"prompt": ["2 + 3?"]})))
    with path.open("rb") as file:
        lines = list(_parquet_process.parquet_lines(file, Event()))
    assert any(b"2 + 3?" in line for line in lines)
    assert not list(compiled.rglob("numpy/**/*.pyc"))
