"""exact_answer: finding and comparing answers; values worked out by hand."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plaudit.errors import InvalidArgumentError
from plaudit.types.scoring import Completion, Failed, FailureCode, NotApplicable, Outcome, Prompt, Scored
from reward_service import Item
from reward_service.rewards import exact_answer
from reward_service.rewards._comparison import Expected, number_of
from reward_service.rewards._extraction import last_boxed, last_number, last_tagged


async def outcome(text: str, columns: Any, config_json: str = "{}", prefill: str = "") -> Outcome:
    config = exact_answer.config.read(config_json, "config")
    prompt = Prompt("g", (), columns)
    (result,) = await exact_answer.score([Item(prompt, Completion("c", text, 5, prefill=prefill), config)])
    return result


async def value(text: str, answer: Any, config_json: str = "{}") -> float:
    result = await outcome(text, {"answer": answer}, config_json)
    assert isinstance(result, Scored), result
    return result.value


def accepts(found: str, expected: Any, *, ignore_case: bool = False) -> bool:
    return Expected(expected, ignore_case=ignore_case).accepts(found)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ("3", 3),
        ("3", "3"),
        ("3.0", 3),
        ("3", "3.0"),
        ("72", 72.0),
        ("72.0", "72"),
        ("72.", 72),
        (" 72 ", 72),
        ("+72", 72),
        ("007", 7),
        (".5", 0.5),
        ("1e3", 1000),
        ("1,234", 1234),
        ("1234", "1,234"),
        ("1,234,567.50", 1234567.5),
        ("-5", -5),
        ("\N{MINUS SIGN}5", -5),
        ("0.1", 0.1),
        ("0.10", "0.1"),
        ("-0", 0),
        (str(2**53 + 1), 2**53 + 1),
        (str(2**200 + 1), 2**200 + 1),
        ("1e999999999", "10e999999998"),
        ("1e2000", "10e1999"),
        ("1e2001", "10e2000"),
        ("1e-2001", "0.1e-2000"),
        ("0e999999999", 0),
        ("1/2", 0.5),
        ("2/6", "1/3"),
        ("-3/4", -0.75),
        ("\N{MINUS SIGN}3/4", "-6/8"),
        (r"\frac{1}{2}", "0.5"),
        (r"-\dfrac{ 3 }{ 4 }", "-3/4"),
        (r"\tfrac{3}{1}", 3),
        ("50%", 0.5),
        (r"12.5\%", "1/8"),
        ("50 %", "50%"),
        ("7", [3, "seven", 7]),
        ("seven", [3, "seven", 7]),
        ("true", True),
        ("FALSE", False),
        ("new   york", "new york"),
        ("Ame\N{COMBINING ACUTE ACCENT}lie", "Am\N{LATIN SMALL LETTER E WITH ACUTE}lie"),
        ("x = 2", " x = 2\n"),
        ("", ""),
    ],
)
def test_equal(found: str, expected: Any) -> None:
    assert accepts(found, expected)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ("4", 3),
        ("3", "three"),
        (str(2**53), 2**53 + 1),
        (str(2**53 + 1), float(2**53)),
        ("1,23", 123),
        ("12,34,567", 1234567),
        ("1_000", 1000),
        ("0x10", 16),
        ("nan", "1"),
        ("inf", 1e308),
        ("3 apples", 3),
        ("1", True),
        ("0", False),
        ("Paris", "paris"),
        ("", 0),
        ("\N{ARABIC-INDIC DIGIT THREE}", 3),
        ("1e1000000000", "1e1000000001"),
        ("8", [3, "seven", 7]),
        ("1/3", 1 / 3),
        ("1/0", 0),
        ("1/2/3", "1/6"),
        ("2*3", 6),
        ("50%", 50),
        ("1e999999999%", 1),
        ("__import__('os').getpid()", 1),
    ],
)
def test_not_equal(found: str, expected: Any) -> None:
    assert not accepts(found, expected)


@pytest.mark.parametrize("answer", [[], {}, {"a": 1}, [None], [[1]], float("inf"), [1, float("inf")]])
async def test_a_column_that_no_answer_can_be_compared_with_is_invalid(answer: Any) -> None:
    result = await outcome("<answer>3</answer>", {"answer": answer})
    assert isinstance(result, Failed)
    assert result.code is FailureCode.INVALID
    assert "dict" not in result.message and "float" not in result.message


async def test_it_fails_no_sibling() -> None:
    config = exact_answer.config.read("{}", "config")
    items: list[Item[Any]] = [
        Item(Prompt("g", (), {"answer": answer}), Completion("c", "<answer>3</answer>", 5), config)
        for answer in (3, [float("inf")], 4)
    ]
    first, second, third = await exact_answer.score(items)
    assert first == Scored(1.0)
    assert isinstance(second, Failed)
    assert isinstance(third, Scored)


def test_a_whole_number_of_many_digits_is_compared_as_text() -> None:
    number = 10**1500
    assert accepts("1" + "0" * 1500, number)
    assert not accepts("1e1500", number)
    assert accepts("1e999", 10**999)


def test_case_can_be_ignored() -> None:
    assert accepts("PARIS", "paris", ignore_case=True)
    assert accepts("STRASSE", "straße", ignore_case=True)


@given(st.integers())
def test_every_whole_number_is_itself(number: int) -> None:
    assert accepts(f"{number:,}", number)
    assert accepts(str(number), str(number))
    assert not accepts(str(number + 1), number)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_is_its_own_text(number: float) -> None:
    assert accepts(repr(number), number)


@given(st.text())
def test_every_text_is_itself(text: str) -> None:
    assert accepts(text, text)


def test_a_number_that_is_too_long_is_compared_as_text() -> None:
    assert number_of("9" * 1001) is None
    assert accepts("9" * 10**6, "9" * 10**6)
    assert not accepts("9" * 10**6, 9)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<answer>12</answer>", "12"),
        ("<answer>1</answer> no, <answer>2</answer>", "2"),
        ("<answer>1</answer> no, <answer>2", "1"),
        ("<answer>a<answer>b</answer>", "a<answer>b"),
        ("</answer><answer>1</answer></answer>", "1"),
        ("<answer></answer>", ""),
        ("answer 12", None),
        ("<answer>12", None),
    ],
)
def test_last_tagged(text: str, expected: str | None) -> None:
    assert last_tagged(text, "answer") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\boxed{12}", "12"),
        (r"\boxed{1} and \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{1} and \boxed{2", "1"),
        (r"{\boxed{12}}", "12"),
        (r"\boxed{a\boxed{b}}", "b"),
        (r"\fbox{12}", None),
        (r"\boxed{", None),
        (r"}{\boxed{1}", "1"),
        ("12", None),
        (r"\boxed{a \} b}", r"a \} b"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\{1}", r"\{1"),
        (r"\boxed{a \\}", "a \\\\"),
    ],
)
def test_last_boxed(text: str, expected: str | None) -> None:
    assert last_boxed(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10 - 7 = 3", "3"),
        ("it is -3.", "-3"),
        ("7-3", "3"),
        ("(4)-2", "2"),
        ("2*-3", "-3"),
        ("1,2,3", "3"),
        ("costs 1,234.50 in all", "1,234.50"),
        ("about 1e5 of them", "1e5"),
        ("x3y", "3"),
        ("it is \N{MINUS SIGN}8", "-8"),
        ("it is 3/4.", "3/4"),
        ("it is -3/4", "-3/4"),
        ("x-3/4", "3/4"),
        ("1/2/3", "3"),
        ("on 12/31/2024", "2024"),
        ("3.5/4", "4"),
        ("It is 50%.", "50%"),
        ("so 50 \\% of it", "50%"),
        ("1234,567", "567"),
        ("12,345,678", "12,345,678"),
        ("x = - 5", "-5"),
        ("x = \N{MINUS SIGN} 5", "-5"),
        ("7 - 5", "5"),
        ("so:\n- 5", "5"),
        ("none", None),
        ("", None),
    ],
)
def test_last_number(text: str, expected: str | None) -> None:
    assert last_number(text) == expected


@pytest.mark.parametrize(
    ("config", "text", "expected"),
    [
        ("{}", "so <answer> 12 </answer>", 1.0),
        ("{}", "12", 0.0),
        ("{}", "<answer>13</answer>", 0.0),
        ('{"tag": "final"}', "<final>12</final>", 1.0),
        ('{"extract": "boxed"}', r"\boxed{12.0}", 1.0),
        ('{"extract": "last_number"}', "3 * 4 is 12.", 1.0),
        ('{"extract": "whole"}', " 12\n", 1.0),
        ('{"extract": "whole"}', "It is 12", 0.0),
        ('{"extract": "regex", "pattern": "Answer: (.*)"}', "Answer: 12\nreally", 1.0),
        ('{"extract": "regex", "pattern": "Answer: (.*)"}', "the answer: 12", 0.0),
        ('{"extract": "regex", "pattern": "(12)?x"}', "x", 0.0),
    ],
)
async def test_extraction(config: str, text: str, expected: float) -> None:
    assert await value(text, 12, config) == expected


async def test_the_answer_may_begin_in_the_prefill_but_a_number_there_is_none_of_the_models() -> None:
    assert await outcome("12</answer>", {"answer": 12}, prefill="<answer>") == Scored(1.0)
    result = await outcome("none", {"answer": 1}, '{"extract": "last_number"}', prefill="Step 1:")
    assert isinstance(result, Scored)
    assert result.value == 0.0


async def test_a_zero_says_what_was_found_and_what_was_expected() -> None:
    result = await outcome("<answer>13</answer>", {"answer": 12})
    assert result == Scored(0.0, explanation="answer '13', expected '12'")


async def test_a_row_without_an_answer_is_never_zero() -> None:
    assert await outcome("<answer>12</answer>", {"answer": None}) == NotApplicable(
        "column answer of the row is null"
    )
    for answer in ({"a": 1}, [1, None], [[1]]):
        result = await outcome("<answer>12</answer>", {"answer": answer})
        assert isinstance(result, Failed)
        assert result.code is FailureCode.INVALID


def test_the_column_that_is_needed_is_the_configured_one() -> None:
    assert exact_answer.required_columns == ("answer",)
    config = exact_answer.config.read('{"column": "solution"}', "config")
    assert exact_answer.columns_of(config) == ("solution",)


@pytest.mark.parametrize(
    ("config", "path", "part"),
    [
        ('{"extract": "regex"}', "pattern", 'extract "regex" needs it'),
        ('{"extract": "regex", "pattern": "a"}', "pattern", "no group"),
        ('{"extract": "regex", "pattern": "(a"}', "pattern", "missing )"),
        ('{"pattern": "(a)"}', "pattern", 'for extract "regex" alone'),
        ('{"extract": "boxed", "tag": "x"}', "tag", 'for extract "tag" alone'),
        ('{"tag": "<a>"}', "tag", "pattern"),
        ('{"extract": "guess"}', "extract", "last_number"),
        ('{"ignore_case": "yes"}', "ignore_case", "boolean"),
    ],
)
def test_a_wrong_config_is_refused(config: str, path: str, part: str) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        exact_answer.config.read(config, "config")
    (violation,) = error.value.violations
    assert violation.field == f"config.{path}"
    assert part in violation.message


HOSTILE = [
    "9" * 10**6,
    "1e999999999",
    "1" * 499 + "/" + "3" * 499,
    "1/" * 10**5,
    "<answer>" * 50_000,
    "<answer></answer>" * 30_000,
    "<answer>" + "9" * 10**6 + "</answer>",
    "<answer>1e999999999</answer>",
    "<answer>" + "a\N{COMBINING COMMA ABOVE RIGHT}\N{COMBINING GRAVE ACCENT}" * 30_000 + "</answer>",
    "{" * 10**6,
    "\\boxed{" * 10**5,
    "1 " * 10**5,
    "1," * 10**5,
    "-" * 10**6,
]


@pytest.mark.parametrize("extract", ["tag", "boxed", "last_number", "whole"])
async def test_hostile_text_takes_no_time(extract: str) -> None:
    for text in HOSTILE:
        started = time.perf_counter()
        assert await value(text, 1e300, f'{{"extract": "{extract}"}}') == 0.0
        assert time.perf_counter() - started < 10
