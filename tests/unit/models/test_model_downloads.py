"""What arrives is what was announced, or nothing has the name of a file."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from plaudit.client._downloads import download_files
from plaudit.client.models import DownloadProgress, ModelFile
from plaudit.errors import FailedPreconditionError, InternalError, InvalidArgumentError, UnavailableError

CONTENT = {"config.json": b"{}", "weights/model.safetensors": bytes(range(256)) * 40, "empty": b""}


def announced(content: dict[str, bytes]) -> list[ModelFile]:
    return [ModelFile(path, len(data), hashlib.sha256(data).hexdigest()) for path, data in content.items()]


class Source:
    """Serves content in chunks of 1,000 bytes, and notes what was asked for."""

    def __init__(self, content=CONTENT, *, break_at: int | None = None):
        self.content, self.break_at, self.asked = content, break_at, []

    async def __call__(self, path, offset):
        self.asked.append((path, offset))
        data = self.content[path]
        for start in range(offset, len(data), 1000):
            if self.break_at is not None and start >= self.break_at:
                raise UnavailableError("the wire was cut")
            yield data[start : start + 1000]


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def quiet(progress: DownloadProgress) -> None:
    pass


async def here(function, *arguments):
    return function(*arguments)


async def test_all_files_arrive_and_progress_ends_at_the_total(tmp_path):
    seen: list[DownloadProgress] = []
    await download_files(announced(CONTENT), tmp_path / "new" / "folder", Source(), seen.append, here)
    for path, data in CONTENT.items():
        assert (tmp_path / "new" / "folder" / path).read_bytes() == data
    assert names(tmp_path / "new" / "folder") == set(CONTENT)
    received = [progress.received_bytes for progress in seen]
    assert received == sorted(received)
    assert received[-1] == seen[-1].total_bytes == sum(map(len, CONTENT.values())) == 10_242


async def test_a_cut_download_is_built_upon_and_never_looks_complete(tmp_path):
    with pytest.raises(UnavailableError):
        await download_files(announced(CONTENT), tmp_path, Source(break_at=4000), quiet, here)
    assert names(tmp_path) == {"config.json", "weights/.model.safetensors.partial"}
    source = Source()
    await download_files(announced(CONTENT), tmp_path, source, quiet, here)
    # What is there is neither fetched again nor fetched from the start.
    assert source.asked == [("weights/model.safetensors", 4000)]
    assert names(tmp_path) == set(CONTENT)
    assert (tmp_path / "weights/model.safetensors").read_bytes() == CONTENT["weights/model.safetensors"]


async def test_a_part_of_another_model_is_not_built_upon(tmp_path):
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights/.model.safetensors.partial").write_bytes(b"of another model")
    (tmp_path / "config.json").write_bytes(b"[]")  # right size, other bytes
    source = Source()
    await download_files(announced(CONTENT), tmp_path, source, quiet, here, overwrite=True)
    assert source.asked == [
        ("config.json", 0),
        ("weights/model.safetensors", 16),
        ("weights/model.safetensors", 0),
    ]
    assert (tmp_path / "config.json").read_bytes() == b"{}"
    assert (tmp_path / "weights/model.safetensors").read_bytes() == CONTENT["weights/model.safetensors"]


async def test_two_downloads_at_once_into_one_folder_do_not_mix_their_bytes(tmp_path):
    """The second comes while the first is under way, and is done before it."""
    first = Source()
    meanwhile: list[Source] = []

    async def first_source(path, offset):
        async for chunk in first(path, offset):
            yield chunk
            if path.startswith("weights") and not meanwhile:
                meanwhile.append(Source())
                await download_files(announced(CONTENT), tmp_path, meanwhile[0], quiet, here, overwrite=True)
                assert (tmp_path / path).read_bytes() == CONTENT[path]

    await download_files(announced(CONTENT), tmp_path, first_source, quiet, here, overwrite=True)
    assert meanwhile[0].asked == [("weights/model.safetensors", 0)]
    assert names(tmp_path) == set(CONTENT)
    for path, data in CONTENT.items():
        assert (tmp_path / path).read_bytes() == data


async def test_files_of_another_model_are_not_overwritten_unasked(tmp_path):
    source = Source()
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights/model.safetensors").write_bytes(b"of another model")
    with pytest.raises(FailedPreconditionError, match=r"holds weights/model.safetensors of") as caught:
        await download_files(announced(CONTENT), tmp_path, source, quiet, here)
    assert caught.value.reason == "FOLDER_TAKEN"
    # Nothing was fetched, nor written beside it.
    assert source.asked == []
    assert names(tmp_path) == {"weights/model.safetensors"}
    assert (tmp_path / "weights/model.safetensors").read_bytes() == b"of another model"


@pytest.mark.parametrize("sent", [b"[]", b"{", b"{}}", b""])
async def test_damaged_bytes_are_told_and_removed(tmp_path, sent):
    files = announced({"config.json": b"{}"})
    with pytest.raises(InternalError, match=r"config.json arrived with .* was announced with 2") as caught:
        await download_files(files, tmp_path, Source({"config.json": sent}), quiet, here)
    assert caught.value.reason == "DOWNLOAD_DAMAGED"
    assert names(tmp_path) == set()


@pytest.mark.parametrize("path", ["../evil", "/etc/evil", "a/../../evil", "", ".", "a\\evil"])
async def test_a_path_that_leads_out_is_refused_before_anything_is_written(tmp_path, path):
    files = [*announced({"config.json": b"{}"}), ModelFile(path, 0, "")]
    with pytest.raises(InvalidArgumentError, match="leads out of the folder"):
        await download_files(files, tmp_path / "folder", Source(), quiet, here)
    assert not (tmp_path / "folder").exists()


async def test_a_file_in_the_place_of_the_folder_is_told(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(FailedPreconditionError, match="choose another folder"):
        await download_files(announced(CONTENT), tmp_path / "file", Source(), quiet, here)
