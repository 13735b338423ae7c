"""The pages on hyperparameters say what the types say, and name tests that exist."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.sft_hyperparameters import SftHyperparameters

ROOT = Path(__file__).parents[3]
GRPO_PAGE = ROOT / "docs" / "hyperparameters.md"
SFT_PAGE = ROOT / "docs" / "sft.md"
ACT = "tests/unit/training/test_hyperparameters_act.py"
REFUSED = {"rollout_engine"}
"""Of it only what comes to the same is honoured; test_job_validation.py has the refusal."""


def table(page: Path) -> dict[str, tuple[str, str]]:
    """Default and tests by hyperparameter, of the page's only table that has them."""
    rows = re.findall(
        r"^\| `(\w+)` \| (.*?) \| .*? \| .* \| (.*?) \|$", page.read_text("utf-8"), re.MULTILINE
    )
    names = [name for name, _, _ in rows]
    assert len(names) == len(set(names))
    return {name: (default, tests) for name, default, tests in rows}


def shown(value: object) -> str:
    if isinstance(value, float):
        # 1e-6 and 0.2; a whole number stays with or without its point.
        return re.sub(r"e-0(\d)", r"e-\1", f"{value:g}")
    return value if isinstance(value, str) else json.dumps(value)


def functions_of(file: Path) -> set[str]:
    tree = ast.parse(file.read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def file_of(name: str) -> Path:
    (found,) = [ROOT / name] if "/" in name else (ROOT / "tests").rglob(name)
    assert found.is_file(), f"there is no {name}"
    return found


def test_the_page_has_every_hyperparameter_of_grpo() -> None:
    text = GRPO_PAGE.read_text("utf-8")
    assert set(table(GRPO_PAGE)) == set(GrpoHyperparameters.model_fields) - REFUSED
    for name in REFUSED:
        assert f"`{name}" in text


def test_the_page_has_every_hyperparameter_of_sft() -> None:
    text = SFT_PAGE.read_text("utf-8")
    shared = text[text.index("## Hyperparameters") : text.index("| name |")]
    named = set(re.findall(r"`(\w+)`", shared)) & set(SftHyperparameters.model_fields)
    assert named | set(table(SFT_PAGE)) == set(SftHyperparameters.model_fields)
    # What is said to be the same has the same default.
    for name in named:
        assert SftHyperparameters.model_fields[name].default == GrpoHyperparameters.model_fields[name].default


@pytest.mark.parametrize(
    ("page", "model"), [(GRPO_PAGE, GrpoHyperparameters), (SFT_PAGE, SftHyperparameters)]
)
def test_the_page_has_the_defaults(
    page: Path, model: type[GrpoHyperparameters] | type[SftHyperparameters]
) -> None:
    defaults = model().model_dump(mode="json")
    for name, (default, _) in table(page).items():
        told = default.removesuffix(".0")
        assert told == shown(defaults[name]), f"{name}: the page says {default}"


@pytest.mark.parametrize("page", [GRPO_PAGE, SFT_PAGE])
def test_the_tests_that_the_page_names_are_there(page: Path) -> None:
    for name, (_, tests) in table(page).items():
        mentioned = False
        for reference in tests.split(", "):
            if reference == "act":
                # Two that only differ in their name share one.
                its_name = re.compile(rf"test_(.+_and_)?{name}(_and_.+)?")
                found = [function for function in functions_of(ROOT / ACT) if its_name.fullmatch(function)]
                assert found, f"{ACT} has no test of {name}"
                mentioned = True
                continue
            file, _, function = reference.strip("`").partition("::")
            path = file_of(file)
            if function:
                assert function in functions_of(path), f"{name}: {file} has no {function}"
            mentioned = mentioned or bool(function) or name in path.read_text("utf-8")
        assert mentioned, f"none of {tests} mentions {name}"
