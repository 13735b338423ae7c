"""Who may call the gateway: tokens, roles, limits, and a log of what was changed by whom."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from typing import Final

import structlog

from gateway.access.audit_log import AuditLog
from gateway.access.callers import LOCAL, Caller
from gateway.access.open_calls import OpenCalls
from gateway.access.policy import AccessPolicy
from gateway.access.rates import RateLimit
from gateway.access.rules import CallRule, Permission, allows, roles_with
from gateway.access.secret import digest_of
from gateway.access.tokens import TokenBook
from gateway.store import Store
from gateway.store.tokens import StoredToken
from plaudit.errors import PermissionDeniedError, ResourceExhaustedError, UnauthenticatedError
from plaudit.types.roles import Role

log = structlog.get_logger(__name__)

_BEARER: Final = "bearer "
_SERVICE_TIMES: Final = 10.0
"""How much more often a token of the role service may call."""
_ANONYMOUS_CALLS: Final = 64
_LOOKUPS_PER_SECOND: Final = 20.0
"""Secrets that are not known here are looked for in the store: one made on this machine is there."""
_USE_FLUSH_SECONDS: Final = 60.0
_HOW_TO_SEND: Final = (
    "send it as `authorization: Bearer TOKEN` (command line and SDK: PLAUDIT_TOKEN, PLAUDIT_TOKEN_FILE or "
    "--token-file)"
)
_HOW_TO_MAKE: Final = "an admin makes one with `plaudit token create`"


class Access:
    """Lets callers in, or says why not, and knows what they have open."""

    def __init__(self, store: Store, policy: AccessPolicy) -> None:
        self.policy = policy
        self.calls = OpenCalls()
        self.audit = AuditLog(store)
        self.tokens = TokenBook(
            store, on_revoked=lambda token: self.calls.end(token.id, _revoked(token.name))
        )
        limits = policy.limits
        self._requests = RateLimit(limits.requests_per_second, limits.request_burst)
        self._anonymous = RateLimit(
            limits.anonymous_requests_per_second, max(1, round(2 * limits.anonymous_requests_per_second))
        )
        self._refusals = RateLimit(limits.refusals_per_minute / 60, max(1, round(limits.refusals_per_minute)))
        self._lookups = RateLimit(_LOOKUPS_PER_SECOND, 2 * round(_LOOKUPS_PER_SECOND))

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """While the context is open: tokens are known, and what is to be kept of calls is written."""
        await self.tokens.load()
        if self.policy.require_tokens and not self.tokens.has_admin:
            log.warning("there is no admin token yet; make one with `plaudit token create --data-dir`")
        tasks = [asyncio.create_task(self.audit.run()), asyncio.create_task(self._keep_uses())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await self.audit.close()
            await self.tokens.keep_uses()

    async def identify(self, authorization: str | None) -> Caller:
        """Who calls, by the header `authorization`. Raises UnauthenticatedError."""
        if not self.policy.require_tokens:
            return LOCAL
        if authorization is None:
            raise UnauthenticatedError(
                f"this gateway asks for a token, and none was sent; {_HOW_TO_SEND}; {_HOW_TO_MAKE}"
            )
        if authorization[: len(_BEARER)].lower() != _BEARER:
            raise UnauthenticatedError(f"the header authorization holds no Bearer token; {_HOW_TO_SEND}")
        token = await self._token_of(authorization[len(_BEARER) :].strip())
        if token is None:
            raise UnauthenticatedError(
                f"the token is none that this gateway knows: it is mistyped, or was revoked; {_HOW_TO_MAKE}"
            )
        if token.expires_at is not None and token.expires_at <= datetime.now(UTC):
            raise UnauthenticatedError(
                f'the token "{token.name}" expired at {token.expires_at:%Y-%m-%d %H:%M} UTC; {_HOW_TO_MAKE}'
            )
        self.tokens.note_use(token.id)
        return Caller(token.id, token.name, token.role, token.expires_at)

    def admit(self, caller: Caller, rule: CallRule) -> None:
        """Raises ResourceExhaustedError where the caller calls too often, and PermissionDeniedError where its
        role may not do that.
        """
        if not caller.token_id:
            return
        times = _SERVICE_TIMES if caller.role is Role.SERVICE else 1.0
        _wait_for(self._requests.take(caller.token_id, times=times), "this token has sent too many requests")
        if not allows(caller.role, rule.permission):
            able = " or ".join(role.value for role in roles_with(rule.permission))
            what = "call this" if rule.permission is Permission.CALL else rule.permission.value
            raise PermissionDeniedError(
                f'the token "{caller.name}" has the role {caller.role.value}, and may not {what}; use one of '
                f"the role {able}",
                reason="ROLE_TOO_WEAK",
            )

    @contextmanager
    def within(self, caller: Caller) -> Iterator[None]:
        """Holds a call of `caller` open. See OpenCalls.within."""
        if not caller.token_id:
            yield
            return
        if not self.tokens.is_known(caller.token_id):
            raise UnauthenticatedError(_revoked(caller.name))
        left = None
        if caller.expires_at is not None:
            left = max(0.0, (caller.expires_at - datetime.now(UTC)).total_seconds())
        with self.calls.within(caller.token_id, most=self.policy.limits.calls_at_once, seconds_left=left):
            yield

    @contextmanager
    def within_anonymous(self, peer: str) -> Iterator[None]:
        """Holds a call open that needs no token. ResourceExhaustedError where `peer` makes too many."""
        if not self.policy.require_tokens:
            yield
            return
        _wait_for(self._anonymous.take(peer), "this address has sent too many requests without a token")
        with self.calls.within(f"peer {peer}", most=_ANONYMOUS_CALLS):
            yield

    def refuse(self, peer: str) -> None:
        """Counts a refused token of `peer`. Raises ResourceExhaustedError where there were too many."""
        _wait_for(self._refusals.take(peer), "too many tokens of this address were refused")

    async def _token_of(self, secret: str) -> StoredToken | None:
        digest = digest_of(secret)
        token = self.tokens.known(digest)
        if token is None and self._lookups.take("") == 0.0:
            token = await self.tokens.look_up(digest)
        if token is None or not hmac.compare_digest(token.digest, digest):
            return None
        return token

    async def _keep_uses(self) -> None:
        while True:
            await asyncio.sleep(_USE_FLUSH_SECONDS)
            await self.tokens.keep_uses()


def _revoked(name: str) -> str:
    return f'the token "{name}" was revoked; {_HOW_TO_MAKE}'


def peer_name(address: str) -> str:
    """By what an address is counted: an IPv6 network as a whole, as it is given out as a whole."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if ip.version == 6:
        mapped = ip.ipv4_mapped
        return str(mapped) if mapped else str(ipaddress.ip_network((ip, 64), strict=False).network_address)
    return str(ip)


def _wait_for(seconds: float, why: str) -> None:
    if seconds > 0.0:
        raise ResourceExhaustedError(
            f"{why}; wait {seconds:.1f} s", reason="RATE_LIMITED", retry_after=max(seconds, 0.001)
        )
