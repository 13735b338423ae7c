"""The examples of docs/rewards are true: every row of a table with a column `value` is scored.

A cell in backticks is what it says: `text` and `prefill` as they are, `column` and `config` as JSON. The
config of a row goes on top of the indented JSON above its table.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from plaudit.types.scoring import Completion, Failed, FinishReason, NotApplicable, Outcome, Prompt, Scored
from reward_service import Item, Reward
from reward_service.rewards import builtin_rewards
from reward_service.settings import MathSettings, RewardSettings

PAGES = Path(__file__).resolve().parents[3] / "docs" / "rewards"
NAMES = ("format_check", "exact_answer", "math_answer", "length_penalty", "repetition_penalty")


@dataclass(frozen=True)
class Example:
    row: str
    cells: dict[str, str]
    config: dict[str, Any]


def examples_on(page: str) -> Iterator[Example]:
    header: list[str] | None = None
    config: dict[str, Any] = {}
    for line in page.splitlines():
        if line.startswith("#"):
            config = {}
        elif line.startswith("    {"):
            config = json.loads(line)
        if not line.startswith("|"):
            header = None
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if header is None:
            header = cells
        elif "value" in header and not line.startswith("| ---"):
            named = {name: cell for name, cell in zip(header, cells, strict=True) if name}
            yield Example(line, named, {**config, **json.loads(code(named.get("config", "")) or "{}")})


def code(cell: str) -> str:
    match = re.fullmatch("`([^`]*)`", cell)
    assert match or not cell, f"{cell} is no code"
    return match.group(1) if match else ""


def number(cell: str) -> float:
    return float(Fraction(re.split("[=≈]", cell)[0].strip().replace("\N{MINUS SIGN}", "-")))


EXAMPLES = [
    pytest.param(name, example, id=f"{name}: {example.row}")
    for name in NAMES
    for example in examples_on((PAGES / f"{name}.md").read_text())
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def rewards() -> AsyncIterator[dict[str, Reward]]:
    settings = RewardSettings(math=MathSettings(workers=1))
    async with builtin_rewards(settings) as opened:
        yield {reward.name: reward for reward in opened}


async def outcome(reward: Reward, example: Example) -> Outcome:
    cells = example.cells
    columns = {"answer": json.loads(code(cells["column"]))} if cells.get("column") else {}
    completion = Completion(
        "c",
        code(cells.get("text", "`text`")),
        int(cells.get("token_count", "1")),
        FinishReason.LENGTH if cells.get("truncated") else FinishReason.STOP,
        code(cells.get("prefill", "")),
    )
    config = reward.config.read(json.dumps(example.config), "config")
    (result,) = await reward.score([Item(Prompt("g", (), columns), completion, config)])
    return result


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("name", "example"), EXAMPLES)
async def test_an_example_is_true(rewards: dict[str, Reward], name: str, example: Example) -> None:
    result = await outcome(rewards[name], example)
    told = example.cells["value"]
    if told == "not applicable":
        assert isinstance(result, NotApplicable)
    elif told.isupper():
        assert isinstance(result, Failed)
        assert result.code == told.lower()
    else:
        assert isinstance(result, Scored), result
        assert math.isclose(result.value, number(told), abs_tol=1e-9)
        if example.cells.get("explanation", "").startswith("`"):
            assert result.explanation == code(example.cells["explanation"])
        points = [example.cells[part] for part in ("present", "once", "in order") if part in example.cells]
        if points:
            assert [2 * share for share in result.metrics.values()] == [float(point) for point in points]
    if "different" in example.cells:
        assert isinstance(result, Scored)
        total, different = int(example.cells["n-grams"]), int(example.cells["different"])
        share = (total - different) / total if total else 0.0
        assert result.metrics["repeated_share"] == pytest.approx(share)


@pytest.mark.asyncio(loop_scope="module")
async def test_every_setting_of_a_config_stands_in_its_table_with_its_default(
    rewards: dict[str, Reward],
) -> None:
    for name in NAMES:
        page = (PAGES / f"{name}.md").read_text()
        table = page.split("| config | default | |\n", 1)[1].split("\n\n", 1)[0]
        rows = re.findall(r"^\| `(\w+)` \|(.*?)\|", table, re.MULTILINE)
        told = {field: default.strip() for field, default in rows}
        schema = json.loads(rewards[name].config.schema_json)
        assert set(told) == set(schema["properties"])
        for field, described in schema["properties"].items():
            assert described["description"]
            if field in schema.get("required", ()):
                assert told[field] == "required"
            elif described["default"] is not None:
                assert json.loads(code(told[field])) == described["default"], field
            else:
                assert told[field] == ""


def test_every_page_is_listed_and_every_link_leads_somewhere() -> None:
    listed = (PAGES / "README.md").read_text()
    for name in NAMES:
        assert f"[{name}]({name}.md)" in listed
        page = (PAGES / f"{name}.md").read_text()
        for link in re.findall(r"\]\((?!http|#)([^)#]+)", page):
            assert (PAGES / link).exists(), link
