"""What callers may ask of reward functions.

A job that names one takes its source over as it is then, so that a function can be deleted, or uploaded anew
under its name, whatever runs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, cast, get_args

from gateway.jobs.creation import REQUEST_ID_LIFETIME, check_request_id
from gateway.jobs.ports import AskedReward, RewardServerCatalog
from gateway.jobs.requests import BUILTIN_SERVER, FUNCTION_REWARD, source_fault
from gateway.pages import Page, page_size
from gateway.store import Session, Store
from gateway.store.ids import new_id
from gateway.store.reward_functions import FunctionFormat, RewardFunction
from plaudit.errors import (
    FailedPreconditionError,
    FieldViolation,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
)
from plaudit.types.validation import shown

FORMATS: Final[tuple[str, ...]] = get_args(FunctionFormat)
MAX_FUNCTIONS: Final = 10_000

_DEFAULT_PAGE: Final = 20
_LONGEST_NAME: Final = 128
_ODD_NAME: Final = re.compile(r"rf_[0-9A-Z]+|\.+|.*[/\\].*")
"""An id, a step in a path, or a path."""
_FILENAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_DEFAULT_FILENAME: Final = "reward.py"


class RewardFunctionService:
    """Stores, shows and deletes reward functions. Methods raise NotFoundError for one that is not known."""

    def __init__(self, store: Store, reward_servers: RewardServerCatalog) -> None:
        """`reward_servers` has the server that will run them, which checks them if it is up."""
        self._store = store
        self._reward_servers = reward_servers

    async def create(
        self, name: str, content: bytes, *, file_format: str = "", filename: str = "", request_id: str = ""
    ) -> RewardFunction:
        """Stores the Python file `content`. The same content under the same name and format returns the same
        function; another content gets an id of its own, and goes by the name from then on.

        `file_format` "" is trl. Repeated with the same `request_id` within 24 hours it returns the first one.

        Raises InvalidArgumentError (name, format, file: what the reward server says of it, too),
        FailedPreconditionError (REQUEST_ID_REUSED), ResourceExhaustedError (TOO_MANY_REWARD_FUNCTIONS).
        """
        check_request_id(request_id)
        function, violations = _read(name, content, file_format or FORMATS[0], filename)
        if violations:
            raise InvalidArgumentError([*violations, *await self._told_by_the_server(function)])
        asked = hashlib.sha256(
            "\n".join([function.name, function.format, function.sha256]).encode()
        ).hexdigest()
        async with self._store.snapshot() as session:
            known = await _known(session, function, request_id, asked)
        if known is not None:
            return known
        if refused := await self._told_by_the_server(function):
            raise InvalidArgumentError(refused)
        async with self._store.transaction() as session:
            known = await _known(session, function, request_id, asked)
            if known is not None:
                return known
            if await session.reward_functions.count() >= MAX_FUNCTIONS:
                raise ResourceExhaustedError(
                    f"{MAX_FUNCTIONS:,} reward functions are stored, which is the most; delete some",
                    reason="TOO_MANY_REWARD_FUNCTIONS",
                )
            await session.reward_functions.insert(function)
            if request_id:
                time = function.created_at
                await session.reward_functions.note_request(
                    request_id, function, asked, time, since=time - REQUEST_ID_LIFETIME
                )
        return function

    async def get(self, id_or_name: str) -> RewardFunction:
        """The function with this id, else the newest one with this name."""
        async with self._store.snapshot() as session:
            return await _required(session, id_or_name)

    async def list(self, *, limit: int = 0, after: str = "") -> Page[RewardFunction]:
        """Functions, newest first. `limit` 0 is 20, above 500 is 500. `after` is the id of the last function
        of the page before, which is also that page's `next_page_token`.
        """
        size = page_size(limit, _DEFAULT_PAGE)
        async with self._store.snapshot() as session:
            last = await session.reward_functions.find(after) if after else None
            if after and last is None:
                raise InvalidArgumentError.of(
                    "page_token",
                    f"{shown(after)} is not the id of a reward function; list again from the start",
                )
            found = await session.reward_functions.list(limit=size + 1, after=last.id if last else None)
        return Page(found[:size], found[size - 1].id if len(found) > size else "")

    async def delete(self, id_or_name: str) -> RewardFunction:
        """Deletes a function, and returns what it was; jobs that named it have its source."""
        async with self._store.transaction() as session:
            function = await _required(session, id_or_name)
            await session.reward_functions.delete(function.id)
        return function

    async def _told_by_the_server(self, function: RewardFunction) -> Sequence[FieldViolation]:
        """What the reward server finds wrong with the file; a function without a source has none."""
        server = await self._reward_servers.find(BUILTIN_SERVER) if function.source else None
        if server is None:
            return []  # a job that names the function is told
        config = {"source": function.source, "filename": function.filename, "format": function.format}
        asked = AskedReward("file", FUNCTION_REWARD, config)
        refused = (await self._reward_servers.check_configs(server, [asked])).refused
        return [
            FieldViolation("format" if v.field.endswith(".format") else "file", v.message) for v in refused
        ]


def _read(
    name: str, content: bytes, file_format: str, filename: str
) -> tuple[RewardFunction, list[FieldViolation]]:
    """The function as far as it can be read, and what is wrong with it: a file that is none is no source, and
    the usual format stands for one that there is not.
    """
    violations = []
    if not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable() or _ODD_NAME.fullmatch(name):
        violations.append(
            FieldViolation(
                "name",
                f"{shown(name)} is refused: a name has 1 to {_LONGEST_NAME} printable characters, no slash "
                'among them, and does not look like an id; for example "lengths"',
            )
        )
    if file_format not in FORMATS:
        violations.append(
            FieldViolation("format", f"{shown(file_format)} is refused; it is one of {', '.join(FORMATS)}")
        )
        file_format = FORMATS[0]
    source = ""
    try:
        source = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        violations.append(
            FieldViolation("file", f"is no text in UTF-8 ({error.reason} at byte {error.start}); save it so")
        )
    else:
        fault = "is empty; send a Python file" if not source.strip() else source_fault(source)
        if fault is not None:
            violations.append(FieldViolation("file", fault))
            source = ""
    basename = re.split(r"[/\\]", filename)[-1]
    function = RewardFunction(
        id=new_id("rf"),
        name=name,
        format=cast(FunctionFormat, file_format),
        filename=basename if _FILENAME.fullmatch(basename) else _DEFAULT_FILENAME,
        source=source,
        sha256=hashlib.sha256(source.encode()).hexdigest(),
        created_at=datetime.now(UTC),
    )
    return function, violations


async def _known(
    session: Session, function: RewardFunction, request_id: str, asked: str
) -> RewardFunction | None:
    if request_id:
        since = datetime.now(UTC) - REQUEST_ID_LIFETIME
        repeated = await session.reward_functions.find_request(request_id, since=since)
        if repeated is not None:
            if repeated.asked_sha256 != asked or repeated.function is None:
                why = "is another" if repeated.asked_sha256 != asked else "was deleted"
                raise FailedPreconditionError(
                    f"request_id {shown(request_id)} belongs to reward function {repeated.function_id}, "
                    f"which {why}; a new one needs a new request_id",
                    reason="REQUEST_ID_REUSED",
                )
            return repeated.function
    return await session.reward_functions.find_content(function.name, function.format, function.sha256)


async def _required(session: Session, id_or_name: str) -> RewardFunction:
    function = await session.reward_functions.find(id_or_name)
    if function is None:
        raise NotFoundError(
            f"there is no reward function {shown(id_or_name)}; list the reward functions to see their ids"
        )
    return function
