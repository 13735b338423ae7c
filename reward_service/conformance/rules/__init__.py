"""The rules, in the order in which they are checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from reward_service.conformance._rule import Rule
from reward_service.conformance.rules import (
    batches,
    conversing,
    describing,
    ending,
    examples,
    giving_up,
    limits,
    opening,
    scoring_once,
    sessions,
    surroundings,
    texts,
)


def _in_order(*rules: Rule) -> Sequence[Rule]:
    return tuple(sorted(rules, key=lambda rule: rule.id))


REQUIRED_RULES: Final = _in_order(
    *describing.RULES,
    *conversing.RULES,
    *ending.RULES,
    *batches.RULES,
    *limits.RULES,
    *giving_up.RULES,
    *texts.RULES,
    *sessions.RULES,
    *opening.RULES,
)
OPTIONAL_RULES: Final = _in_order(
    *describing.OPTIONAL_RULES,
    *surroundings.OPTIONAL_RULES,
    *conversing.OPTIONAL_RULES,
    *ending.OPTIONAL_RULES,
    *batches.OPTIONAL_RULES,
    *limits.OPTIONAL_RULES,
    *giving_up.OPTIONAL_RULES,
    *texts.OPTIONAL_RULES,
    *sessions.OPTIONAL_RULES,
    *opening.OPTIONAL_RULES,
    *scoring_once.OPTIONAL_RULES,
    *examples.OPTIONAL_RULES,
)
