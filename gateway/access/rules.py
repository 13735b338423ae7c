"""What each call asks of a caller's role."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from enum import Enum
from typing import Final

from plaudit.types.roles import Role


class Permission(Enum):
    """What a call needs. The value is for people."""

    CALL = "call"
    """A token, whatever its role."""
    READ = "read"
    WORK = "work with jobs, datasets, reward functions and rescores"
    ADMINISTER = "administer reward servers and tokens"


_PERMISSIONS: Final[Mapping[Role, Set[Permission]]] = {
    Role.VIEWER: {Permission.CALL, Permission.READ},
    Role.SERVICE: {Permission.CALL, Permission.READ},
    Role.OPERATOR: {Permission.CALL, Permission.READ, Permission.WORK},
    Role.ADMIN: set(Permission),
}

_READING_METHODS: Final = ("Get", "List", "Watch", "Download", "Read", "Stream")
_OUR_PACKAGE: Final = "plaudit.gateway.v1."
_ADMIN_PATHS: Final = ("/v1/tokens", "/v1/audit")
_ADMIN_CHANGES: Final = ("/v1/reward_servers",)


@dataclass(frozen=True, slots=True)
class CallRule:
    """What a call needs, and whether it may change something."""

    permission: Permission
    changes: bool


def allows(role: Role, permission: Permission) -> bool:
    """Whether a token of this role may do that."""
    return permission in _PERMISSIONS[role]


def roles_with(permission: Permission) -> list[Role]:
    """The roles that may do that, the weakest first."""
    return [role for role in Role if allows(role, permission)]


def rule_of_method(method: str) -> CallRule:
    """The rule of a gRPC method, "/package.Service/Method". What is not known to read asks for more."""
    service, _, name = method.strip("/").partition("/")
    if not service.startswith(_OUR_PACKAGE):
        # Reflection; what nobody serves is answered as such to whoever may call at all.
        return CallRule(Permission.CALL, changes=False)
    changes = not name.startswith(_READING_METHODS)
    service = service.removeprefix(_OUR_PACKAGE)
    if service == "TokenService":
        own = name == "GetCaller"
        return CallRule(Permission.CALL if own else Permission.ADMINISTER, changes)
    if service == "RewardServerService" and changes:
        return CallRule(Permission.ADMINISTER, changes)
    return CallRule(Permission.WORK if changes else Permission.READ, changes)


def rule_of_request(http_method: str, path: str) -> CallRule:
    """The rule of an HTTP request. What is not known to read asks for more."""
    changes = http_method not in ("GET", "HEAD")
    if _within(path, _ADMIN_PATHS) or (changes and _within(path, _ADMIN_CHANGES)):
        return CallRule(Permission.ADMINISTER, changes)
    if path == "/v1/me":
        return CallRule(Permission.CALL, changes)
    return CallRule(Permission.WORK if changes else Permission.READ, changes)


def _within(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)
