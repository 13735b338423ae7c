"""`make check` is worth something only if it catches what it is there for: plant a fault, see it caught."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    # The copy's packages are looked at, not the installed ones.
    environment = {**os.environ, "PYTHONPATH": str(cwd)}
    return subprocess.run(
        [str(BIN / command[0]), *command[1:]],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A copy of what the checks read."""
    ignore = shutil.ignore_patterns("__pycache__", "weights", "node_modules")
    for name in ("plaudit", "reward_service", "trainer_service", "gateway", "protos", "scripts"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignore)
    for name in ("pyproject.toml", "buf.yaml"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_an_import_of_torch_in_the_reward_service_is_caught(house: Path) -> None:
    clean = run("lint-imports", "--no-cache", cwd=house)
    assert clean.returncode == 0, clean.stdout
    (house / "reward_service" / "planted.py").write_text("import torch\n")
    caught = run("lint-imports", "--no-cache", cwd=house)
    assert caught.returncode != 0
    assert "reward_service.planted" in caught.stdout


@pytest.mark.parametrize("service", ["reward_service", "gateway", "plaudit", "trainer_service"])
def test_an_import_across_the_walls_is_caught(house: Path, service: str) -> None:
    other = {"reward_service": "gateway", "gateway": "trainer_service", "plaudit": "gateway"}.get(
        service, "trainer_service.training"
    )
    (house / service / "planted.py").write_text(f"import {other}\n")
    caught = run("lint-imports", "--no-cache", cwd=house)
    assert caught.returncode != 0
    assert f"{service}.planted" in caught.stdout


def test_a_renumbered_proto_field_is_caught(house: Path) -> None:
    breaking = ("buf", "breaking", "--against", "protos/baseline.binpb")
    clean = run(*breaking, cwd=house)
    assert clean.returncode == 0, clean.stdout
    proto = house / "protos/plaudit/reward/v1/reward_service.proto"
    text = proto.read_text()
    assert "string text = 2;" in text
    proto.write_text(text.replace("string text = 2;", "string text = 12;"))
    caught = run(*breaking, cwd=house)
    assert caught.returncode != 0
    assert "reward_service.proto" in caught.stdout


def test_generated_code_that_was_edited_is_caught(house: Path) -> None:
    clean = run("python", "scripts/check_generated.py", cwd=house)
    assert clean.returncode == 0, clean.stdout + clean.stderr
    generated = house / "plaudit/reward/v1/reward_service_pb2.pyi"
    generated.write_text(generated.read_text() + "\nedited: int\n")
    caught = run("python", "scripts/check_generated.py", cwd=house)
    assert caught.returncode != 0
    assert "plaudit/reward/v1/reward_service_pb2.pyi: differs" in caught.stdout


def test_a_proto_without_comments_is_caught(house: Path) -> None:
    assert run("buf", "lint", cwd=house).returncode == 0
    proto = house / "protos/plaudit/reward/v1/reward_service.proto"
    proto.write_text(proto.read_text() + "\nmessage Planted {}\n")
    caught = run("buf", "lint", cwd=house)
    assert caught.returncode != 0
    assert "Planted" in caught.stdout
