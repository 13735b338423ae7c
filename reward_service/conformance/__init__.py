"""The conformance suite: runs every rule of plaudit.reward.v1 against a live server, in any language.

It speaks to the server as bare as gRPC does, frame by frame, for a client that forgives hides what is wrong.
"""

from reward_service.conformance._report import as_json, as_junit
from reward_service.conformance._rule import Level, Rule, Status, Verdict
from reward_service.conformance._settings import Expected, Row, Settings, read_rows, row_of_columns
from reward_service.conformance._suite import Report, run_suite
from reward_service.conformance._target import Target
from reward_service.conformance.rules import OPTIONAL_RULES, REQUIRED_RULES

__all__ = [
    "OPTIONAL_RULES",
    "REQUIRED_RULES",
    "Expected",
    "Level",
    "Report",
    "Row",
    "Rule",
    "Settings",
    "Status",
    "Target",
    "Verdict",
    "as_json",
    "as_junit",
    "read_rows",
    "row_of_columns",
    "run_suite",
]
