"""The environment with unsloth: what keeps a run from using it, found out by running it."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from plaudit.errors import InvalidArgumentError
from trainer_service.devices import Device
from trainer_service.training.run import _import_unsloth
from trainer_service.unsloth import UnslothEnvironment

GPU = (Device("GPU-1", "NVIDIA H200", 10**11),)
VERSIONS = {"plaudit": version("plaudit"), "unsloth": "2026.10.9", "trl": "1.16.3"}


def interpreter(folder: Path, body: str) -> Path:
    """A program that stands where the environment's interpreter is, and notes that it ran."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\necho ran >> {folder}/runs\n{body}\n")
    path.chmod(0o755)
    return path


def runs(folder: Path) -> int:
    return len((folder / "runs").read_text().splitlines())


def saying(folder: Path, **versions: str) -> Path:
    told = json.dumps({**VERSIONS, **versions})
    return interpreter(folder, f"echo 'Unsloth: will patch your computer'\necho '{told}'")


async def test_an_environment_that_has_everything_is_run_once(tmp_path: Path) -> None:
    unsloth = UnslothEnvironment(saying(tmp_path), GPU, trl_version="1.16.0")
    assert await unsloth.obstacle() == ""
    assert await unsloth.obstacle() == ""
    assert runs(tmp_path) == 1


async def test_without_one_and_without_a_gpu(tmp_path: Path) -> None:
    assert "set unsloth_python of the trainer" in await UnslothEnvironment(None, GPU).obstacle()
    told = await UnslothEnvironment(saying(tmp_path), ()).obstacle()
    assert told.startswith("true needs a GPU, and this trainer has none")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("echo 'ModuleNotFoundError: No module named unsloth' >&2; exit 1", "No module named unsloth"),
        ("exit 3", "status 3"),
        ("exec sleep 60", "did not import unsloth within 0.5 s"),
        ("echo hello", "does not say what it has installed"),
        ("echo '[1]'", "does not say what it has installed"),
    ],
)
async def test_what_is_wrong_with_it_is_told_and_tried_anew(tmp_path: Path, body: str, said: str) -> None:
    path = interpreter(tmp_path, body)
    seconds = 0.5 if "sleep" in body else 30
    unsloth = UnslothEnvironment(path, GPU, trl_version="1.16.0", check_seconds=seconds)
    told = await unsloth.obstacle()
    assert said in told and "leave use_unsloth out" in told
    saying(tmp_path)
    mended = UnslothEnvironment(path, GPU, trl_version="1.16.0") if "sleep" in body else unsloth
    assert await mended.obstacle() == ""
    assert runs(tmp_path) == 2


async def test_its_versions_must_be_those_that_runs_are_written_for(tmp_path: Path) -> None:
    told = await UnslothEnvironment(saying(tmp_path, trl="1.15.0"), GPU, trl_version="1.16.0").obstacle()
    assert "has trl 1.15.0 beside unsloth 2026.10.9" in told and "written for trl 1.16" in told
    told = await UnslothEnvironment(saying(tmp_path, plaudit="9.9"), GPU, trl_version="1.16.0").obstacle()
    assert "has plaudit 9.9" in told


async def test_an_interpreter_that_is_none(tmp_path: Path) -> None:
    told = await UnslothEnvironment(tmp_path / "nowhere", GPU).obstacle()
    assert "cannot be run: No such file or directory" in told


async def test_this_environment_has_no_unsloth() -> None:
    """The real check in a real interpreter, and the same in a run's process."""
    told = await UnslothEnvironment(Path(sys.executable), GPU).obstacle()
    assert "No module named 'unsloth'" in told
    with pytest.raises(InvalidArgumentError, match="No module named 'unsloth'"):
        _import_unsloth()
