"""Rules about what completions and columns may hold."""

from __future__ import annotations

import json
import math
from typing import Final

from plaudit.reward.v1 import reward_service_pb2 as pb
from reward_service.conformance._faults import Fault
from reward_service.conformance._ledger import shown, told
from reward_service.conformance._rule import Skipped, optional, required
from reward_service.conformance._run import KEY, Run
from reward_service.conformance._settings import Row
from reward_service.conformance._work import TEXTS

_ODD_TEXTS: Final = {
    "the empty text": "",
    "blanks only": " \n\t",
    "Chinese, Arabic and Hindi": "答案是七十二。 الجواب ٧٢ उत्तर ७२",
    "emoji that are several code points": "👩‍🚀🇩🇪👍🏽 72",
    "a code point beyond 16 bits, and combining marks": "\U0001d7df\U0001d7da e\u0301\u0323",
    "line ends of every kind": "72\r\n72\r72\u2028",
    "a NUL and control characters": "a\x00b\x01\x1b[31m72\x7f",
    "markup and quotes": '<answer>"72\'</answer> {"answer": 72} \\ %s ${72} `72`',
    "text that runs right to left": "\u202e27\u202c\u200f",
    "replacement and byte order marks": "\ufeff72\ufffd",
}

_LONG_TEXT_BYTES: Final = 2**20
_TOLERANCE: Final = 1e-9


@required(
    "R22",
    "columns",
    'The other columns of the dataset row, for example {"answer": 72}, with the types that the row had.',
    "read ColumnValue by the case that is set; none is set where the value is null; answer a row that the "
    "reward cannot use with a failure",
)
async def columns(run: Run) -> str | None:
    """Rows with columns of every type are answered."""
    work = run.work
    extra = {
        "a text": "72",
        "a whole number": 2**53 + 1,
        "a negative number": -(2**62),
        "a number": 0.1,
        "a truth value": True,
        "nothing": None,
        "a list": [1, None, {"a": "ü"}],
        "a large number": 10**30,
        "name with blanks, ü and 中": "",
    }
    base = work.rows[0]
    typed = Row(base.prompt, base.columns | extra)
    nulls = Row(base.prompt, dict.fromkeys(base.columns, None))
    texts = Row(base.prompt, {name: str(value) for name, value in base.columns.items()})
    batches = [work.batch(work.group(TEXTS[: min(2, work.most)], row=row)) for row in (typed, nulls, texts)]
    async with run.talk() as talk:
        await talk.open()
        await talk.send(*batches)
        await talk.settled(*batches)
        await run.sound(talk)
    return None


@required(
    "R23",
    "any-text",
    "Decoded text without special tokens; always valid UTF-8.",
    "take a completion for what it is, any text, the empty one included; a failure is an answer too",
)
async def any_text(run: Run) -> str | None:
    """Texts of every kind are answered, each one beside the others."""
    work = run.work
    texts = list(_ODD_TEXTS.values())
    batches = [
        work.batch(work.group(texts[begin : begin + work.most]))
        for begin in range(0, len(texts), min(len(texts), work.most))
    ]
    prompt = (("system", ""), ("user", "".join(texts)))
    batches.append(work.batch(work.group(texts[: min(2, work.most)], row=Row(prompt, work.rows[0].columns))))
    async with run.talk() as talk:
        await talk.open()
        await talk.send(*batches)
        await talk.settled(*batches)
        await run.sound(talk)
    return None


@required(
    "R24",
    "long-text",
    "up to 64 completions or 1 MB; a larger completion alone",
    "read completions of a megabyte; one that is too long for the reward gets a failure",
)
async def long_text(run: Run) -> str | None:
    """A completion of a megabyte is answered, and those beside it too."""
    work = run.work
    size = min(_LONG_TEXT_BYTES, run.frame_bytes // 2)
    word = "<think>72</think><answer>72</answer> 72 "
    long = work.batch(work.group([(word * (size // len(word) + 1))[:size]]))
    plain = work.many(2)
    async with run.talk() as talk:
        await talk.open()
        await talk.send(long, plain)
        await talk.settled(long, plain)
        await run.sound(talk)
    return f"{size} bytes"


@required(
    "R34",
    "known-scores",
    'The other columns of the dataset row, for example {"answer": 72}, with the types that the row had.',
    "look into the reward, or into the row: a whole number is int_value, and 72 is not 72.0",
)
async def known_scores(run: Run) -> str | None:
    """Rows that were given with their scores get these scores."""
    rows = [row for row in run.settings.rows if row.expected]
    if not rows:
        raise Skipped('give rows with "expected" scores in --rows to check them')
    checked = 0
    async with run.talk() as talk:
        await talk.open()
        for row in rows:
            group = run.work.group([item.completion for item in row.expected[: run.work.most]], row=row)
            batch = run.work.batch(group)
            await talk.send(batch)
            await talk.settled(batch)
            for item, completion in zip(row.expected, group.completions, strict=False):
                outcome = talk.outcomes(batch).get((completion.completion_id, KEY))
                if outcome is None:
                    raise talk.broken(f"no result for completion {shown(item.completion)}")
                if item.score is None:
                    agrees, wanted = outcome.kind == "not_applicable", "not applicable"
                else:
                    agrees = outcome.kind == "score" and math.isclose(
                        outcome.value, item.score, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE
                    )
                    wanted = f"score {item.score:g}"
                if not agrees:
                    columns = json.dumps(row.columns)[:200]
                    raise talk.broken(
                        f"completion {shown(item.completion)} of the row with columns {columns}: expected "
                        f"{wanted}, got {told(outcome)}"
                    )
                checked += 1
    return f"{checked} completions"


@optional(
    "O21",
    "invalid-utf8",
    "text that is not valid UTF-8 is mended and fails nothing",
    "read frames leniently, or expect that one bad character, as a client in JavaScript may send, breaks the "
    "stream",
)
async def invalid_utf8(run: Run) -> str | None:
    """One text that is not valid UTF-8 does not spoil a batch."""
    work = run.work
    if work.most < 2:
        raise Skipped("a batch has one completion")
    marker = "half of a pair: \x01\x02\x03"
    batch = work.batch(work.group([marker, TEXTS[0]]))
    raw = pb.ScoreRequest(batch=batch).SerializeToString()
    spoilt = raw.replace(b"\x01\x02\x03", b"\xed\xa0\xbd")
    async with run.talk() as talk:
        await talk.open()
        talk.ledger.sent(batch, talk.keys)
        await talk.write_bytes(
            spoilt, f"a batch of 2 completions, {len(spoilt)} bytes, one with half a surrogate pair"
        )
        await talk.settled(batch)
        await run.sound(talk, but=(Fault.REJECTED,))
        if talk.ledger.entries[batch.batch_id].rejected is not None:
            raise talk.broken("the whole batch was rejected")
    return None


RULES: Final = (columns, any_text, long_text, known_scores)
OPTIONAL_RULES: Final = (invalid_utf8,)
