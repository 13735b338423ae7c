"""Reading of verdicts: what was said comes out, whatever stands around it, and nothing else ever does."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_service.judge._degenerate import why_degenerate
from reward_service.judge._fence import fenced, neutral, new_nonce
from reward_service.judge._verdict import Form, Mark, NoVerdictError, Verdict, read_verdict

FORM = Form("scores", {"clarity": Mark(0, 1), "steps": Mark(1, 5, whole=True)})

# Prose that holds no brace and no quotation mark cannot be taken for an object.
prose = st.text(st.characters(exclude_characters='{}"', exclude_categories=["Cs"]), max_size=80)


@given(
    clarity=st.floats(0, 1),
    steps=st.integers(1, 5),
    rationale=st.text(max_size=200),
    before=prose,
    after=prose,
)
def test_a_verdict_comes_out_as_it_was_said(
    clarity: float, steps: int, rationale: str, before: str, after: str
) -> None:
    said = json.dumps({"rationale": rationale, "scores": {"clarity": clarity, "steps": steps}})
    verdict = read_verdict(f"{before}{said}{after}", FORM)
    assert verdict.numbers == {"clarity": clarity, "steps": steps}
    assert verdict.rationale == rationale.encode("utf-8", "replace").decode().strip()
    assert read_verdict(verdict.to_json(FORM), FORM) == verdict


@given(st.text(st.sampled_from('{}[]":,\\ 0123456789.-eNaifsrctl\n'), max_size=60))
def test_no_noise_is_a_verdict(noise: str) -> None:
    with pytest.raises(NoVerdictError):
        read_verdict(noise, FORM)


@given(number=st.one_of(st.floats(), st.integers()), cut=st.integers(1, 30))
def test_only_numbers_within_their_bounds_are_taken(number: float, cut: int) -> None:
    said = json.dumps({"rationale": "r", "scores": {"clarity": number, "steps": 3}})
    if 0 <= number <= 1:
        assert read_verdict(said, FORM).numbers["clarity"] == number
    else:
        with pytest.raises(NoVerdictError, match="clarity"):
            read_verdict(said, FORM)
    with pytest.raises(NoVerdictError):
        read_verdict(said[:-cut], FORM)


def test_whole_numbers_are_whole() -> None:
    said = '{"rationale": "", "scores": {"clarity": 1, "steps": %s}}'
    assert read_verdict(said % "2.0", FORM) == Verdict({"clarity": 1.0, "steps": 2.0}, "")
    with pytest.raises(NoVerdictError, match=r'"steps" is 2\.5 where a whole number from 1 to 5'):
        read_verdict(said % "2.5", FORM)


def test_a_long_rationale_is_cut() -> None:
    said = json.dumps({"rationale": "x" * 20_000, "scores": {"clarity": 1, "steps": 2}})
    assert len(read_verdict(said, FORM).rationale) == 4001


@pytest.mark.parametrize(
    "answer",
    [
        "{" * 64_000,
        '{"a":' * 12_000,
        "{}" * 32_000,
        "{a}" * 20_000,
        "{ {" * 20_000 + "}" * 4000,
        '{"' * 32_000,
    ],
)
def test_reading_takes_no_time_to_speak_of(answer: str) -> None:
    started = time.process_time()
    with pytest.raises(NoVerdictError):
        read_verdict(answer, FORM)
    assert time.process_time() - started < 2.0


@given(st.text(max_size=300))
def test_neutral_text_keeps_everything_but_blanks(text: str) -> None:
    assert neutral(text).replace(" ", "") == text.encode("utf-8", "replace").decode().replace(" ", "")
    assert neutral(neutral(text)) == neutral(text)


def test_marks_cannot_be_guessed() -> None:
    nonces = {new_nonce() for _ in range(1000)}
    assert len(nonces) == 1000
    assert {len(nonce) for nonce in nonces} == {24}
    assert fenced("ANSWER", "<<<END ANSWER>>>", "n").count("<<<END ANSWER") == 1


@given(st.text(st.characters(categories=["P", "Z", "Cc", "Cf"]), max_size=50))
def test_punctuation_answers_nothing(text: str) -> None:
    assert why_degenerate(text) is not None


@given(st.text(max_size=50), st.integers())
def test_a_number_is_an_answer(text: str, number: int) -> None:
    assert why_degenerate(f"{text} {number}") is None


@pytest.mark.parametrize("digits", [400, 5_000])
def test_a_number_of_many_digits_is_refused_in_words(digits: int) -> None:
    said = '{"rationale": "r", "scores": {"clarity": %s, "steps": 3}}' % ("1" * digits)
    with pytest.raises(NoVerdictError, match=r"thousands of digits|clarity") as error:
        read_verdict(said, FORM)
    assert "max_str_digits" not in str(error.value)
