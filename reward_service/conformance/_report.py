"""A report as people, programs and build servers read it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from xml.etree import ElementTree

from rich.console import Console
from rich.text import Text

from reward_service.conformance._ledger import shown
from reward_service.conformance._rule import Level, Status, Verdict
from reward_service.conformance._suite import Report

_WORDS = {Status.PASS: "pass", Status.FAIL: "FAIL", Status.SKIPPED: "skipped", Status.ERROR: "ERROR"}
_STYLES = {Status.PASS: "green", Status.FAIL: "bold red", Status.SKIPPED: "dim", Status.ERROR: "bold magenta"}
_UNMET = "not met"
_INDENT = " " * 9
_NOTE_COLUMN = 32


def print_verdict(console: Console, verdict: Verdict) -> None:
    """One rule as a line, and what is to know of a failure below it."""
    optional_failure = verdict.rule.level is Level.OPTIONAL and verdict.status is Status.FAIL
    word = _UNMET if optional_failure else _WORDS[verdict.status]
    style = "yellow" if optional_failure else _STYLES[verdict.status]
    line = Text.assemble((f"{word:8}", style), f" {verdict.rule.id} {verdict.rule.name}")
    if verdict.status in (Status.PASS, Status.SKIPPED):
        if verdict.text:
            line.pad_right(max(0, _NOTE_COLUMN - len(line)))
            line.append(verdict.text, style="dim")
        console.print(line, soft_wrap=True)
        return
    console.print(line, soft_wrap=True)
    for name, text in (
        ("contract", verdict.rule.sentence),
        ("found", verdict.text),
        ("way out", verdict.way_out),
    ):
        if text:
            console.print(Text(f"{_INDENT}{name:9} {text}"), soft_wrap=True)
    # What is merely not met needs no proof here; --json has it.
    for line_of_exchange in () if optional_failure else verdict.exchange:
        console.print(Text(f"{_INDENT}{line_of_exchange}", style="dim"), soft_wrap=True)


def print_summary(console: Console, report: Report) -> None:
    """Counts, and the sentence that matters."""
    console.print()
    for level in Level:
        verdicts = report.of(level)
        if verdicts:
            console.print(Text(f"{level.value.capitalize()}: {_counts(verdicts, level)}"), soft_wrap=True)
    subject = report.subject
    name = f"{subject.server_name} {subject.server_version}".strip()
    what = f"{subject.address} ({f'{shown(name)}, ' if name else ''}reward {shown(subject.reward)})"
    if report.conforms:
        console.print(Text(f"{what} conforms.", style="bold green"), soft_wrap=True)
    else:
        broken = ", ".join(
            v.rule.id for v in report.of(Level.REQUIRED) if v.status in (Status.FAIL, Status.ERROR)
        )
        console.print(Text(f"{what} does not conform: {broken}.", style="bold red"), soft_wrap=True)


def _counts(verdicts: list[Verdict], level: Level) -> str:
    counts = Counter(verdict.status for verdict in verdicts)
    words = _WORDS | ({Status.FAIL: _UNMET} if level is Level.OPTIONAL else {})
    return ", ".join(f"{counts[status]} {words[status].lower()}" for status in Status if counts[status])


def as_json(report: Report) -> str:
    """One object."""
    return json.dumps(
        {
            "address": report.subject.address,
            "server_name": report.subject.server_name,
            "server_version": report.subject.server_version,
            "reward": report.subject.reward,
            "conforms": report.conforms,
            "seconds": round(report.seconds, 3),
            "rules": [
                {
                    "id": verdict.rule.id,
                    "name": verdict.rule.name,
                    "level": verdict.rule.level.value,
                    "status": verdict.status.value,
                    "contract": verdict.rule.sentence,
                    "text": verdict.text,
                    "way_out": verdict.way_out,
                    "exchange": list(verdict.exchange),
                    "seconds": round(verdict.seconds, 3),
                }
                for verdict in report.verdicts
            ],
        },
        ensure_ascii=False,
        indent=2,
    )


def as_junit(report: Report) -> bytes:
    """A JUnit XML file. An optional rule that is not met is skipped there: it does not fail a build."""
    root = ElementTree.Element("testsuites")
    for level in Level:
        verdicts = report.of(level)
        failures = sum(v.status is Status.FAIL and level is Level.REQUIRED for v in verdicts)
        errors = sum(v.status is Status.ERROR for v in verdicts)
        skipped = len(verdicts) - failures - errors - sum(v.status is Status.PASS for v in verdicts)
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=f"plaudit.reward.v1 {level.value}",
            tests=str(len(verdicts)),
            failures=str(failures),
            errors=str(errors),
            skipped=str(skipped),
            time=f"{sum(v.seconds for v in verdicts):.3f}",
        )
        for verdict in verdicts:
            _case(suite, verdict)
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))


def _case(suite: ElementTree.Element, verdict: Verdict) -> None:
    rule = verdict.rule
    case = ElementTree.SubElement(
        suite,
        "testcase",
        classname=f"plaudit.reward.v1.{rule.level.value}",
        name=f"{rule.id} {rule.name}",
        time=f"{verdict.seconds:.3f}",
    )
    text = _valid_in_xml(verdict.text)
    match verdict.status:
        case Status.SKIPPED:
            ElementTree.SubElement(case, "skipped", message=text)
        case Status.FAIL if rule.level is Level.OPTIONAL:
            ElementTree.SubElement(case, "skipped", message=f"{_UNMET}: {text}")
        case Status.FAIL:
            ElementTree.SubElement(case, "failure", message=text).text = _body(verdict)
        case Status.ERROR:
            ElementTree.SubElement(case, "error", message=text).text = _body(verdict)
        case Status.PASS if text:
            ElementTree.SubElement(case, "system-out").text = text


def _body(verdict: Verdict) -> str:
    return _valid_in_xml("\n".join(_lines(verdict)))


def _lines(verdict: Verdict) -> Iterator[str]:
    yield f"contract: {verdict.rule.sentence}"
    yield f"found: {verdict.text}"
    if verdict.way_out:
        yield f"way out: {verdict.way_out}"
    yield from verdict.exchange


def _valid_in_xml(text: str) -> str:
    """XML 1.0 has no control characters, not even escaped ones."""
    return "".join(
        c if c in "\t\n\r" or " " <= c <= "\ud7ff" or "\ue000" <= c <= "\ufffd" or c > "\uffff" else "\ufffd"
        for c in text
    )
