"""From a completion to the units that are sent: by patience, by scope, and by what was asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from plaudit.errors import FailedPreconditionError
from plaudit.scoring._compatibility import RewardRules, UselessError
from plaudit.scoring._work import BatchKind, Lane, Patience, Submission, Terms, Unit
from plaudit.types.jobs import RewardBinding


class Router:
    """Makes units of submissions. Rewards share a batch where their patience and their scope are equal.

    Each reward thus has exactly the time and the tries that the job gives it, at the price of sending a
    completion once per distinct patience.
    """

    def __init__(self, bindings: Sequence[RewardBinding]) -> None:
        self._bindings = bindings
        self._lanes: list[Lane] = []
        self._last_terms: Terms | None = None
        self._last_kinds: list[tuple[BatchKind, bool]] = []
        self._groups: dict[tuple[str, BatchKind], list[Submission]] = {}

    @property
    def knows_lanes(self) -> bool:
        """Whether a replica has said which rewards see a group whole."""
        return bool(self._lanes)

    def learn(self, rules: Mapping[str, RewardRules]) -> None:
        """Takes the scopes from the first description."""
        keys_by_lane: dict[tuple[Patience, bool], list[str]] = {}
        for binding in self._bindings:
            patience = Patience(binding.timeout_seconds, binding.max_attempts, binding.retry_seconds)
            lane = patience, rules[binding.name].whole_group
            keys_by_lane.setdefault(lane, []).append(binding.name)
        self._lanes = [
            Lane(tuple(keys), patience, whole_group) for (patience, whole_group), keys in keys_by_lane.items()
        ]
        self._last_terms = None

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

    def route(self, submissions: Iterable[Submission], now: float) -> list[Unit]:
        """The units that are ready with these submissions: their own, and those of groups now whole."""
        units: list[Unit] = []
        terms: Terms | None = None
        kinds: list[tuple[BatchKind, bool]] = []
        for submission in submissions:
            if submission.terms is not terms:
                terms = submission.terms
                kinds = self._kinds_of(terms)
            for kind, by_group in kinds:
                if not by_group:
                    units.append(Unit((submission,), kind, now))
                elif (members := self._collect(submission, kind)) is not None:
                    units.append(Unit(members, kind, now))
        return units

    def expired(self, now: float) -> list[tuple[Submission, tuple[str, ...]]]:
        """Takes out the groups that did not become whole in time; returns completions and open keys."""
        expired: list[tuple[Submission, tuple[str, ...]]] = []
        for place, group in list(self._groups.items()):
            if any(submission.whole_by <= now for submission in group):
                del self._groups[place]
                expired.extend((submission, place[1].keys) for submission in group)
        return expired

    def gathering(self) -> Iterator[tuple[Submission, str]]:
        """Completions, each with a reward's key, that wait for their group to become whole."""
        for (_, kind), group in self._groups.items():
            yield from ((submission, key) for submission in group for key in kind.keys)

    def drop_taken(self) -> None:
        """Forgets groups of which nothing is waited for any more."""
        for place, group in list(self._groups.items()):
            if all(submission.taken for submission in group):
                del self._groups[place]

    def _kinds_of(self, terms: Terms) -> list[tuple[BatchKind, bool]]:
        """The kinds of batches for completions of these terms, and whether whole groups go into them."""
        if terms == self._last_terms:
            return self._last_kinds
        kinds: list[tuple[BatchKind, bool]] = []
        for lane in self._lanes:
            keys = tuple(key for key in lane.keys if terms.wants_all or key in terms.reward_names)
            if keys:
                kind = BatchKind(keys, lane.patience, terms.step, terms.purpose, is_retry=False, apart=0)
                kinds.append((kind, lane.whole_group and terms.group_size > 1))
        self._last_terms, self._last_kinds = terms, kinds
        return kinds

    def _collect(self, submission: Submission, kind: BatchKind) -> tuple[Submission, ...] | None:
        place = submission.group_id, kind
        group = self._groups.setdefault(place, [])
        group.append(submission)
        if len(group) < submission.terms.group_size:
            return None
        del self._groups[place]
        return tuple(group)
