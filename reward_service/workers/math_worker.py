"""The program of a worker that compares mathematics by math-verify. Run by its path, alone.

It is killed from outside when it takes too long, so math-verify's own timeouts, which are signals that break
in threads, are off. Its text comes from models: it has no gRPC, no environment, and a bound on memory.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import re
import resource
import signal
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_SHOWN_LENGTH = 100
_DECIMALS = 6
_DECIMALS_OF_ZERO = 12
_ZERO = 1e-100
_BASE = re.compile(r"[0-9A-Fa-f]\s*_\s*\{?\s*([0-9]+)\s*\}?")
_TEXT_GROUP = re.compile(
    r"\\(?:text|textbf|textit|mbox|mathrm|mathbf|mathbb|mathcal|mathit|operatorname|begin|end)\s*\{[^{}]*\}"
)
_COMMAND = re.compile(r"\\[A-Za-z]+")
_WORD = re.compile(r"[A-Za-z]{2,}")
_WORDS_ALONE = re.compile(r"[A-Za-z\s.,;:!?'-]+")
_LONGEST_PRODUCT_ALONE = 3
_LONGEST_PRODUCT = 4


def main() -> None:
    """Serves requests until stdin ends: {"gold": [text]} with "answer", or with "text" that holds one."""
    parent, memory_bytes = int(sys.argv[1]), int(sys.argv[2])
    _bind(parent, memory_bytes)
    replies = os.fdopen(os.dup(1), "w", encoding="ascii")
    # Whatever a library prints is no reply.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    for line in sys.stdin:
        replies.write('{"started": true}\n')
        replies.flush()
        reply = _reply(json.loads(line))
        spent = _address_space_peak() > memory_bytes // 2
        if spent and reply["outcome"] not in ("equal", "error"):
            # What runs out of memory within sympy looks like a difference: it goes on without.
            reply = {"outcome": "out_of_memory"}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()
        if spent:
            return  # the peak stays; the next process begins anew


def _bind(parent: int, memory_bytes: int) -> None:
    """Makes the process end with its parent, and not outgrow its memory."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the parent is gone")
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.dont_write_bytecode = True  # no file can be written
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def _address_space_peak() -> int:
    """Most bytes of address space that the process has had."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    (peak,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmPeak:"))
    return int(peak) * 1024


def _reply(request: dict[str, Any]) -> dict[str, Any]:
    try:
        return _verdict(request)
    except MemoryError:
        return {"outcome": "out_of_memory"}
    except ImportError as error:
        return {"outcome": "error", "error": f"math-verify cannot be imported: {error}"}


def _verdict(request: dict[str, Any]) -> dict[str, Any]:
    from math_verify import verify

    texts = request["gold"]
    golds = [_parsed_gold(text) for text in texts]
    for text, gold in zip(texts, golds, strict=True):
        if gold is None:
            return {"outcome": "gold_unreadable", "gold": _short(text)}
    answer = request.get("answer")
    found = _parsed(request["text"]) if answer is None else _parsed_answer(answer)
    if not found:
        return {"outcome": "no_answer"}
    # Its last part is the text that it was read from. An expression itself can take for ever to print.
    read = _short(found[-1]) if isinstance(found[-1], str) else ""
    fault = ""
    for text, gold in zip(texts, golds, strict=True):
        if _bases_differ(text, read):
            continue
        try:
            if verify(
                gold, found, float_rounding=_decimals_of(gold), timeout_seconds=None, raise_on_error=True
            ):
                return {"outcome": "equal", "found": read}
        except MemoryError:
            raise
        except Exception as error:
            fault = f"{type(error).__name__}: {error}"
    if fault:
        return {"outcome": "error", "error": f"math-verify cannot compare them: {_short(fault)}"}
    return {"outcome": "different", "found": read}


@lru_cache(maxsize=256)
def _parsed_gold(text: str) -> Any:
    """The expressions of an expected answer, or None where it is no mathematics, or no value."""
    import sympy

    parts = _parsed_answer(text)
    found = [part for part in parts if not isinstance(part, str)]
    if not found or any(part in (sympy.nan, sympy.zoo) for part in found):
        return None
    # The texts that were read, without units.
    return None if any(_is_words(part) for part in parts if isinstance(part, str)) else found


def _decimals_of(gold: list[Any]) -> int:
    """Decimals that count: six, of a number below 0.1 from its first digit on that is not 0."""
    import sympy

    sizes = [abs(part) for part in gold if isinstance(part, sympy.Float | sympy.Rational)]
    if not sizes or min(sizes) >= 0.1:
        return _DECIMALS
    smallest = float(min(sizes))
    if smallest < _ZERO:
        return _DECIMALS_OF_ZERO
    return _DECIMALS - math.floor(math.log10(smallest)) - 1


def _parsed_answer(text: str) -> list[Any]:
    """What an answer that stands by itself is read as: LaTeX with its own marks, or without."""
    text = text.strip()
    if "$" in text or "\\(" in text or "\\[" in text or "\\boxed" in text:
        return _parsed(text)
    return _parsed(f"$\\boxed{{{text}}}$")


def _parsed(text: str) -> list[Any]:
    from math_verify import parse

    found: list[Any] = parse(text, parsing_timeout=None)
    return found


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}…"


def _bases_differ(one: str, other: str) -> bool:
    """Whether both name the bases of their numbers, as 12_7 does, and not the same."""
    bases, others = _BASE.findall(one), _BASE.findall(other)
    return bool(bases and others) and bases != others


def _is_words(text: str) -> bool:
    """Whether `text`, outside of \\text{…} and its like, holds what is a word more likely than a product."""
    alone = _WORDS_ALONE.fullmatch(text) is not None
    words = _WORD.findall(_COMMAND.sub(" ", _TEXT_GROUP.sub(" ", text)))
    return any(not _is_product_alone(word) if alone else len(word) > _LONGEST_PRODUCT for word in words)


def _is_product_alone(word: str) -> bool:
    letters = list(word.lower())
    return (
        len(word) <= _LONGEST_PRODUCT_ALONE
        and not {"e", "i", "o", "u"} & set(letters)
        and ("a" not in letters or letters == sorted(letters))
    )


if __name__ == "__main__":
    main()
