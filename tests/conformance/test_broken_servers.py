"""Each planted fault is found by the rule that names it, and no other required rule is broken by it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from broken_batches import MakesNumbersFloats
from broken_results import Trickles
from broken_servers import FAULTS
from correct_server import CorrectServer, start

from reward_service.conformance import (
    REQUIRED_RULES,
    Expected,
    Report,
    Row,
    Settings,
    Status,
    Target,
    run_suite,
)

SILENCE_SECONDS = 6.0
AT_ONCE = 12

ROW = Row(
    (("user", "What is 6 times 12?"),),
    {"answer": 72},
    (Expected("it is 72", 1.0), Expected("it is 71", 0.0)),
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

Runs = dict[str, "asyncio.Task[Report]"]


async def examine(server_type: type[CorrectServer]) -> Report:
    """All required rules, and the one that the fault breaks."""
    server, port = await start(server_type())
    try:
        rules = [rule.id for rule in REQUIRED_RULES] + [server_type.breaks] * bool(server_type.breaks)
        # Rows with expected scores would find every fault that changes a score.
        rows = [ROW] if server_type in (CorrectServer, MakesNumbersFloats) else []
        timeout = SILENCE_SECONDS / 2 if server_type is Trickles else SILENCE_SECONDS
        return await run_suite(
            Settings(Target(f"127.0.0.1:{port}"), rows=rows, timeout=timeout, quick=True, rules=rules)
        )
    finally:
        await server.stop(0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def runs() -> AsyncIterator[Runs]:
    """All at once: most of the time goes by in waiting for servers that are silent."""
    room = asyncio.Semaphore(AT_ONCE)

    async def in_turn(server_type: type[CorrectServer]) -> Report:
        async with room:
            return await examine(server_type)

    # The one that takes longest begins.
    in_order = sorted(FAULTS.items(), key=lambda fault: fault[1] is not Trickles)
    tasks = {name: asyncio.create_task(in_turn(found)) for name, found in in_order}
    yield tasks
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)


def broken(report: Report) -> list[str]:
    return [v.rule.id for v in report.verdicts if v.status in (Status.FAIL, Status.ERROR)]


async def test_there_are_faults_enough() -> None:
    assert len(FAULTS) >= 18
    required = {rule.id for rule in REQUIRED_RULES}
    assert {found.breaks for found in FAULTS.values()} >= required


@pytest.mark.parametrize("name", sorted(FAULTS))
async def test_the_rule_that_names_the_fault_finds_it(name: str, runs: Runs) -> None:
    report = await runs[name]
    breaks = FAULTS[name].breaks
    assert broken(report) == [breaks], report.verdicts
    (verdict,) = [v for v in report.verdicts if v.rule.id == breaks]
    assert verdict.status is Status.FAIL
    assert verdict.text
    assert verdict.way_out
    assert report.conforms is breaks.startswith("O")


async def test_the_server_without_a_fault_passes() -> None:
    report = await examine(CorrectServer)
    assert broken(report) == []
    assert report.conforms
    statuses = {v.rule.id: v.status for v in report.verdicts}
    assert statuses.pop("R33") is Status.SKIPPED  # it takes no config
    assert set(statuses.values()) == {Status.PASS}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("LosesAResult", ["results did not come", "0-0"]),
        ("DoublesAResult", ["a second result", "then score"]),
        ("TrimsIds", ['"Id with blanks"']),
        ("OutsideItsRange", ["7 is outside of the declared range 0 to 1"]),
        ("CountsCompletionsOnly", ["which is 5", "are 6"]),
        ("MakesNumbersFloats", ["expected score 1, got score 0"]),
        ("SilentOnOpen", [f"the answer to open did not come within {SILENCE_SECONDS:g} s"]),
        ("Floods", ["frames came where"]),
        ("Trickles", ["results did not come"]),
    ],
)
async def test_a_finding_says_what_was_seen(name: str, words: list[str], runs: Runs) -> None:
    report = await runs[name]
    (verdict,) = [v for v in report.verdicts if v.rule.id == FAULTS[name].breaks]
    for word in words:
        assert word in verdict.text
    assert verdict.exchange
    assert any("  C  open session" in line or "  C  batch" in line for line in verdict.exchange)


async def test_what_depends_on_a_broken_rule_is_skipped_and_says_why(runs: Runs) -> None:
    silent = {v.rule.id: v for v in (await runs["SilentOnBatches"]).verdicts}
    assert silent["R17"].status is Status.SKIPPED
    assert "the plain conversation" in silent["R17"].text
    nameless = {v.rule.id: v for v in (await runs["NoServerInfo"]).verdicts}
    assert {v.status for id, v in nameless.items() if id != "R01"} == {Status.SKIPPED}
    assert "UNIMPLEMENTED" in nameless["R01"].text
