"""Nothing that leads out of the artifact root is opened, by whatever way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.models.artifact_files import open_below
from plaudit.errors import NotFoundError

OPEN_FILES = Path("/proc/self/fd")


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "artifacts"
    (root / "jobs" / "model").mkdir(parents=True)
    (root / "jobs" / "model" / "a b.txt").write_text("inside")
    (tmp_path / "secret").write_text("outside")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a b.txt").write_text("outside")
    return root


def test_a_file_below_the_root_is_opened(root):
    file = open_below(root, "jobs/model/a b.txt")
    try:
        assert os.read(file, 100) == b"inside"
    finally:
        os.close(file)


@pytest.mark.parametrize(
    "address",
    [
        "../secret",
        "jobs/../../secret",
        "jobs/./model/a b.txt",
        "/etc/passwd",
        "//etc/passwd",
        "",
        "jobs//model/a b.txt",
        "jobs/model/",
        "jobs/model",
        "jobs\\model\\a b.txt",
        "jobs/model/a b.txt\0.png",
        "jobs/model/not there",
        "jobs/model/a b.txt/more",
        "x" * 5000,
        "jobs/model/" + "y" * 300,
    ],
)
def test_what_is_no_file_below_the_root_is_not_there(root, address):
    with pytest.raises(NotFoundError):
        open_below(root, address)


def test_links_and_pipes_are_not_followed(root, tmp_path):
    model = root / "jobs" / "model"
    (model / "file link").symlink_to(tmp_path / "secret")
    (model / "inner link").symlink_to(model / "a b.txt")
    (root / "jobs" / "folder link").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(model / "pipe")
    before = {path.name for path in OPEN_FILES.iterdir()}
    for address in ("model/file link", "model/inner link", "folder link/a b.txt", "model/pipe"):
        with pytest.raises(NotFoundError):
            open_below(root, f"jobs/{address}")
    assert {path.name for path in OPEN_FILES.iterdir()} == before
