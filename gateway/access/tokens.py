"""The tokens of a gateway: made, listed, revoked, and known by the digests of their secrets."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

import structlog

from gateway.access.callers import current_caller_name
from gateway.access.secret import digest_of, new_secret
from gateway.names import name_violations
from gateway.store import Session, Store
from gateway.store.ids import new_id
from gateway.store.tokens import StoredToken
from plaudit.errors import (
    AlreadyExistsError,
    FieldViolation,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
)
from plaudit.types.roles import Role
from plaudit.types.validation import shown

log = structlog.get_logger(__name__)

MOST_TOKENS: Final = 1_000
_LATEST: Final = datetime(9999, 1, 1, tzinfo=UTC)


class TokenBook:
    """Tokens in the store, and in memory by digest: a call must not cost a query."""

    def __init__(self, store: Store, *, on_revoked: Callable[[StoredToken], None]) -> None:
        self._store = store
        self._on_revoked = on_revoked
        self._by_digest: dict[bytes, StoredToken] = {}
        self._by_id: dict[str, StoredToken] = {}
        self._revoked: set[str] = set()
        self._used: dict[str, datetime] = {}
        self._kept: dict[str, datetime] = {}

    async def load(self) -> None:
        """Reads the tokens of the store."""
        async with self._store.snapshot() as session:
            tokens = await session.tokens.list()
        for token in tokens:
            self._know(token)

    @property
    def has_admin(self) -> bool:
        """Whether there is an admin's token that has not expired."""
        now = datetime.now(UTC)
        return any(
            token.role is Role.ADMIN and (token.expires_at is None or token.expires_at > now)
            for token in self._by_id.values()
        )

    def known(self, digest: bytes) -> StoredToken | None:
        """The token whose secret has this digest, as far as memory goes."""
        return self._by_digest.get(digest)

    def is_known(self, token_id: str) -> bool:
        """Whether the token with this id was not revoked meanwhile."""
        return token_id in self._by_id

    async def look_up(self, digest: bytes) -> StoredToken | None:
        """The same, as far as the store goes."""
        async with self._store.snapshot() as session:
            token = await session.tokens.find_by_digest(digest)
        # It may have been revoked while it was read.
        if token is None or token.id in self._revoked:
            return None
        self._know(token)
        return token

    async def create(
        self,
        name: str,
        role: Role | None,
        *,
        expires_at: datetime | None = None,
        known_violations: Sequence[FieldViolation] = (),
    ) -> tuple[StoredToken, str]:
        """Makes a token; returns it with its secret, which is kept nowhere. `known_violations` is what was
        found wrong with the request already.

        Raises InvalidArgumentError, AlreadyExistsError (NAME_TAKEN), ResourceExhaustedError
        (TOO_MANY_TOKENS).
        """
        now = datetime.now(UTC)
        violations = [*_violations(name, role, expires_at, now), *known_violations]
        if violations or role is None:
            raise InvalidArgumentError(violations)
        secret = new_secret()
        token = StoredToken(
            new_id("tok"), name, role, digest_of(secret), now, expires_at, current_caller_name()
        )
        async with self._store.transaction() as session:
            await insert_token(session, token)
        self._know(token)
        return token, secret

    async def list(self) -> list[StoredToken]:
        """Every token, newest first."""
        async with self._store.snapshot() as session:
            tokens = await session.tokens.list()
        return [replace(token, last_used_at=self._used.get(token.id, token.last_used_at)) for token in tokens]

    async def revoke(self, id_or_name: str) -> StoredToken:
        """Forgets a token and ends its calls. Raises NotFoundError."""
        async with self._store.transaction() as session:
            token = await session.tokens.find(id_or_name)
            if token is None:
                raise NotFoundError(
                    f"there is no token {shown(id_or_name)}; list the tokens to see their names"
                )
            await session.tokens.delete(token.id)
        self._revoked.add(token.id)
        self._by_id.pop(token.id, None)
        self._by_digest.pop(token.digest, None)
        self._used.pop(token.id, None)
        self._kept.pop(token.id, None)
        self._on_revoked(token)
        return token

    def note_use(self, token_id: str) -> None:
        """Remembers that a token is used in this minute."""
        self._used[token_id] = datetime.now(UTC).replace(second=0, microsecond=0)

    async def keep_uses(self) -> None:
        """Stores when tokens were last used, where that has changed."""
        changed = {
            token_id: time for token_id, time in self._used.items() if self._kept.get(token_id) != time
        }
        if not changed:
            return
        try:
            async with self._store.transaction() as session:
                await session.tokens.note_used(changed)
        except sqlite3.Error:
            log.exception("when tokens were last used could not be stored")
        else:
            self._kept.update(changed)

    def _know(self, token: StoredToken) -> None:
        self._by_id[token.id] = token
        self._by_digest[token.digest] = token


async def insert_token(session: Session, token: StoredToken) -> None:
    """Adds a token. Raises AlreadyExistsError (NAME_TAKEN), ResourceExhaustedError (TOO_MANY_TOKENS)."""
    if await session.tokens.find(token.name) is not None:
        raise AlreadyExistsError(
            f"there is a token {shown(token.name)} already; revoke it, or choose another name"
        )
    if len(await session.tokens.list()) >= MOST_TOKENS:
        raise ResourceExhaustedError(
            f"there are {MOST_TOKENS:,} tokens, the most that is accepted; revoke those that are not used",
            reason="TOO_MANY_TOKENS",
        )
    await session.tokens.insert(token)


def _violations(
    name: str, role: Role | None, expires_at: datetime | None, now: datetime
) -> list[FieldViolation]:
    violations = name_violations(name, "ci-runner")
    if role is None:
        violations.append(
            FieldViolation("role", f"is missing; it is one of {', '.join(role.value for role in Role)}")
        )
    if expires_at is not None and not now < expires_at < _LATEST:
        violations.append(
            FieldViolation(
                "expires_at",
                f"{expires_at.isoformat()} is refused; it lies in the future, before {_LATEST:%Y-%m-%d}; "
                "left out, the token never expires",
            )
        )
    return violations
