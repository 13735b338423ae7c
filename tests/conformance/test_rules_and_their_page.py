"""The rules quote the contract, and docs/conformance.md tells of each of them."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from reward_service.conformance import (
    OPTIONAL_RULES,
    REQUIRED_RULES,
    Level,
    Report,
    Rule,
    Status,
    Verdict,
    as_junit,
)
from reward_service.conformance._faults import Fault
from reward_service.conformance._ledger import Ledger, Range
from reward_service.conformance._suite import Subject
from reward_service.conformance.rules.opening import bad_configs

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/conformance.md").read_text()
EVERY = [*REQUIRED_RULES, *OPTIONAL_RULES]


def words_of(text: str) -> str:
    return " ".join(re.sub(r"^\s*(//|-|\d\.) ?", " ", line) for line in text.splitlines())


CONTRACT = re.sub(
    r"\s+",
    " ",
    words_of(
        re.sub(r"//\s*(\d\.|-) ", "// ", (ROOT / "protos/plaudit/reward/v1/reward_service.proto").read_text())
    )
    + words_of((ROOT / "protos/README.md").read_text()).replace("**", ""),
)


@pytest.mark.parametrize("rule", EVERY, ids=lambda rule: rule.id)
def test_every_rule_quotes_the_contract(rule: Rule) -> None:
    assert rule.sentence in CONTRACT


@pytest.mark.parametrize("rule", EVERY, ids=lambda rule: rule.id)
def test_every_rule_has_a_row_in_its_page(rule: Rule) -> None:
    assert re.search(rf"^\| {rule.id} \| {rule.name} \| .{{20,}} \|$", PAGE, re.MULTILINE)


def test_ids_and_names_are_unique_and_in_order() -> None:
    for rules, letter, level in (
        (REQUIRED_RULES, "R", Level.REQUIRED),
        (OPTIONAL_RULES, "O", Level.OPTIONAL),
    ):
        assert [rule.id for rule in rules] == [f"{letter}{n:02}" for n in range(1, len(rules) + 1)]
        assert {rule.level for rule in rules} == {level}
    assert len({rule.name for rule in EVERY}) == len(EVERY)
    assert set(re.findall(r"^\| ([RO]\d\d) \|", PAGE, re.MULTILINE)) == {rule.id for rule in EVERY}


def test_junit_is_valid_whatever_a_server_said() -> None:
    texts = ["\x00\x1b\ufffe\uffff", "<&>]]>\"'", "\U0001f680 ok", ""]
    verdicts = [
        Verdict(rule, status, text, 0.5, [text], text)
        for rule in (REQUIRED_RULES[0], OPTIONAL_RULES[0])
        for status in Status
        for text in texts
    ]
    suites = ElementTree.fromstring(as_junit(Report(Subject("127.0.0.1:1"), verdicts, 8.0)))
    counts = [
        tuple(suite.get(name) for name in ("tests", "failures", "errors", "skipped")) for suite in suites
    ]
    assert counts == [("16", "4", "4", "4"), ("16", "0", "4", "8")]
    assert [len(suite.findall("testcase")) for suite in suites] == [16, 16]
    assert "\U0001f680 ok" in as_junit(Report(Subject(""), verdicts, 8.0)).decode()


def test_a_config_that_the_schema_refuses_is_found() -> None:
    schema = '{"properties": {"tag": {"type": "string"}}, "required": ["tag"], "type": "object"}'
    assert list(bad_configs(schema, '{"tag": "answer"}')) == ['{"', "[1]", '{"tag": null}']
    assert list(bad_configs('{"additionalProperties": false}', "")) == [
        '{"',
        "[1]",
        '{"no_such_setting": null}',
    ]
    assert list(bad_configs("{}", "")) == ['{"', "[1]"]  # anything goes


def test_what_is_kept_of_a_flood_is_bounded() -> None:
    ledger = Ledger({"k": Range()})
    assert ledger.take(b"\xff\xff") is None
    for _ in range(5_000):
        ledger.take(b"\xff\xff")
    assert ledger.faults == {Fault.UNREADABLE, Fault.FLOOD}
    assert ledger.told(Fault.UNREADABLE).count("is no ScoreResponse") == 3
    assert "more like it" in ledger.told(Fault.UNREADABLE)
