"""Who may call the gateway, and what they may do."""

from gateway.access.callers import LOCAL, Caller, current_caller, current_caller_name
from gateway.access.policy import AccessLimits, AccessPolicy
from gateway.access.service import Access

__all__ = [
    "LOCAL",
    "Access",
    "AccessLimits",
    "AccessPolicy",
    "Caller",
    "current_caller",
    "current_caller_name",
]
