"""Alerts: failure modes that the metrics of a job show. The words of gateway, SDK and command line.

docs/alerts.md says what each kind rests on, and what to try.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

AlertKind: TypeAlias = Literal[
    "policy_collapse",
    "length_explosion",
    "no_learning_signal",
    "reward_failures",
    "reward_protocol_errors",
    "reward_hacking",
    "reward_fooled",
    "kl_blowup",
    "non_finite",
]
"""A failure mode that is read off the series of a job."""
