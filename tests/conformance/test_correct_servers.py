"""Correct servers pass, as processes, by the command that their authors run."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from xml.etree import ElementTree

from conformance_process import PLAUDIT, Served, conformance

from reward_service.conformance import OPTIONAL_RULES, REQUIRED_RULES

ROWS = [
    {
        "prompt": "What is 6 times 12?",
        "answer": 72,
        "expected": [
            {"completion": "<answer>72</answer>", "score": 1.0},
            {"completion": "<answer>72.0</answer>", "score": 1.0},
            {"completion": "<answer>71</answer>", "score": 0.0},
        ],
    },
    {
        "prompt": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "The capital of Peru?"},
        ],
        "answer": "Lima",
        "expected": [{"completion": "<answer> Lima </answer>", "score": 1.0}],
    },
]


async def test_the_built_in_server_keeps_every_rule_until_it_is_drained(
    builtin: Served, tmp_path: Path
) -> None:
    rows, junit = tmp_path / "rows.jsonl", tmp_path / "junit.xml"
    rows.write_text("\n".join(map(json.dumps, ROWS)))
    ran = await conformance(
        builtin.address, "--reward", "exact_answer", "--rows", str(rows), "--quick", "--json",
        "--junit", str(junit), "--drain-pid", str(builtin.process.pid),
    )  # fmt: skip
    assert (ran.status, ran.err) == (0, "")
    assert ran.report["conforms"]
    assert ran.report["server_name"] == "plaudit-builtin"
    assert ran.ids("pass", "required") == {rule.id for rule in REQUIRED_RULES}
    # It takes frames larger than are sent here, and --quick leaves out the minute of silence.
    left_out = {"O19", "O26"}
    assert ran.ids("skipped") == left_out
    assert ran.ids("pass", "optional") == {rule.id for rule in OPTIONAL_RULES} - left_out
    assert await asyncio.wait_for(builtin.process.wait(), 30) == 0
    suites = ElementTree.parse(junit).getroot().findall("testsuite")
    assert [suite.get("name") for suite in suites] == [
        "plaudit.reward.v1 required",
        "plaudit.reward.v1 optional",
    ]
    assert [suite.get("tests") for suite in suites] == [str(len(REQUIRED_RULES)), str(len(OPTIONAL_RULES))]
    assert [suite.get("failures") for suite in suites] == ["0", "0"]


async def test_the_server_of_forty_lines_keeps_every_required_rule(minimal: Served, tmp_path: Path) -> None:
    junit = tmp_path / "junit.xml"
    ran = await conformance(minimal.address, "--quick", "--json", "--junit", str(junit), command=PLAUDIT)
    assert (ran.status, ran.err) == (0, "")
    assert ran.report["conforms"]
    assert ran.ids("fail", "required") == ran.ids("error") == set()
    # It takes no config, and no rows with expected scores were given.
    assert ran.ids("skipped", "required") == {"R33", "R34"}
    # What it does not announce is not held against it.
    assert ran.ids("skipped", "optional") >= {"O02", "O03", "O05", "O07", "O10", "O22", "O23", "O28"}
    assert ran.ids("fail", "optional") >= {"O01", "O08", "O12", "O13"}
    required, optional = ElementTree.parse(junit).getroot().findall("testsuite")
    assert (required.get("failures"), optional.get("failures")) == ("0", "0")
    unmet = [case for case in optional if (case.find("skipped") is not None)]
    assert any("not met: empty: server_name" in case[0].get("message", "") for case in unmet)
