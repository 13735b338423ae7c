"""A run that makes no step any more says so, and one that is merely slow does not."""

from __future__ import annotations

from trainer_service.progress import Progress


def progress(*done_at: float) -> Progress:
    noted = Progress()
    for step, at in enumerate(done_at, start=1):
        noted.note(step, at)
    return noted


def test_a_step_is_late_after_ten_times_the_usual_and_twenty_seconds() -> None:
    quick = progress(100.0, 100.5, 101.0, 101.5)
    assert quick.trouble(121.4) == ""
    assert "(21 s; a step took 0.5 s)" in quick.trouble(122.4)
    slow = progress(0.0, 30.0, 60.0, 1000.0)
    assert slow.trouble(1299.0) == ""
    assert "(301 s; a step took 30 s)" in slow.trouble(1301.0)


def test_the_next_step_ends_the_trouble() -> None:
    noted = progress(0.0, 1.0, 2.0)
    assert noted.trouble(60.0)
    noted.note(3, 60.0)
    assert noted.trouble(60.0)
    noted.note(4, 60.0)
    assert noted.trouble(60.5) == ""


def test_steps_that_are_heard_of_together_count_as_that_many() -> None:
    noted = progress(0.0)
    noted.note(11, 40.0)
    assert noted.trouble(79.0) == ""
    assert "a step took 4 s" in noted.trouble(81.0)


def test_nothing_is_said_before_there_is_a_usual_step() -> None:
    assert Progress().trouble(1e6) == ""
    assert progress(5.0).trouble(1e6) == ""
