"""What step_time makes of the turns that it measured."""

from collections import Counter

import pytest
from against_trl.reward import earliest_end, scoring_seconds
from against_trl.work import STAGES, planned_lengths
from step_time import Case, figures, unavoidable_wait


def turn(step, *, generation=1.0, reference_forward=0.5, score_wait=0.0, scoring_seconds=0.0, lengths=None):
    lengths = planned_lengths("ragged") if lengths is None else lengths
    return {
        "step": step,
        "step_cpu": step,
        **dict.fromkeys((*STAGES, "rest"), 0.1),
        **{f"{stage}_cpu": 0.1 for stage in (*STAGES, "rest")},
        "generation": generation,
        "reference_forward": reference_forward,
        "score_wait": score_wait,
        "scoring_seconds": scoring_seconds,
        "queue": [(0.5, scoring_seconds)],
        "score_wait_began": 1.5,
        "lengths": lengths,
        "tokens": sum(lengths),
        "peak_rss_bytes": 2**30,
        "added_rss_bytes": 2**29,
        "peak_tensor_bytes": 2**28,
    }


def by_bar(reward, ours, rival):
    case = Case("case", "ragged", 23, reward, 0.5, repeats=len(ours))
    return {figure.bar: figure for figure in figures(case, ours, rival)}


def test_step_time_is_judged_by_its_paired_ratio():
    found = by_bar("quick", [turn(2), turn(3), turn(9)], [turn(4), turn(5), turn(10)])
    bar = found["step_time/case"]
    assert (bar.value, bar.verdict(), bar.ours, bar.rival) == (0.6, False, 3, 5)
    assert found["step_time/case/unlike_work"].verdict() is True
    assert "step_time/case/wait_beyond_unavoidable" not in found


def test_memory_is_judged_by_the_peak_of_the_process():
    ours = [{**turn(2), "peak_rss_bytes": 91 * 2**20}, {**turn(2), "peak_rss_bytes": 92 * 2**20}]
    rival = [{**turn(4), "peak_rss_bytes": 100 * 2**20}] * 2
    found = by_bar("quick", ours, rival)
    peak = found["step_time/case/peak_rss"]
    assert (peak.value, peak.ours, peak.rival, peak.verdict()) == (0.92, 92, 100, False)
    for bar, mebibytes in (("added_rss", 512), ("peak_tensor", 256)):
        figure = found[f"step_time/case/{bar}"]
        assert (figure.value, figure.ours, figure.verdict()) == (1.0, mebibytes, None)


def test_one_completion_of_another_length_is_told():
    lengths = planned_lengths("ragged")
    odd = turn(2, lengths=[*lengths[:-1], lengths[-1] - 1])
    assert by_bar("quick", [odd], [turn(4)])["step_time/case/unlike_work"].verdict() is False
    assert by_bar("quick", [turn(2)], [odd])["step_time/case/unlike_work"].verdict() is False


def test_what_scoring_cannot_hide():
    # 64 completions of half a second, 16 at once, take 2 s; 1.5 s of them pass while the trainer works.
    assert unavoidable_wait(turn(5, scoring_seconds=32.0)) == pytest.approx(0.5)
    assert unavoidable_wait(turn(5, scoring_seconds=16.0)) == 0.0


def test_scores_queue_for_sixteen_places():
    # 16 at once: the first 16 are done at 1 s. The 17th waits for a place, the 18th comes when all are free.
    at_once = [(0.0, 1.0)] * 16
    assert earliest_end(at_once) == 1.0
    assert earliest_end([*at_once, (0.25, 0.5)]) == 1.5
    assert earliest_end([(4.0, 0.5), *at_once, (0.25, 0.5)]) == 4.5


def test_wait_against_the_queue():
    # One completion is there at 0.5 s and takes 1.25 s; the trainer begins to wait at 1.5 s.
    ours = [turn(5, score_wait=0.3, scoring_seconds=1.25)]
    figure = by_bar("slow", ours, [turn(10)])["step_time/case/wait_beyond_queue"]
    assert (figure.value, figure.more["queue"]) == (pytest.approx(0.05), 0.25)
    assert figure.verdict() is None


@pytest.mark.parametrize(
    ("step", "score_wait", "holds"),
    # Unavoidable are 0.5 s.
    [(5.0, 0.79, True), (5.0, 0.81, False), (17.0, 0.81, True)],
)
def test_waiting_holds_by_its_excess_or_by_its_share(step, score_wait, holds):
    ours = [turn(step, score_wait=score_wait, scoring_seconds=32.0)]
    waiting = by_bar("slow", ours, [turn(10)])["step_time/case/wait_beyond_unavoidable"]
    assert waiting.value == pytest.approx(score_wait - 0.5)
    assert waiting.verdict() is holds


def test_ragged_lengths_are_those_of_a_constant_stop_chance():
    lengths = planned_lengths("ragged")
    assert len(lengths) == 64
    # 0.98 ** 63 = 0.280 of all reach the maximum of 64 tokens, 0.98 ** 32 = 0.524 pass 32: 17.9 and 33.5.
    assert Counter(lengths)[64] == 18
    assert sum(length > 32 for length in lengths) == 34
    assert lengths == sorted(lengths) and lengths[0] == 2
    assert planned_lengths("even") == [64] * 64


def test_a_slow_score_takes_a_quarter_to_seven_tenths_of_a_second():
    seconds = [scoring_seconds(f"w{i} w{i + 1}") for i in range(1000)]
    assert (min(seconds), max(seconds)) == (0.25, pytest.approx(0.7))
    assert sum(seconds) / 1000 == pytest.approx(0.475, abs=0.02)
