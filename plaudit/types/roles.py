"""What a token may do."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """What a token may do at the gateway. Each may also do what the one before may, `service` as `viewer`."""

    VIEWER = "viewer"
    """Reads everything but tokens and the audit log."""
    OPERATOR = "operator"
    """Works with jobs, datasets, reward functions and rescores."""
    ADMIN = "admin"
    """Administers reward servers and tokens."""
    SERVICE = "service"
    """Reads as a viewer, ten times as often: for services, behind which stand many people or machines."""
