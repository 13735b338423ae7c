"""A checkpoint is complete or not there; what is damaged is refused; the newest stay."""

import json

import pytest

from trainer_service.journal import CheckpointRemoved, CheckpointSaved
from trainer_service.training.checkpoints import CheckpointError, CheckpointStore, open_checkpoint


def store(root, told, attempt=1, keep=2):
    return CheckpointStore(root, job_id="job", attempt=attempt, keep=keep, announce=told.append)


def write(text):
    def files(folder):
        (folder / "model.safetensors").write_text(text)
        (folder / "inner").mkdir()
        (folder / "inner" / "optimizer.pt").write_text(text * 2)

    return files


def test_it_appears_whole(tmp_path):
    told = []

    def look_while_writing(folder):
        write("weights")(folder)
        assert not list(tmp_path.glob("jobs/job/attempt-1/checkpoint-*"))
        assert not told

    store(tmp_path, told).save(7, 28, look_while_writing)
    (saved,) = told
    assert saved.uri == "jobs/job/attempt-1/checkpoint-000007"
    checkpoint = open_checkpoint(tmp_path, saved.uri)
    assert (checkpoint.step, checkpoint.prompts_consumed) == (7, 28)
    assert checkpoint.folder == tmp_path / saved.uri


def test_a_crash_while_writing_leaves_nothing_that_looks_like_one(tmp_path):
    told = []

    def crash(folder):
        write("weights")(folder)
        raise OSError("disk is gone")

    with pytest.raises(OSError):
        store(tmp_path, told).save(7, 28, crash)
    assert not told and not list(tmp_path.glob("jobs/job/attempt-1/checkpoint-*"))
    store(tmp_path, told).save(7, 28, write("again"))
    assert open_checkpoint(tmp_path, told[0].uri).step == 7


def test_the_newest_of_all_attempts_stay(tmp_path):
    told = []
    for step in (2, 4, 6):
        store(tmp_path, told, attempt=1).save(step, 4 * step, write("a"))
    # The second attempt went on from step 4 and is newer in all that it writes.
    store(tmp_path, told, attempt=2).save(5, 20, write("b"))
    store(tmp_path, told, attempt=2).save(10, 40, write("c"))
    removed = [(e.uri, e.step) for e in told if isinstance(e, CheckpointRemoved)]
    assert removed == [
        ("jobs/job/attempt-1/checkpoint-000002", 2),
        ("jobs/job/attempt-1/checkpoint-000004", 4),
        ("jobs/job/attempt-1/checkpoint-000006", 6),
    ]
    left = sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.glob("jobs/job/*/*"))
    assert left == [f"jobs/job/attempt-2/checkpoint-{step:06d}" for step in (5, 10)]


def test_a_removal_is_told_before_the_files_go(tmp_path):
    told = []

    def announce(entry):
        if isinstance(entry, CheckpointRemoved):
            assert (tmp_path / entry.uri).exists()
        told.append(entry)

    one = CheckpointStore(tmp_path, job_id="job", attempt=1, keep=1, announce=announce)
    one.save(1, 4, write("a"))
    one.save(2, 8, write("b"))
    assert [type(e) for e in told] == [CheckpointSaved, CheckpointSaved, CheckpointRemoved]
    assert not (tmp_path / told[0].uri).exists()


@pytest.mark.parametrize("name", ["model.safetensors", "inner/optimizer.pt", "manifest.json"])
@pytest.mark.parametrize("damage", ["change", "remove"])
def test_a_damaged_one_is_refused(tmp_path, name, damage):
    told = []
    store(tmp_path, told).save(3, 12, write("weights"))
    path = tmp_path / told[0].uri / name
    if damage == "change":
        path.write_text(path.read_text()[:-3])
    else:
        path.unlink()
    with pytest.raises(CheckpointError) as error:
        open_checkpoint(tmp_path, told[0].uri)
    assert name in error.value.message and told[0].uri in error.value.message


@pytest.mark.parametrize("uri", ["../elsewhere", "jobs/../../elsewhere", "/etc"])
def test_nothing_outside_of_the_artifact_root_is_opened(tmp_path, uri):
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "manifest.json").write_text(json.dumps({"step": 1, "files": {}}))
    with pytest.raises(CheckpointError, match="outside"):
        open_checkpoint(root, uri)


def test_a_superseded_attempt_removes_nothing_more(tmp_path):
    told = []
    old = store(tmp_path, told, attempt=1, keep=1)
    old.save(2, 8, write("a"))
    # The second attempt is told to start from step 2 while the first still runs, out of reach.
    store(tmp_path, [], attempt=2, keep=1)
    old.save(4, 16, write("a"))
    assert [e for e in told if isinstance(e, CheckpointRemoved)] == []
    assert open_checkpoint(tmp_path, "jobs/job/attempt-1/checkpoint-000002").step == 2


def test_what_a_killed_process_left_is_cleared_away(tmp_path):
    first = store(tmp_path, [], attempt=1)
    first.save(2, 8, write("a"))
    folder = tmp_path / "jobs/job/attempt-1"
    for name in (".checkpoint-000004.unfinished", ".checkpoint-000001.removed"):
        (folder / name).mkdir()
        (folder / name / "half").write_text("x")
    told = []
    store(tmp_path, told, attempt=2).save(4, 16, write("b"))
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoint-000002"]
    assert [type(e) for e in told] == [CheckpointSaved]


def test_a_removal_that_was_cut_off_does_not_stop_the_next(tmp_path):
    told = []
    one = store(tmp_path, told, keep=1)
    one.save(2, 8, write("a"))
    doomed = tmp_path / "jobs/job/attempt-1/.checkpoint-000002.removed"
    doomed.mkdir()
    (doomed / "half").write_text("x")
    one.save(4, 16, write("b"))
    assert sorted(path.name for path in doomed.parent.iterdir()) == ["checkpoint-000004"]
