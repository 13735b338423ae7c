"""What the gateway benchmark makes of what its watchers saw."""

import pytest
from gateway_load.watchers import _STEP_AND_CLOCK, Watcher, in_time, latencies
from gateway_load.watching import _figures


def test_a_watcher_counts_what_is_lost_doubled_or_out_of_order():
    watcher = Watcher()
    for step in (7, 8, 9, 9, 11, 12):
        watcher.take(step, 1.0, 1.5)
    assert watcher.broken == 2


def test_only_what_was_written_within_the_turn_counts():
    watcher = Watcher()
    for written_at, now in ((9.9, 10.0), (10.0, 10.1), (10.5, 10.9), (11.0, 11.1)):
        watcher.take(watcher.step + 1, written_at, now)
    assert in_time(watcher, 10.0, 1.0) == pytest.approx([0.1, 0.4])
    assert latencies([watcher], 10.0, 1.0) == pytest.approx({"count": 2, "p50": 0.4, "p99": 0.4, "max": 0.4})


def test_steps_are_found_in_a_stream_as_the_gateway_writes_it():
    one = b'data: {"step_metrics":{"step":%d,"attempt":1,"values":{"a":1.5,"clock":%s,"b":"NaN"}}}\r\n'
    stream = one % (3, b"1790000000.25") + one % (4, b"1.79e9")
    assert _STEP_AND_CLOCK.findall(stream) == [(b"3", b"1790000000.25"), (b"4", b"1.79e9")]


def test_stopped_readers_are_judged_against_the_turn_before():
    def turn(p99, broken=0):
        wire = {"count": 10, "p50": 0.1, "p99": p99, "max": 1.0}
        return {"sse": wire, "grpc": wire, "broken": broken, "busy": 0.4}

    turns = {"without": [turn(0.2), turn(0.1)], "with": [turn(0.2), turn(0.2, broken=1)]}
    figures = {figure.bar: figure for figure in _figures(turns, 80.0, [0.5])}
    assert figures["gateway/watchers/sse"].value == pytest.approx(0.15)
    assert figures["gateway/watchers/sse/stopped_readers"].value == pytest.approx(1.5)
    assert figures["gateway/watchers/memory"].verdict() is True
    assert figures["gateway/watchers/readers_cpu"].value == pytest.approx(0.4)
    assert figures["gateway/watchers/out_of_order"].verdict() is False
