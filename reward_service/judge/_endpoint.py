"""One profile at work: calls within pace and budgets, repeated while there is time. None else retries."""

from __future__ import annotations

import asyncio
import math
import random
import time
from dataclasses import dataclass, field

import structlog

from plaudit.errors import FailedPreconditionError
from plaudit.service import Secrets
from plaudit.types.scoring import Failed, FailureCode
from reward_service.judge._breaker import Breaker
from reward_service.judge._budget import Amount, Budget, BudgetSpentError, Ledger
from reward_service.judge._pace import Pace
from reward_service.judge._provider import EndpointFaultError, FaultKind, Provider, Reply, Request
from reward_service.judge.settings import JudgeProfile

log = structlog.get_logger(__name__)

_FIRST_TOKENS_PER_CHAR = 0.4
"""Guess until the endpoint has told what texts take: above what most tokenizers need."""

_CAUTION = 1.2
_SMOOTHING = 0.05
_LONGEST_RETRY_DELAY_SECONDS = 3600.0
_SHORTEST_REDACTED_KEY = 4


class NotJudgedError(Exception):
    """A question got no verdict; `failed` says why."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.message)
        self.failed = failed


@dataclass(slots=True)
class Effort:
    """What a question took so far, over all its calls."""

    calls: int = 0
    input_tokens: float = 0.0
    output_tokens: float = 0.0
    cost: float = 0.0
    waits_for: str = "its turn"
    last_fault: EndpointFaultError | None = None
    started: float = field(default_factory=time.monotonic)


@dataclass(slots=True)
class Terms:
    """For whom a question is asked, within which budget, and until when (event loop time, may be moved)."""

    job_id: str
    budget: Budget
    deadline: float


class Endpoint:
    """A profile, with its key, limits and history."""

    def __init__(self, name: str, profile: JudgeProfile, secrets: Secrets, ledger: Ledger) -> None:
        """Reads the key. Raises FailedPreconditionError, which names it, where it is missing."""
        self.name = name
        self.profile = profile
        self._provider: Provider | None = None
        self._secrets = secrets
        self._ledger = ledger
        self._pace = Pace(profile)
        self._breaker = Breaker(profile)
        self._keys: list[str] = []
        self._tokens_per_char = _FIRST_TOKENS_PER_CHAR
        self._key = ""
        self.read_key()

    @property
    def identity(self) -> tuple[str, ...]:
        """What makes answers of two endpoints comparable."""
        profile = self.profile
        return (profile.provider, profile.base_url, profile.model, profile.verdict_format)

    @property
    def title(self) -> str:
        """The endpoint as people are told of it."""
        return f"judge {self.name} ({self.profile.model} at {self.profile.base_url})"

    def read_key(self) -> None:
        """Reads the key anew, as it may have been changed."""
        if self.profile.credential is None:
            return
        try:
            self._key = self._secrets.token(self.profile.credential)
        except FailedPreconditionError as error:
            raise FailedPreconditionError(
                f"judge profile {self.name}: {error.message}", reason=error.reason
            ) from None
        if self._key not in self._keys:
            self._keys.append(self._key)

    def connect(self) -> None:
        """Loads the SDK of the provider. Raises FailedPreconditionError where it is not installed."""
        if self._provider is None:
            self._provider = _provider(self.profile)

    def redact(self, text: str) -> str:
        """`text` of the endpoint's without our key, which it may repeat."""
        for key in self._keys:
            if len(key) >= _SHORTEST_REDACTED_KEY:
                text = text.replace(key, "[key]")
        return text

    async def probe(self, request: Request) -> EndpointFaultError | None:
        """Makes one call outside of pace, budget and breaker; what is wrong with it, or None."""
        try:
            await self._send(request)
        except EndpointFaultError as fault:
            return fault
        self._breaker.on_answer()
        return None

    async def call(self, request: Request, characters: int, terms: Terms, effort: Effort) -> Reply:
        """An answer to `request`, which has about `characters`.

        Repeats what another try can mend, as long as the next try begins before the deadline. Raises
        NotJudgedError. Is cancelled by whoever waits for it when the deadline is there.
        """
        tries = 0
        while True:
            tries += 1
            try:
                return await self._attempt(request, characters, terms, effort)
            except EndpointFaultError as fault:
                effort.last_fault = fault
                if fault.kind is FaultKind.REFUSED:
                    raise NotJudgedError(Failed(FailureCode.EXHAUSTED, self._told(fault.message))) from None
                if fault.kind is FaultKind.REJECTED:
                    raise NotJudgedError(Failed(FailureCode.INVALID, self._told(fault.message))) from None
                delay = self._delay(fault, tries)
                if asyncio.get_running_loop().time() + delay >= terms.deadline:
                    raise NotJudgedError(self.gave_up(effort, delay)) from None
                effort.waits_for = f"a repeat after {fault.message}"
                await asyncio.sleep(delay)

    def gave_up(self, effort: Effort, retry_delay: float | None = None) -> Failed:
        """The failure of a question whose time is over, or would be before the next call."""
        fault = effort.last_fault
        seconds = time.monotonic() - effort.started
        if fault is None:
            what = f"no answer within {seconds:.1f} s; it waited for {effort.waits_for}"
            return Failed(FailureCode.TIMEOUT, self._told(what))
        calls = f"{effort.calls} call{'s' if effort.calls != 1 else ''} in {seconds:.1f} s"
        if fault.is_silence:
            return Failed(FailureCode.TIMEOUT, self._told(f"{fault.message} ({calls})"))
        delay = min(self.profile.backoff_most_seconds if retry_delay is None else retry_delay, 86_400.0)
        return Failed(FailureCode.UNAVAILABLE, self._told(f"{fault.message} ({calls})"), delay)

    async def close(self) -> None:
        """Closes connections."""
        if self._provider is not None:
            await self._provider.close()

    async def _attempt(self, request: Request, characters: int, terms: Terms, effort: Effort) -> Reply:
        effort.waits_for = "one of the calls at once that the profile allows"
        async with self._pace.slot():
            self._check_breaker()
            self._check_pause(terms)
            input_tokens = characters * self._tokens_per_char * _CAUTION
            reserved = self._amount(input_tokens, request.max_tokens)
            effort.waits_for = "room in the job's budget"
            if terms.budget.is_limited:
                await self._reserve(terms, reserved)
            spent = Amount()
            try:
                effort.waits_for = "the profile's limits per minute, or a pause that the endpoint asked for"
                entry = await self._pace.turn(reserved.tokens)
                self._check_breaker()
                effort.waits_for = "the endpoint's answer"
                effort.calls += 1
                # Until the answer says otherwise: a call that is cancelled or times out may be billed.
                spent = reserved
                try:
                    reply = await self._send(request)
                except EndpointFaultError as fault:
                    spent = reserved if fault.may_have_cost else Amount()
                    self._on_fault(fault)
                    raise
                else:
                    spent = self._on_reply(reply, characters, reserved, effort)
                finally:
                    self._pace.settle(entry, spent.tokens)
            finally:
                if terms.budget.is_limited:
                    self._ledger.settle(terms.job_id, reserved, spent)
            return reply

    async def _send(self, request: Request) -> Reply:
        timeout = self.profile.request_timeout_seconds
        self.connect()
        assert self._provider is not None
        try:
            async with asyncio.timeout(timeout):
                return await self._provider.complete(request, self._key)
        except TimeoutError:
            message = f"no answer within {timeout:g} s"
            raise EndpointFaultError(FaultKind.DOWN, message, may_have_cost=True, is_silence=True) from None
        except EndpointFaultError as fault:
            fault.message = self.redact(fault.message)
            raise

    async def _reserve(self, terms: Terms, amount: Amount) -> None:
        try:
            await self._ledger.reserve(terms.job_id, terms.budget, amount)
        except BudgetSpentError as error:
            raise NotJudgedError(Failed(FailureCode.EXHAUSTED, self._told(str(error)))) from None

    def _check_breaker(self) -> None:
        was_refused = self._breaker.is_refusing
        failed = self._breaker.why_not()
        if failed is not None:
            raise NotJudgedError(Failed(failed.code, self._told(failed.message), failed.retry_delay))
        if was_refused:
            try:
                self.read_key()
            except FailedPreconditionError as error:
                raise NotJudgedError(Failed(FailureCode.EXHAUSTED, error.message)) from None

    def _check_pause(self, terms: Terms) -> None:
        left = self._pace.pause_left
        if left and asyncio.get_running_loop().time() + left >= terms.deadline:
            what = f"it asked for a pause, of which {left:.1f} s are left"
            raise NotJudgedError(Failed(FailureCode.UNAVAILABLE, self._told(what), left))

    def _on_fault(self, fault: EndpointFaultError) -> None:
        self._breaker.on_fault(fault)
        if fault.retry_after is not None:
            self._pace.pause(min(fault.retry_after, _LONGEST_RETRY_DELAY_SECONDS))
        log.info("a judge gave no answer", judge=self.name, kind=fault.kind, reason=fault.message)

    def _on_reply(self, reply: Reply, characters: int, reserved: Amount, effort: Effort) -> Amount:
        self._breaker.on_answer()
        if reply.input_tokens is None or reply.output_tokens is None:
            effort.input_tokens += reserved.tokens
            effort.cost += reserved.cost
            return reserved
        if reply.input_tokens and characters:
            ratio = reply.input_tokens / characters
            self._tokens_per_char += _SMOOTHING * (ratio - self._tokens_per_char)
        spent = self._amount(reply.input_tokens, reply.output_tokens)
        effort.input_tokens += reply.input_tokens
        effort.output_tokens += reply.output_tokens
        effort.cost += spent.cost
        return spent

    def _amount(self, input_tokens: float, output_tokens: float) -> Amount:
        return Amount(math.ceil(input_tokens) + output_tokens, self.profile.cost(input_tokens, output_tokens))

    def _delay(self, fault: EndpointFaultError, tries: int) -> float:
        profile = self.profile
        longest = profile.backoff_first_seconds * 2.0 ** min(tries - 1, 30)
        backoff = random.uniform(0.5, 1.0) * min(longest, profile.backoff_most_seconds)
        return max(backoff, min(fault.retry_after or 0.0, _LONGEST_RETRY_DELAY_SECONDS))

    def _told(self, what: str) -> str:
        return f"{self.title}: {what}"


def _provider(profile: JudgeProfile) -> Provider:
    try:
        if profile.provider == "anthropic":
            from reward_service.judge._anthropic import AnthropicProvider

            return AnthropicProvider(profile)
        from reward_service.judge._openai import OpenAiProvider

        return OpenAiProvider(profile)
    except ImportError as error:
        raise FailedPreconditionError(
            f"a judge needs packages that are not installed beside the reward server ({error}); install them "
            "with: pip install 'plaudit[judge]'",
            reason="EXTRA_MISSING",
        ) from None
