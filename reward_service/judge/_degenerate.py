"""Completions that answer nothing, and yet move judges to a good verdict: they are never sent to one.

Punctuation alone and openers of reasoning ("Thought process:") were shown to be taken for right answers by
many judge models ("One Token to Fool LLM-as-a-Judge", 2025).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Any, Final

import re2

_EMPTY_TAGS: Final[Any] = re2.compile(
    r"(?i)<\s*/?\s*(?:think|thinking|thought|reasoning|scratchpad|answer|final|final_answer|solution|output)\s*/?\s*>"
)

_OPENERS: Final = frozenset(
    {
        "thought process",
        "thoughts",
        "thinking process",
        "reasoning",
        "reasoning process",
        "chain of thought",
        "solution",
        "the solution",
        "the solution is",
        "answer",
        "the answer",
        "the answer is",
        "final answer",
        "the final answer is",
        "explanation",
        "analysis",
        "step by step",
        "step 1",
        "lets think",
        "lets begin",
        "lets start",
        "lets think step by step",
        "lets solve this",
        "lets solve this step by step",
        "lets solve this problem",
        "lets solve this problem step by step",
        "lets solve the problem step by step",
        "lets work through this step by step",
        "let us think step by step",
        "let us solve this problem step by step",
        "to solve this problem",
        "here is the solution",
        "heres the solution",
        # Chinese, Japanese, Korean
        "解",
        "解答",
        "答案",
        "答",
        "思考过程",
        "思考過程",
        "让我们一步一步思考",
        "让我们一步一步解决这个问题",
        "解説",
        "かいせつ",
        "解法",
        "答え",
        "考え方",
        "一歩ずつ考えましょう",
        "풀이",
        "해설",
        "정답",
        "답",
        # Spanish, Portuguese, Italian, French, German
        "respuesta",
        "solución",
        "solucion",
        "proceso de pensamiento",
        "pensemos paso a paso",
        "resolvamos este problema paso a paso",
        "resposta",
        "solução",
        "vamos pensar passo a passo",
        "risposta",
        "soluzione",
        "réponse",
        "la réponse",
        "réflexion",
        "raisonnement",
        "résolvons ce problème étape par étape",
        "antwort",
        "lösung",
        "die lösung",
        "gedankengang",
        "denken wir schritt für schritt",
        "lass uns das schritt für schritt lösen",
        # Russian, Arabic, Hindi, Turkish, Vietnamese
        "решение",
        "ответ",
        "рассуждение",
        "давайте решим эту задачу шаг за шагом",
        "الحل",
        "الجواب",
        "عملية التفكير",
        "हल",
        "उत्तर",
        "समाधान",
        "çözüm",
        "cevap",
        "lời giải",
        "đáp án",
    }
)
_APOSTROPHES: Final = "'`\u00b4\u2018\u2019"
_LONGEST_PIECE: Final = 200
"""Characters, blanks included; no opener is that long."""

_OPENER_CHARS: Final = 2000
"""A completion of openers alone that is longer than this says nothing either, but is not looked for."""


def why_degenerate(text: str) -> str | None:
    """Why a completion answers nothing; None where it may be sent to a judge."""
    if not text.strip():
        return "the completion is empty"
    bare = _EMPTY_TAGS.sub(" ", text)
    if all(_is_filler(character) for character in bare):
        return "the completion holds no word, number or symbol"
    if len(text) > _OPENER_CHARS:
        return None
    if all(part in _OPENERS for part in _parts(bare)):
        return "the completion only announces an answer"
    return None


def _is_filler(character: str) -> bool:
    """Whether a character is punctuation, blank, or not seen at all."""
    return unicodedata.category(character)[0] in "PZC"


def _parts(text: str) -> Iterator[str]:
    """The pieces between punctuation, in small letters and with single blanks; a long one in parts."""
    piece: list[str] = []
    for character in unicodedata.normalize("NFKC", text).casefold():
        category = unicodedata.category(character)
        if character in _APOSTROPHES or category == "Cf":
            continue  # "let's" and "lets" are one word
        if category[0] != "P" and character not in "\r\n":
            piece.append(" " if category[0] in "ZC" else character)
            if len(piece) <= _LONGEST_PIECE:
                continue
        part = " ".join("".join(piece).split())
        piece.clear()
        if part:
            yield part
    last = " ".join("".join(piece).split())
    if last:
        yield last
