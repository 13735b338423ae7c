"""The judge: questions in, verdicts out; each question once, on disk for the next time, with one repeat."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from plaudit.errors import FailedPreconditionError, FieldViolation, UnavailableError
from plaudit.service import DataDirectory, Secrets
from plaudit.types.scoring import Failed, FailureCode
from plaudit.types.validation import shown
from reward_service.judge._budget import Budget, Ledger
from reward_service.judge._cache import VerdictCache
from reward_service.judge._endpoint import Effort, Endpoint, NotJudgedError, Terms
from reward_service.judge._fence import new_nonce
from reward_service.judge._provider import EndpointFaultError, FaultKind, Reply, Request
from reward_service.judge._question import Question, Sampling
from reward_service.judge._verdict import Form, Mark, NoVerdictError, Verdict, read_verdict
from reward_service.judge.settings import JudgeProfile, JudgeSettings

log = structlog.get_logger(__name__)

_ANSWERS_READ: Final = 2
"""One repeat, where the first answer is no verdict."""

_PROBE_TOKENS: Final = 16
_PROBE_GOOD_SECONDS: Final = 60.0
_CHECK_AGAIN_SECONDS: Final = 5.0
_PROBE_FORM: Final = Form("scores", {"ready": Mark(0, 1)})


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, and what it took: nothing where it was known, or is asked for somebody else already."""

    verdict: Verdict
    effort: Effort
    is_cached: bool


@dataclass(slots=True)
class _Asking:
    """A question under way, for all who wait for it."""

    terms: Terms
    effort: Effort = field(default_factory=Effort)
    waiters: int = 0
    task: asyncio.Task[Verdict] | None = None


class Judge:
    """All profiles of a reward server. `open_judge` makes it."""

    def __init__(self, endpoints: Sequence[Endpoint], cache: VerdictCache, ledger: Ledger) -> None:
        self._endpoints = {endpoint.name: endpoint for endpoint in endpoints}
        self._cache = cache
        self._ledger = ledger
        self._asking: dict[tuple[str, Budget, str], _Asking] = {}
        self._probes: dict[tuple[str, Sampling], tuple[asyncio.Task[EndpointFaultError | None], float]] = {}

    def profile(self, name: str) -> JudgeProfile:
        """A profile that `check` has found."""
        return self._endpoints[name].profile

    async def ask(self, name: str, question: Question, terms: Terms) -> Judgement:
        """The verdict on a question. Raises NotJudgedError when there is none by the deadline."""
        endpoint = self._endpoints[name]
        key = question.key(endpoint.identity)
        known = await self._cache.get(key)
        if known is not None:
            try:
                return Judgement(read_verdict(known, question.form), Effort(), is_cached=True)
            except NoVerdictError as error:
                log.warning("a cached verdict is not in its form; the judge is asked anew", error=str(error))
        # Budgets are a job's own, so that none waits for a call that another one cannot pay.
        place = (terms.job_id, terms.budget, key)
        asking = self._asking.get(place)
        is_first = asking is None
        if asking is None:
            asking = self._asking[place] = _Asking(terms)
            asking.task = asyncio.create_task(self._verdict(endpoint, question, key, asking))
            asking.task.add_done_callback(_look_at)
        asking.terms.deadline = max(asking.terms.deadline, terms.deadline)
        verdict = await self._wait(endpoint, place, asking, terms.deadline)
        return Judgement(verdict, asking.effort if is_first else Effort(), is_cached=not is_first)

    async def check(self, name: str, sampling: Sampling, budget: Budget) -> list[FieldViolation]:
        """What is wrong with a profile, for a job with these parameters and this budget.

        Asks the endpoint something small. Raises UnavailableError where that cannot be told now.
        """
        endpoint = self._endpoints.get(name)
        if endpoint is None:
            return [FieldViolation("profile", self._unknown(name))]
        wrong: list[FieldViolation] = []
        if budget.cost is not None and not endpoint.profile.has_prices:
            fault = (
                f"profile {shown(name)} has no input_price and output_price; set them, or use budget_tokens"
            )
            wrong.append(FieldViolation("budget_cost", fault))
        if sampling.seed is not None and endpoint.profile.provider == "anthropic":
            fault = (
                f"{sampling.seed}, but profile {shown(name)} is of a provider that takes none; leave it out"
            )
            wrong.append(FieldViolation("seed", fault))
        if wrong:
            return wrong
        try:
            endpoint.connect()
            endpoint.read_key()
        except FailedPreconditionError as error:
            return [FieldViolation("profile", f"{shown(name)}: {error.message}")]
        fault_found = await self._probe(endpoint, sampling)
        return [] if fault_found is None else await self._told(endpoint, fault_found)

    async def close(self) -> None:
        """Ends what is under way."""
        tasks = [asking.task for asking in self._asking.values() if asking.task is not None]
        tasks += [task for task, _ in self._probes.values()]  # type: ignore[misc]  # tasks of two kinds
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait(
        self, endpoint: Endpoint, place: tuple[str, Budget, str], asking: _Asking, deadline: float
    ) -> Verdict:
        assert asking.task is not None
        asking.waiters += 1
        try:
            left = max(0.0, deadline - asyncio.get_running_loop().time())
            await asyncio.wait({asking.task}, timeout=left)
            if asking.task.done():
                return asking.task.result()
            raise NotJudgedError(endpoint.gave_up(asking.effort))
        finally:
            asking.waiters -= 1
            if not asking.waiters and self._asking.get(place) is asking:
                del self._asking[place]
                asking.task.cancel()

    async def _verdict(self, endpoint: Endpoint, question: Question, key: str, asking: _Asking) -> Verdict:
        refused = ""
        for _ in range(_ANSWERS_READ):
            nonce = new_nonce()
            request = _request(
                endpoint.profile, question.system(nonce), question.user(nonce, refused), question
            )
            reply = await endpoint.call(request, question.characters, asking.terms, asking.effort)
            text = endpoint.redact(reply.text)
            try:
                verdict = _verdict_of(reply, text, question.form)
            except NoVerdictError as error:
                refused = str(error)
                continue
            except _RefusedError:
                what = f"{endpoint.title}: it refused to judge this completion"
                raise NotJudgedError(Failed(FailureCode.INVALID, what)) from None
            self._cache.put(key, verdict.to_json(question.form))
            return verdict
        what = f"{endpoint.title}: no verdict in {_ANSWERS_READ} answers; of the last one, {refused}"
        raise NotJudgedError(Failed(FailureCode.INTERNAL, what))

    async def _probe(self, endpoint: Endpoint, sampling: Sampling) -> EndpointFaultError | None:
        """What an endpoint says to a small call with these parameters; a good answer holds for a while.

        The call goes on when whoever asked no longer waits: a model that takes long to load answers the next.
        """
        place = (endpoint.name, sampling)
        loop = asyncio.get_running_loop()
        task, since = self._probes.get(place, (None, 0.0))
        if task is None or (task.done() and loop.time() > since + _PROBE_GOOD_SECONDS):
            is_reasoning = endpoint.profile.token_limit_field == "max_completion_tokens"  # noqa: S105
            request = Request(
                "You judge answers. This call only asks whether you are there.",
                f"Answer with one JSON object and nothing else: {_PROBE_FORM.example()}",
                _PROBE_FORM.schema() if endpoint.profile.verdict_format == "json_schema" else None,
                sampling.temperature,
                # A reasoning model refuses where there is no room for its reasoning.
                sampling.max_tokens if is_reasoning else min(sampling.max_tokens, _PROBE_TOKENS),
                sampling.seed,
            )
            task = asyncio.create_task(endpoint.probe(request))
            self._probes[place] = (task, loop.time())
        fault = await asyncio.shield(task)
        if fault is not None:
            self._probes.pop(place, None)
        else:
            await self._ledger.remember_endpoint(json.dumps(endpoint.identity))
        return fault

    async def _told(self, endpoint: Endpoint, fault: EndpointFaultError) -> list[FieldViolation]:
        profile = endpoint.profile
        title = f"{shown(endpoint.name)} ({profile.model} at {profile.base_url})"
        match fault.kind:
            case FaultKind.BUSY:
                return []
            case FaultKind.REFUSED:
                key = f'key "{profile.credential}"' if profile.credential else "lack of a key"
                way_out = f"look at its {key}, its model and its base_url"
            case FaultKind.REJECTED:
                way_out = "change temperature, seed or max_tokens, or the profile's verdict_format"
            case FaultKind.UNREACHABLE if not await self._ledger.has_seen_endpoint(
                json.dumps(endpoint.identity)
            ):
                way_out = "look at its base_url, and whether the endpoint runs"
            case _:
                raise UnavailableError(
                    f"judge profile {title}: {fault.message}",
                    reason="JUDGE_UNAVAILABLE",
                    retry_after=_CHECK_AGAIN_SECONDS,
                )
        return [FieldViolation("profile", f"{title} cannot be used: {fault.message}; {way_out}")]

    def _unknown(self, name: str) -> str:
        if not self._endpoints:
            return (
                f"{shown(name)}: this reward server has no judge; its operator adds one to plaudit.toml as "
                "[reward.judge.profiles.NAME]"
            )
        return f"{shown(name)} is no judge of this reward server; there are {', '.join(self._endpoints)}"


class _RefusedError(Exception):
    pass


def _look_at(task: asyncio.Task[Verdict]) -> None:
    """Takes note of a failure that nobody waits for any more."""
    if not task.cancelled():
        task.exception()


def _request(profile: JudgeProfile, system: str, user: str, question: Question) -> Request:
    return Request(
        system,
        user,
        question.form.schema() if profile.verdict_format == "json_schema" else None,
        question.sampling.temperature,
        question.sampling.max_tokens,
        question.sampling.seed,
    )


def _verdict_of(reply: Reply, text: str, form: Form) -> Verdict:
    match reply.finish:
        case "refusal":
            raise _RefusedError
        case "malformed":
            raise NoVerdictError("it is not what its API answers")
        case "length":
            raise NoVerdictError("it was cut off at max_tokens")
        case "done":
            return read_verdict(text, form)


@asynccontextmanager
async def open_judge(settings: JudgeSettings, secrets: Secrets, folder: Path) -> AsyncIterator[Judge]:
    """The judge of a reward server, with its files in `folder`, which is its own while it is open.

    Raises FailedPreconditionError: a key is missing, or the folder is in use, or the budgets are unreadable.
    """
    async with AsyncExitStack() as stack:
        if settings.profiles:
            stack.enter_context(DataDirectory(folder))
            ledger = Ledger(folder / "judge-budgets.sqlite3")
            cache = VerdictCache(folder / "judge-verdicts.sqlite3", settings.cache_max_verdicts)
        else:
            # Nothing will be asked: no file, and no folder that only one server may have.
            ledger = Ledger(Path(":memory:"))
            cache = VerdictCache(folder, 0)
        stack.push_async_callback(ledger.close)
        stack.push_async_callback(cache.close)
        endpoints: list[Endpoint] = []
        for name, profile in settings.profiles.items():
            endpoints.append(Endpoint(name, profile, secrets, ledger))
            stack.push_async_callback(endpoints[-1].close)
            # Now, as loading an SDK takes a second, in which a server at work would answer nobody. What is
            # missing is told to the jobs that ask.
            with suppress(FailedPreconditionError):
                endpoints[-1].connect()
        judge = Judge(endpoints, cache, ledger)
        stack.push_async_callback(judge.close)
        yield judge
