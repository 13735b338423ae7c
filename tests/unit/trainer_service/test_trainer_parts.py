"""The small parts of the trainer service: its ledger, run directories, output, devices, memory counters."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from plaudit.types.statuses import RunState
from trainer_service import ledger as ledger_module
from trainer_service.devices import Device, parse_devices, visible_devices
from trainer_service.journal import JournalReader, RunStateChanged
from trainer_service.launchers import memory, output
from trainer_service.ledger import Ledger, LedgerError
from trainer_service.run_directory import RunDirectories, RunStart, check_artifact_path, read_start

SPEC: dict[str, Any] = {
    "base_model": "builtin:tiny",
    "output_name": "adder",
    "method": "grpo",
    "hyperparameters": {"seed": 7},
    "dataset": {"uri": "datasets/ab.parquet", "sha256": "ab", "row_count": 64},
    "rewards": [
        {
            "binding": {"name": "exact", "server": "builtin", "reward": "exact"},
            "addresses": ["127.0.0.1:7433"],
        }
    ],
}


def run_start(run_id: str = "run_1", **changed: object) -> RunStart:
    values = {"run_id": run_id, "job_id": "job_1", "attempt": 1, "spec": SPEC, "artifact_root": "/artifacts"}
    return RunStart.model_validate({**values, **changed})


# --- ledger


def test_the_ledger_remembers_across_restarts(tmp_path: Path) -> None:
    first = Ledger(tmp_path / "ledger.sqlite3")
    first.remember_cancelled("run_9")
    first.remember_attempt("job_1", 3)
    first.remember_attempt("job_1", 2)
    name = first.trainer_id
    first.close()
    again = Ledger(tmp_path / "ledger.sqlite3")
    assert again.trainer_id == name and name.startswith("trainer_")
    assert again.is_cancelled("run_9") and not again.is_cancelled("run_8")
    assert (again.newest_attempt("job_1"), again.newest_attempt("job_2")) == (3, 0)
    again.close()
    assert Ledger(tmp_path / "another.sqlite3").trainer_id != name


def test_the_ledger_forgets_what_is_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_800_000_000.0
    monkeypatch.setattr(ledger_module.time, "time", lambda: now)
    ledger = Ledger(tmp_path / "ledger.sqlite3")
    ledger.remember_cancelled("run_1")
    ledger.remember_attempt("job_1", 5)
    now += 24 * 3600 - 1
    assert ledger.is_cancelled("run_1")
    now += 2
    assert not ledger.is_cancelled("run_1")
    ledger.remember_cancelled("run_2")
    assert ledger._execute("SELECT group_concat(run_id) FROM cancelled") == ("run_2",)
    now += 90 * 24 * 3600
    assert ledger.newest_attempt("job_1") == 5
    ledger.remember_attempt("job_2", 1)
    assert ledger.newest_attempt("job_1") == 0


def test_a_ledger_that_cannot_be_used_says_so(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite3").write_bytes(b"not a database at all " * 100)
    with pytest.raises(LedgerError, match="ledger cannot be used: file is not a database"):
        Ledger(tmp_path / "ledger.sqlite3")


# --- run directories


def test_a_run_directory_appears_whole(tmp_path: Path) -> None:
    directories = RunDirectories(tmp_path / "runs")
    path = directories.create(run_start(checkpoint_uri="jobs/job_1/attempt-1/checkpoint-000020"))
    assert path == tmp_path / "runs" / "run_1"
    assert sorted(file.name for file in path.iterdir()) == ["journal.sqlite3", "start.json"]
    with JournalReader(path) as reader:
        assert [r.entry for r in reader.read_after(0, 9)] == [RunStateChanged(RunState.STARTING)]
    start = json.loads((path / "start.json").read_text())
    assert start["spec"]["hyperparameters"]["seed"] == 7
    assert start["spec"]["hyperparameters"]["rollouts_per_prompt"] == 8  # defaults are filled in
    assert start["checkpoint_uri"] == "jobs/job_1/attempt-1/checkpoint-000020"
    assert start["artifact_root"] == "/artifacts"
    assert read_start(path) == run_start(checkpoint_uri="jobs/job_1/attempt-1/checkpoint-000020")
    assert path.stat().st_mode & 0o777 == 0o700


def test_what_a_crash_left_half_made_or_half_deleted_is_removed(tmp_path: Path) -> None:
    directories = RunDirectories(tmp_path)
    directories.create(run_start("run_2"))
    for name in (".staged-run_1", ".deleted-run_3"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "start.json").write_text("{")
    assert [path.name for path in directories.found()] == ["run_2"]
    assert [path.name for path in tmp_path.iterdir()] == ["run_2"]
    (tmp_path / ".staged-run_1").mkdir()
    directories.create(run_start("run_1"))  # in the way of a new one it is removed too
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run_1", "run_2"]


def test_deleting_twice_is_deleting_once(tmp_path: Path) -> None:
    directories = RunDirectories(tmp_path)
    directories.create(run_start())
    directories.delete("run_1")
    directories.delete("run_1")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_set_aside_is_kept_and_not_found(tmp_path: Path) -> None:
    directories = RunDirectories(tmp_path)
    for _ in range(2):
        directories.create(run_start())
        directories.set_aside("run_1")
    assert list(directories.found()) == []
    assert len(list(tmp_path.iterdir())) == 2


def test_requests_are_the_same_whatever_the_artifact_root() -> None:
    assert run_start().asks_the_same(run_start(artifact_root="/elsewhere"))
    assert not run_start().asks_the_same(run_start(attempt=2))
    assert not run_start().asks_the_same(run_start(spec={**SPEC, "output_name": "other"}))
    assert not run_start().asks_the_same(run_start(checkpoint_uri="a/b"))


@pytest.mark.parametrize(
    "value", ["datasets/ab.parquet", "a", "jobs/j/attempt-1/checkpoint-000001", "a/..b/c.d"]
)
def test_paths_below_the_artifact_root(value: str) -> None:
    assert check_artifact_path(value) == value


@pytest.mark.parametrize(
    "value", ["", "/etc/passwd", "../x", "a/../../x", "a/..", "./a", "a//b", "a/", "a\\..\\b", "a\0b"]
)
def test_paths_that_leave_the_artifact_root(value: str) -> None:
    with pytest.raises(ValueError, match="below the artifact root"):
        check_artifact_path(value)
    with pytest.raises(ValidationError):
        run_start(checkpoint_uri=value)


@pytest.mark.parametrize("value", ["", ".", "..", "a/b", "../a", ".hidden", "a b", "é", "a\n", "x" * 129])
def test_ids_that_are_no_folder_names(value: str) -> None:
    for field in ("run_id", "job_id"):
        with pytest.raises(ValidationError):
            run_start(**{field: value})


# --- output


def test_output_is_bounded_and_its_end_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "MAX_FILE_BYTES", 1_000)
    log = output.OutputLog(tmp_path)
    for n in range(1_000):
        log.write(f"line {n:04d}\n".encode())
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 2_000
    assert output.last_lines(tmp_path).splitlines() == [f"line {n:04d}" for n in range(980, 1_000)]


def test_the_last_lines_cross_a_rotation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "MAX_FILE_BYTES", 20)
    log = output.OutputLog(tmp_path)
    log.write(b"first\nsecond\n")
    log.write(b"third\nfourth\n")
    assert output.last_lines(tmp_path) == "first\nsecond\nthird\nfourth"


def test_the_last_lines_are_short_and_fit_to_print(tmp_path: Path) -> None:
    assert output.last_lines(tmp_path) == ""
    log = output.OutputLog(tmp_path)
    log.write(b"\x1b[31mred\x1b[0m \xff\x00 end\r\n" + b"x" * 10_000)
    assert output.last_lines(tmp_path) == "x" * 4_096
    log.write(b"\n\x1b[31mred\x1b[0m \xff\x00 end\r\n")
    assert output.last_lines(tmp_path).splitlines()[-1] == "[31mred[0m � end"


def test_what_is_printed_with_every_run_is_no_cause(tmp_path: Path) -> None:
    log = output.OutputLog(tmp_path)
    log.write(
        b"Failed to load CPU gemm_4bit_forward from kernels-community: no kernels. Please make "
        b"sure you already `pip install kernels` and the kernels >= 0.11.1\n"
        b'{"step": 3, "event": "step done", "level": "info"}\n'
    )
    assert output.last_lines(tmp_path) == ""
    log.write(b'Fatal Python error: Aborted\n{"event": "disk full", "level": "error"}\n')
    assert output.last_lines(tmp_path).splitlines() == [
        "Fatal Python error: Aborted",
        '{"event": "disk full", "level": "error"}',
    ]


# --- devices and memory


def test_devices_are_read_from_the_drivers_listing() -> None:
    listing = (
        "GPU-1f, NVIDIA H200, 143771\nGPU-2a, NVIDIA GeForce RTX 4090, 24564\n\n"
        "Failed to initialize NVML\nGPU-3, X, [N/A]\n"
    )
    assert parse_devices(listing) == (
        Device("GPU-1f", "NVIDIA H200", 150_754_820_096),
        Device("GPU-2a", "NVIDIA GeForce RTX 4090", 25_757_220_864),
    )


@pytest.mark.parametrize(
    ("visible", "shown"),
    [
        (None, "abc"),
        ("", ""),
        ("-1", ""),
        ("1", "b"),
        ("2,0", "ca"),
        ("0,7,1", "a"),
        ("GPU-b,GPU-a0", "ba"),
    ],
)
def test_only_the_devices_that_runs_may_see_are_announced(visible: str | None, shown: str) -> None:
    devices = [Device(f"GPU-{name}0", name, 1) for name in "abc"]
    assert "".join(device.name for device in visible_devices(devices, visible)) == shown


@pytest.mark.parametrize(
    ("membership", "file", "content"),
    [
        (
            "0::/user.slice/app\n",
            "user.slice/app/memory.events",
            "low 0\noom 3\noom_kill 2\noom_group_kill 0\n",
        ),
        ("0::/\n", "memory.events", "oom_kill 2\n"),
        ("9:name=systemd:/\n4:cpu,memory:/box/1\n0::/\n", "memory/box/1/memory.oom_control", "oom_kill 2\n"),
        ("4:memory:/docker/0a\n", "memory/memory.oom_control", "oom_kill_disable 0\noom_kill 2\n"),
    ],
)
def test_memory_kills_are_counted_by_either_cgroup_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, membership: str, file: str, content: str
) -> None:
    monkeypatch.setattr(memory, "_CGROUPS", tmp_path)
    monkeypatch.setattr(memory, "_MEMBERSHIP", tmp_path / "membership")
    assert memory.kernel_memory_kills() is None
    (tmp_path / "membership").write_text(membership)
    assert memory.kernel_memory_kills() is None
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(content)
    assert memory.kernel_memory_kills() == 2
