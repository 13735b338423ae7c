"""From a completion to the units that are sent: by timeout, by scope, and by what was asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from plaudit.errors import FailedPreconditionError
from plaudit.scoring._compatibility import RewardRules, UselessError
from plaudit.scoring._work import BatchKind, Lane, Submission, Unit
from plaudit.types.jobs import RewardBinding
from plaudit.types.scoring import Purpose

_KINDS_KEPT: Final = 64


class Router:
    """Makes units of submissions. Rewards share a batch where their timeout and their scope are equal.

    Each reward thus has exactly the time budget that the job gives it, at the price of sending a completion
    once per distinct timeout.
    """

    def __init__(self, bindings: Sequence[RewardBinding]) -> None:
        self._bindings = bindings
        self._lanes: list[Lane] = []
        self._kinds: dict[tuple[Lane, tuple[str, ...], int, Purpose], BatchKind] = {}
        self._groups: dict[tuple[str, Lane, tuple[str, ...]], list[Submission]] = {}

    @property
    def knows_lanes(self) -> bool:
        """Whether a replica has said which rewards see a group whole."""
        return bool(self._lanes)

    def learn(self, rules: Mapping[str, RewardRules]) -> None:
        """Takes the scopes from the first description."""
        keys_by_lane: dict[tuple[float, bool], list[str]] = {}
        for binding in self._bindings:
            lane = binding.timeout_seconds, rules[binding.name].whole_group
            keys_by_lane.setdefault(lane, []).append(binding.name)
        self._lanes = [
            Lane(tuple(keys), timeout, whole_group) for (timeout, whole_group), keys in keys_by_lane.items()
        ]

    def check_scopes(self, rules: Mapping[str, RewardRules], server: str) -> None:
        """Raises UselessError where a scope is another than in the first description."""
        for lane in self._lanes:
            for key in lane.keys:
                if rules[key].whole_group != lane.whole_group:
                    raise UselessError(
                        FailedPreconditionError(
                            f"reward server {server!r} cannot be used: the scope of reward {key!r} changed "
                            "since the run began; start the run again",
                            reason="REWARD_SERVER_UNUSABLE",
                        )
                    )

    def route(self, submission: Submission, now: float) -> list[Unit]:
        """The units that are ready with this submission: its own, and that of a group that is now whole."""
        units: list[Unit] = []
        for lane in self._lanes:
            keys = lane.keys
            if not submission.wants_all:
                keys = tuple(key for key in keys if key in submission.reward_names)
                if not keys:
                    continue
            if lane.whole_group and submission.group_size > 1:
                submissions = self._collect(submission, lane, keys)
                if submissions is None:
                    continue
            else:
                submissions = (submission,)
            units.append(Unit(submissions, self._kind(lane, keys, submission), now))
        return units

    def expired(self, now: float) -> list[tuple[Submission, tuple[str, ...]]]:
        """Takes out the groups that did not become whole in time; returns completions and open keys."""
        expired: list[tuple[Submission, tuple[str, ...]]] = []
        for place, group in list(self._groups.items()):
            if any(submission.whole_by <= now for submission in group):
                del self._groups[place]
                expired.extend((submission, place[2]) for submission in group)
        return expired

    def drop_taken(self) -> None:
        """Forgets groups of which nothing is waited for any more."""
        for place, group in list(self._groups.items()):
            if all(submission.taken for submission in group):
                del self._groups[place]

    def _kind(self, lane: Lane, keys: tuple[str, ...], submission: Submission) -> BatchKind:
        place = lane, keys, submission.step, submission.purpose
        kind = self._kinds.get(place)
        if kind is None:
            if len(self._kinds) >= _KINDS_KEPT:
                self._kinds.clear()
            kind = self._kinds[place] = BatchKind(
                keys, lane.timeout_seconds, submission.step, submission.purpose, is_retry=False, apart=0
            )
        return kind

    def _collect(
        self, submission: Submission, lane: Lane, keys: tuple[str, ...]
    ) -> tuple[Submission, ...] | None:
        place = submission.group_id, lane, keys
        group = self._groups.setdefault(place, [])
        group.append(submission)
        if len(group) < submission.group_size:
            return None
        del self._groups[place]
        return tuple(group)
