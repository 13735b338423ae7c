"""Parts of the scorer that can be looked at by themselves."""

from __future__ import annotations

import ipaddress
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plaudit.errors import FailedPreconditionError
from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.rpc import ForbiddenAddressError, resolve
from plaudit.scoring import ProtocolCounters
from plaudit.scoring._backoff import backoff, jitter
from plaudit.scoring._compatibility import RewardRules, UselessError, describe
from plaudit.scoring._convert import (
    batch_frame,
    prompt_message,
    valid_completion,
    valid_text,
)
from plaudit.scoring._ready import ReadyQueue
from plaudit.scoring._retrying import Retries, may_help
from plaudit.scoring._routing import Router
from plaudit.scoring._tracing import trace_id, traceparent
from plaudit.scoring._work import PromptHead, Submission, Terms, Unit, envelope_bytes
from plaudit.types.addresses import may_be_dialled
from plaudit.types.jobs import RewardBinding
from plaudit.types.scoring import ChatMessage, Completion, Failed, FailureCode, Prompt, Purpose

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=60)  # surrogates included


@settings(deadline=None)  # the machine may be loaded
@given(ANY_TEXT)
def test_text_is_made_valid_and_valid_text_is_left_alone(text: str) -> None:
    mended = valid_text(text)
    mended.encode()
    if not any("\ud800" <= character <= "\udfff" for character in text):
        assert mended is text
    assert valid_text(mended) == mended


@settings(deadline=None)  # the machine may be loaded
@given(ANY_TEXT, ANY_TEXT, ANY_TEXT, st.integers(0, 2**32 - 1))
def test_sizes_are_never_underestimated(text: str, prefill: str, raw_text: str, tokens: int) -> None:
    completion, _ = valid_completion(
        Completion("1-12345", text, token_count=tokens, prefill=prefill, raw_text=raw_text)
    )
    prompt = prompt_message(Prompt("1-g7", (ChatMessage("user", "hi"),), {"a": text}, "p"))
    submission = _submission(completion, prompt)
    unit = _unit(submission)
    keys = ("k" * 63,) * 4
    frame = batch_frame(
        "b" * 36,
        [(prompt, [completion])],
        timeout_seconds=86_400.5,
        step=2**40,
        purpose=Purpose.EVAL,
        reward_keys=keys,
        traceparent=traceparent(trace_id("run-0", 1), "b" * 36),
    )
    bound = unit.frame_bytes + envelope_bytes(keys)
    assert bound - 800 <= frame.ByteSize() <= bound


def test_counters_add_up() -> None:
    total = ProtocolCounters.total([ProtocolCounters(late=1, breaks=2), ProtocolCounters(late=3)])
    assert total == ProtocolCounters(late=4, breaks=2)


@pytest.mark.parametrize("tries", [1, 2, 5, 1000])
def test_backoff_doubles_up_to_the_most(tries: int) -> None:
    assert backoff(tries, 0.2, 5.0) == min(5.0, 0.2 * 2 ** min(tries - 1, 10))
    assert all(0.5 <= jitter() <= 1.0 for _ in range(100))


@pytest.mark.parametrize(
    ("literal", "allowed"),
    [
        ("127.0.0.1", True),
        ("10.1.2.3", True),
        ("8.8.8.8", True),
        ("::1", True),
        ("fd00::1", True),
        ("169.254.169.254", False),
        ("169.254.0.1", False),
        ("100.100.100.200", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("fe80::1", False),
        ("fe80::1%eth0", False),
        ("fd00:ec2::254", False),
        ("::", False),
        ("::ffff:169.254.169.254", False),
        ("::ffff:127.0.0.1", True),
        ("64:ff9b::a9fe:a9fe", False),
    ],
)
def test_which_addresses_may_be_dialled(literal: str, allowed: bool) -> None:
    assert may_be_dialled(ipaddress.ip_address(literal)) is allowed


async def test_the_address_that_was_checked_is_the_one_that_is_dialled() -> None:
    (four,) = await resolve("127.0.0.1:7433", 5.0)
    assert (four.target, four.authority) == ("ipv4:127.0.0.1:7433", "127.0.0.1:7433")
    (six,) = await resolve("[::1]:7433", 5.0)
    assert (six.target, six.authority) == ("ipv6:[::1]:7433", "[::1]:7433")
    named = await resolve("localhost:7433", 5.0)
    assert "ipv4:127.0.0.1:7433" in [endpoint.target for endpoint in named]
    assert {endpoint.authority for endpoint in named} == {"localhost:7433"}
    with pytest.raises(ForbiddenAddressError, match=r"leads to ::ffff:169\.254\.169\.254"):
        await resolve("[::ffff:169.254.169.254]:80", 5.0)


def test_all_that_is_wrong_with_a_server_is_told_at_once() -> None:
    info = pb.GetServerInfoResponse(
        min_protocol_version=5, max_protocol_version=6, rewards=[pb.Reward(name="a"), pb.Reward(name="b")]
    )
    bindings = [RewardBinding(name=n, server="s", reward=n) for n in ("a", "x", "y")]
    with pytest.raises(UselessError) as caught:
        describe(info, "s", bindings)
    error = caught.value.error
    assert isinstance(error, FailedPreconditionError)
    assert all(word in error.message for word in ("5 to 6", "'x'", "'y'", "a, b"))


def test_limits_that_are_not_named_are_those_of_grpc() -> None:
    info = pb.GetServerInfoResponse(
        min_protocol_version=1,
        max_protocol_version=9,
        rewards=[pb.Reward(name="a", min_value=-1e9, max_value=2.0), pb.Reward(name="b")],
    )
    bindings = [RewardBinding(name=n, server="s", reward=n) for n in ("a", "b")]
    description = describe(info, "s", bindings)
    assert description.max_frame_bytes == 4 * 1024 * 1024
    assert not description.retains_results
    assert (description.rules["a"].low, description.rules["a"].high) == (-1e6, 2.0)
    assert (description.rules["b"].low, description.rules["b"].high) == (-1e6, 1e6)
    info.limits.max_frame_bytes = 2**40
    assert describe(info, "s", bindings).max_frame_bytes == 16 * 1024 * 1024


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (Failed(FailureCode.UNAVAILABLE, ""), True),
        (Failed(FailureCode.TIMEOUT, ""), True),
        (Failed(FailureCode.INTERNAL, ""), False),
        (Failed(FailureCode.INTERNAL, "", retry_delay=0.0), True),
        (Failed(FailureCode.INVALID, ""), False),
        (Failed(FailureCode.INVALID, "", retry_delay=1.0), False),
        (Failed(FailureCode.EXHAUSTED, "", retry_delay=1.0), False),
    ],
)
def test_which_failures_are_tried_again(failure: Failed, expected: bool) -> None:
    assert may_help(failure) is expected


def test_a_timeout_is_tried_once_more_and_others_up_to_the_limit() -> None:
    retries = Retries(lambda units: None)
    submission = _submission(Completion("1-0", "x"), pb.PromptGroup(group_id="g"))
    unit = _unit(submission, max_attempts=3, retry_seconds=100.0)
    unit.first_sent_at = 0.0
    timeout, busy = Failed(FailureCode.TIMEOUT, ""), Failed(FailureCode.UNAVAILABLE, "")
    assert retries.delay(unit, timeout, 1.0) is not None
    unit.timeouts = unit.attempts = 1
    assert retries.delay(unit, timeout, 1.0) is None
    assert retries.delay(unit, busy, 1.0) is not None
    unit.attempts = 2
    assert retries.delay(unit, busy, 1.0) is None
    unit.attempts = 0
    assert retries.delay(unit, busy, 100.0) is None
    assert 10.0 <= (retries.delay(unit, Failed(FailureCode.UNAVAILABLE, "", 10.0), 1.0) or 0) <= 12.5


def test_frames_take_what_fits() -> None:
    prompt = pb.PromptGroup(group_id="g")
    units = [_unit(_submission(Completion(f"1-{i}", "x" * 100), prompt)) for i in range(10)]
    queue = ReadyQueue(units[0].kind)
    for unit in units:
        queue.push(unit)
    first = queue.take(4, 10**6)
    by_bytes = queue.take(64, envelope_bytes(units[0].kind.keys) + 2 * units[0].frame_bytes)
    assert first == units[:4]
    assert by_bytes == units[4 : 4 + len(by_bytes)]
    assert len(by_bytes) in (2, 3)  # the prompt that they share is counted once
    units[6].submissions[0].taken = units[7].submissions[0].taken = True
    assert [u for u in queue.take(64, 10**6) if u in (units[6], units[7])] == []
    assert queue.completions == queue.bytes == 0


def test_rewards_share_a_batch_by_patience_and_scope() -> None:
    def binding(name: str, timeout: float, max_attempts: int = 5) -> RewardBinding:
        return RewardBinding(
            name=name, server="s", reward=name, timeout_seconds=timeout, max_attempts=max_attempts
        )

    router = Router(
        [binding("a", 5.0), binding("b", 60.0), binding("c", 5.0), binding("rank", 5.0), binding("d", 5.0, 1)]
    )
    each = RewardRules(low=-math.inf, high=math.inf, is_deterministic=False, whole_group=False)
    whole = RewardRules(low=-math.inf, high=math.inf, is_deterministic=False, whole_group=True)
    router.learn({"a": each, "b": each, "c": each, "rank": whole, "d": each})
    prompt = pb.PromptGroup(group_id="g")
    submissions = [_submission(Completion(f"1-{i}", "x"), prompt, group_size=2) for i in range(2)]
    first = router.route(submissions[:1], 0.0)
    assert [(u.kind.keys, u.completions) for u in first] == [(("a", "c"), 1), (("b",), 1), (("d",), 1)]
    second = router.route(submissions[1:2], 0.0)
    assert [u.kind.keys for u in second] == [("a", "c"), ("b",), ("rank",), ("d",)]
    assert [u.completions for u in second] == [1, 1, 2, 1]
    assert second[2].submissions == tuple(submissions)
    with pytest.raises(UselessError, match="'rank' changed"):
        router.check_scopes({"a": each, "b": each, "c": each, "rank": each, "d": each}, "s")


def _submission(completion: Completion, prompt: pb.PromptGroup, group_size: int = 1) -> Submission:
    return Submission(
        completion,
        valid_completion(completion)[1],
        PromptHead(Prompt(prompt.group_id, ()), prompt, prompt.ByteSize()),
        Terms(1, Purpose.TRAIN, group_size, ("k",), wants_all=True),
        0.0,
    )


def _unit(submission: Submission, **tries: Any) -> Unit:
    router = Router([RewardBinding(name="k", server="s", reward="k", **tries)])
    router.learn({"k": RewardRules(low=0.0, high=1.0, is_deterministic=False, whole_group=False)})
    (unit,) = router.route([submission], 0.0)
    return unit
