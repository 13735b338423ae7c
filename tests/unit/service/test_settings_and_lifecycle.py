"""Settings come from the section of plaudit.toml, the environment and the command line, in this order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import Field

from plaudit.errors import FailedPreconditionError, InvalidArgumentError
from plaudit.service import DataDirectory, ServiceSettings, configured


class ExampleSettings(ServiceSettings):
    """Settings of a service of these tests."""

    section: ClassVar[str] = "example"

    address: str = "127.0.0.1:1"
    workers: int = Field(default=1, ge=1, examples=[2])


@pytest.fixture(autouse=True)
def empty_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("PLAUDIT_"):
            monkeypatch.delenv(name)
    (tmp_path / "plaudit.toml").touch()
    monkeypatch.setenv("PLAUDIT_CONFIG", str(tmp_path / "plaudit.toml"))


def configure(tmp_path: Path, text: str) -> None:
    (tmp_path / "plaudit.toml").write_text(text)


def test_each_source_wins_over_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ExampleSettings.load().workers == 1
    configure(
        tmp_path,
        'data_dir = "/srv/plaudit"\n[example]\nworkers = 2\n[trainer]\nworkers = "no business of ours"\n',
    )
    assert ExampleSettings.load().workers == 2
    assert ExampleSettings.load().data_dir == Path("/srv/plaudit")
    monkeypatch.setenv("PLAUDIT_EXAMPLE_WORKERS", "3")
    assert ExampleSettings.load().workers == 3
    assert ExampleSettings.load(workers=4, address=None).workers == 4
    monkeypatch.setenv("PLAUDIT_DATA_DIR", "/srv/elsewhere")
    assert ExampleSettings.load().data_dir == Path("/srv/elsewhere")
    assert ExampleSettings.load(data_dir=Path("/srv/given")).data_dir == Path("/srv/given")


def test_a_named_configuration_file_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLAUDIT_CONFIG", "other.toml")
    with pytest.raises(InvalidArgumentError) as caught:
        ExampleSettings.load(data_dir=tmp_path)
    assert [(v.field, v.message) for v in caught.value.violations] == [
        ("PLAUDIT_CONFIG", '"other.toml": there is no such file; mend the path, or unset it')
    ]
    # The file of the working directory may be absent.
    (tmp_path / "plaudit.toml").unlink()
    monkeypatch.delenv("PLAUDIT_CONFIG")
    assert ExampleSettings.load(data_dir=tmp_path).workers == 1


def test_what_is_configured_for_another_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert configured("trainer", "peers") is None
    configure(tmp_path, '[trainer]\npeers = ["a:1"]\n')
    assert configured("trainer", "peers") == ["a:1"]
    monkeypatch.setenv("PLAUDIT_TRAINER_PEERS", '["b:1"]')
    assert configured("trainer", "peers") == ["b:1"]
    monkeypatch.setenv("PLAUDIT_TRAINER_PEERS", "b:1")
    assert configured("trainer", "peers") == "b:1"


def test_wrong_settings_are_told_by_name_all_at_once(tmp_path: Path) -> None:
    configure(tmp_path, '[example]\nworkers = 0\nworker = 3\nlog_level = "loud"\n')
    with pytest.raises(InvalidArgumentError) as caught:
        ExampleSettings.load()
    assert {v.field for v in caught.value.violations} == {
        "example.workers",
        "example.worker",
        "example.log_level",
    }


def test_names_that_are_no_settings_are_refused_wherever_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAUDIT_EXAMPLE_WORKER", "3")
    monkeypatch.setenv("PLAUDIT_OTHER_WORKER", "3")
    with pytest.raises(InvalidArgumentError) as caught:
        ExampleSettings.load(workers=0)
    assert {v.field: v.message for v in caught.value.violations} == {
        "PLAUDIT_EXAMPLE_WORKER": "there is no such setting; unset it",
        "example.workers": "0 is refused: input should be greater than or equal to 1; for example 2",
    }
    monkeypatch.delenv("PLAUDIT_EXAMPLE_WORKER")
    configure(tmp_path, "datadir = 1\n[gatewy]\n[gateway]\n")
    with pytest.raises(InvalidArgumentError) as caught:
        ExampleSettings.load()
    assert [v.field for v in caught.value.violations] == ["datadir", "gatewy"]


@pytest.mark.parametrize("below", ["", "below"])
def test_a_data_directory_that_cannot_be_one_is_told_by_its_path(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / below
    with pytest.raises(FailedPreconditionError) as caught, DataDirectory(path):
        pass
    assert caught.value.message.startswith(f"{path} cannot be used as a folder (")
    assert caught.value.reason == "DATA_DIR_UNUSABLE"


def test_a_file_that_is_no_toml_is_told_by_its_name(tmp_path: Path) -> None:
    configure(tmp_path, "[example\n")
    with pytest.raises(InvalidArgumentError, match=r"plaudit\.toml: cannot be read"):
        ExampleSettings.load()


def test_a_data_directory_has_one_owner_and_is_free_when_the_owner_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom plaudit.service import DataDirectory\n"
        f"with DataDirectory(Path({str(tmp_path / 'data')!r})):\n"
        "    print('held', flush=True)\n    time.sleep(60)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "held\n"
        with (
            pytest.raises(FailedPreconditionError, match=f"in use by process {owner.pid}"),
            DataDirectory(tmp_path / "data"),
        ):
            pass
    finally:
        owner.kill()
        owner.wait()
    with DataDirectory(tmp_path / "data"):
        pass


SERVICE = """
import asyncio
from plaudit.errors import UnavailableError
from plaudit.service import run_service

async def serve(stop):
    print("up", flush=True)
    await stop.wait()
    print("drained", flush=True)

raise SystemExit(run_service(serve, die_with_stdin=True))
"""


@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT", "stdin"])
def test_a_service_drains_on_signals_and_at_the_end_of_stdin(how: str) -> None:
    service = subprocess.Popen(
        [sys.executable, "-c", SERVICE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert service.stdin is not None
    assert service.stdout is not None
    assert service.stdout.readline() == "up\n"
    time.sleep(0.05)
    if how == "stdin":
        service.stdin.close()
    else:
        service.send_signal(getattr(signal, how))
    assert service.stdout.read() == "drained\n"
    assert service.wait(10) == 0


def test_a_new_folder_is_its_users_only(tmp_path: Path) -> None:
    with DataDirectory(tmp_path / "data"):
        assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
