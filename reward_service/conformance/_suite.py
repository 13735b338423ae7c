"""Runs the rules against a server, one after another, and collects what comes of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import grpc
import structlog

from plaudit.errors import FieldViolation, InvalidArgumentError, UnauthenticatedError, UnavailableError
from reward_service.conformance._no_grpc import what_answers
from reward_service.conformance._rule import Broken, Level, Need, Rule, Skipped, Status, Verdict
from reward_service.conformance._run import Run
from reward_service.conformance._settings import Settings
from reward_service.conformance.rules import OPTIONAL_RULES, REQUIRED_RULES
from reward_service.conformance.rules.surroundings import quiet_stream

log = structlog.get_logger(__name__)

_CONNECT_SECONDS: Final = 10.0
_QUESTION_SECONDS: Final = 2.0
_MOST_PATIENCE_SECONDS: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Subject:
    """What was tested, as the server describes it."""

    address: str
    server_name: str = ""
    server_version: str = ""
    reward: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a run."""

    subject: Subject
    verdicts: Sequence[Verdict]
    seconds: float

    def of(self, level: Level) -> list[Verdict]:
        """The verdicts of a level."""
        return [verdict for verdict in self.verdicts if verdict.rule.level is level]

    @property
    def conforms(self) -> bool:
        """Whether no required rule was broken."""
        return not any(v.status in (Status.FAIL, Status.ERROR) for v in self.of(Level.REQUIRED))


Listener = Callable[[Verdict], None]


async def run_suite(settings: Settings, on_verdict: Listener | None = None) -> Report:
    """Checks the rules, and tells each verdict as it falls.

    Raises UnavailableError where nothing answers, UnauthenticatedError where the server wants another
    credential, and InvalidArgumentError where the settings do not fit the server.
    """
    began = time.monotonic()
    rules = _chosen(settings.rules)
    run = Run(settings)
    verdicts: list[Verdict] = []
    quiet: asyncio.Task[Verdict] | None = None

    def tell(verdict: Verdict) -> None:
        verdicts.append(verdict)
        if on_verdict is not None:
            on_verdict(verdict)

    try:
        await _connect(run)
        for rule in rules:
            if rule is quiet_stream and quiet is not None:
                tell(await quiet)
                continue
            tell(await _check(run, rule))
            # It waits for a minute, so the others are checked meanwhile; nobody is told to stop before.
            if quiet is None and quiet_stream in rules and run.may_talk:
                quiet = asyncio.create_task(_check(run, quiet_stream))
        return Report(_subject(run), verdicts, time.monotonic() - began)
    finally:
        if quiet is not None:
            quiet.cancel()
            await asyncio.gather(quiet, return_exceptions=True)
        await run.close()


def _chosen(ids: Sequence[str]) -> list[Rule]:
    every = [*REQUIRED_RULES, *OPTIONAL_RULES]
    known = {rule.id for rule in every} | {rule.name for rule in every}
    strangers = [id for id in ids if id not in known]
    if strangers:
        raise InvalidArgumentError(
            [
                FieldViolation("rule", f"{id} is no rule; there are {', '.join(r.id for r in every)}")
                for id in strangers
            ]
        )
    return [rule for rule in every if not ids or rule.id in ids or rule.name in ids]


async def _connect(run: Run) -> None:
    seconds = min(run.timeout, _CONNECT_SECONDS)
    try:
        await asyncio.wait_for(run.wire.channel.channel_ready(), seconds)
    except TimeoutError:
        found = await what_answers(run.settings.target, _QUESTION_SECONDS)
        raise UnavailableError(
            f"{run.settings.target.address} does not answer as a gRPC server within {seconds:g} s: {found}"
        ) from None
    try:
        await run.load()
    except Broken as broken:
        if broken.found.startswith("GetServerInfo ended with UNAUTHENTICATED"):
            raise UnauthenticatedError(f"{broken.found}; give the server's token with --token-file") from None


async def _check(run: Run, rule: Rule) -> Verdict:
    began = time.monotonic()
    status, text, way_out = Status.PASS, "", ""
    exchange: Sequence[str] = ()
    patience = min(rule.patience * max(run.timeout, 1.0), _MOST_PATIENCE_SECONDS)
    try:
        async with asyncio.timeout(patience):
            await _ready(run, rule)
            text = await rule.check(run) or ""
    except Skipped as skipped:
        status, text = Status.SKIPPED, str(skipped)
    except Broken as broken:
        status, text, exchange = Status.FAIL, broken.found, broken.exchange
        way_out = broken.way_out or rule.way_out
    except TimeoutError:
        status, way_out = Status.FAIL, rule.way_out
        text = f"the server answered again and again, and was not finished after {patience:g} s"
    except grpc.aio.AioRpcError as error:
        status, text, way_out = Status.FAIL, f"the call ended with {error.code().name}", rule.way_out
    except InvalidArgumentError:
        raise
    except Exception as error:
        log.exception("a rule could not be checked", rule=rule.id)
        status, text = Status.ERROR, f"the suite itself failed: {type(error).__name__}: {error}"
    return Verdict(rule, status, text, time.monotonic() - began, exchange, way_out)


async def _ready(run: Run, rule: Rule) -> None:
    if rule.need is Need.NOTHING:
        return
    try:
        await run.load()
    except Broken:
        raise Skipped("GetServerInfo failed: R01") from None
    if rule.need is Need.TALK:
        await run.require_talk()


def _subject(run: Run) -> Subject:
    address = run.settings.target.address
    if not run.loaded:
        return Subject(address)
    return Subject(address, run.info.server_name, run.info.server_version, run.reward.name)
