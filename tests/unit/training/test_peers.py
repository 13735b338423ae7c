"""What reward servers do wrong is told at once, then seldom, and counted for each step."""

import os

import pytest

from plaudit.scoring import CAUSES, PROTOCOL_ERRORS, ProtocolCounters
from trainer_service.control import RunControl
from trainer_service.journal import JournalReader, JournalWriter, LogLine
from trainer_service.training.peers import TELL_AGAIN_SECONDS, PeerWatch
from trainer_service.training.reporting import RunReporter


class Facts:
    def __init__(self):
        self.counters = ProtocolCounters()
        self.versions = {"judge": "1"}

    def counters_by_server(self):
        return {"judge": self.counters.copy()}

    def counters_by_reward(self):
        return {"tone": self.counters.copy(), "truth": self.counters.copy()}

    def server_versions(self):
        return dict(self.versions)


class Bench:
    def __init__(self, folder):
        self.facts, self.now = Facts(), 1_000.0
        self._folder = folder
        self._fds = os.pipe()
        self._journal = JournalWriter(folder)
        reporter = RunReporter(self._journal, RunControl(*self._fds))
        self.peers = PeerWatch(self.facts, reporter, clock=lambda: self.now)

    def told(self):
        with JournalReader(self._folder) as reader:
            return [r.entry for r in reader.read_after(0, 1_000) if isinstance(r.entry, LogLine)]

    def close(self):
        self._journal.close()
        for fd in self._fds:
            os.close(fd)


@pytest.fixture
def bench(tmp_path):
    bench = Bench(tmp_path)
    yield bench
    bench.close()


def test_a_cause_is_told_at_once_and_then_once_in_a_while(bench):
    bench.peers.look()
    assert bench.told() == []
    bench.facts.counters.late = 3
    bench.peers.look()
    (line,) = bench.told()
    assert line.level == "warning"
    assert "judge breaks its contract: 3 results that came too late;" in line.message
    assert line.fields == {"kind": "protocol_errors", "server": "judge", "causes": {"late": 3}}
    for _ in range(50):
        bench.facts.counters.late += 1
        bench.now += TELL_AGAIN_SECONDS / 100
        bench.peers.look()
    assert len(bench.told()) == 1
    bench.now += TELL_AGAIN_SECONDS / 2
    bench.peers.look()
    assert bench.told()[1].fields["causes"] == {"late": 50}


def test_a_new_cause_does_not_wait_for_an_old_one(bench):
    bench.facts.counters.late = 1
    bench.peers.look()
    bench.facts.counters.late = 2
    bench.facts.counters.unknown = 1
    bench.peers.look()
    assert bench.told()[1].fields["causes"] == {"late": 1, "unknown": 1}


def test_the_rest_is_told_at_the_end(bench):
    bench.facts.counters.late = 1
    bench.peers.look()
    bench.facts.counters.late = 5
    bench.peers.look()
    assert len(bench.told()) == 1
    bench.peers.look(at_end=True)
    assert bench.told()[1].fields["causes"] == {"late": 4}
    bench.peers.look(at_end=True)
    assert len(bench.told()) == 2


def test_what_networks_do_is_no_breach_of_contract(bench):
    bench.facts.counters.breaks = bench.facts.counters.resends = 1
    bench.peers.look()
    (line,) = bench.told()
    assert line.message.startswith("trouble with reward server judge: 1 connections that ended")
    assert line.fields["kind"] == "reward_server_trouble"


def test_other_values_for_the_same_completion_are_told_by_themselves(bench):
    bench.facts.counters.doubled, bench.facts.counters.differing = 2, 1
    bench.peers.look()
    assert [line.fields["kind"] for line in bench.told()] == ["protocol_errors", "non_determinism"]
    assert bench.told()[1].fields["count"] == 1


def test_a_new_version_is_told(bench):
    bench.peers.look()
    bench.facts.versions["judge"] = "2"
    bench.peers.look()
    bench.peers.look()
    assert [line.message for line in bench.told()] == [
        "reward server judge changed from version 1 to 2 in mid-run"
    ]


def test_the_metric_counts_since_the_last_step(bench):
    bench.facts.counters.late, bench.facts.counters.breaks = 3, 7
    assert bench.peers.step_metrics() == {
        "reward/tone/protocol_errors": 3.0,
        "reward/truth/protocol_errors": 3.0,
    }
    bench.facts.counters.empty = 2
    assert bench.peers.step_metrics()["reward/tone/protocol_errors"] == 2.0
    assert bench.peers.step_metrics()["reward/tone/protocol_errors"] == 0.0


def test_every_cause_has_its_words_and_its_counter():
    assert set(CAUSES) == set(ProtocolCounters.__slots__)
    assert set(PROTOCOL_ERRORS) | {"rejected", "breaks", "resends", "retries", "set_aside"} == set(CAUSES)
