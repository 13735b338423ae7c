"""What a run asks of one server: its rewards, where it is, and how a session with it is opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final
from uuid import UUID, uuid5

from plaudit.errors import FailedPreconditionError, FieldViolation, InvalidArgumentError
from plaudit.reward.v1 import reward_service_pb2 as pb
from plaudit.rpc import Credentials, LoadCredentials
from plaudit.scoring._convert import selection_message
from plaudit.service import Secrets
from plaudit.types.access import ServerAccess
from plaudit.types.jobs import RewardBinding, RewardTarget
from plaudit.types.scoring import PROTOCOL_VERSION

SESSION_NAMESPACE: Final = UUID("9c3c0a4e-6f57-5d0b-8f5d-0b7d0f6a4c11")
"""Of session ids: UUID5 of scope, server, place and address, so that they are the same on every reconnect."""


@dataclass(frozen=True, slots=True)
class ServerSetup:
    """All rewards of a run that one server computes."""

    name: str
    addresses: tuple[str, ...]
    load_credentials: LoadCredentials
    bindings: tuple[RewardBinding, ...]
    positions: tuple[int, ...]
    """Places of the bindings among the job's rewards."""
    session_scope: str
    job_id: str
    model: str

    @property
    def keys(self) -> frozenset[str]:
        """Names of the rewards in the job."""
        return frozenset(binding.name for binding in self.bindings)

    def session_id(self, address: str) -> str:
        """Of the session with the replica at this address."""
        scope = "/".join((self.session_scope, self.name, *self.addresses, address))
        return str(uuid5(SESSION_NAMESPACE, scope))

    def open_frame(self, session_id: str, pending_batch_ids: Sequence[str]) -> pb.ScoreRequest:
        """The first frame of a stream."""
        return pb.ScoreRequest(
            open=pb.SessionOpen(
                session_id=session_id,
                protocol_version=PROTOCOL_VERSION,
                rewards=[selection_message(binding) for binding in self.bindings],
                pending_batch_ids=pending_batch_ids,
                job_id=self.job_id,
                model=self.model,
                reads_bundled_done=True,
                reads_plain_scores=True,
            )
        )


def setups_of(
    targets: Sequence[RewardTarget], secrets: Secrets, session_scope: str, job_id: str, model: str
) -> list[ServerSetup]:
    """One setup for all rewards of a server; its addresses and access are part of what it is.

    Raises InvalidArgumentError where a token, CA or certificate is missing or of no use.
    """
    places: dict[tuple[str, tuple[str, ...], ServerAccess], list[int]] = {}
    for position, target in enumerate(targets):
        places.setdefault((target.binding.server, target.addresses, target.access), []).append(position)
    setups = []
    violations: list[FieldViolation] = []
    for (name, addresses, access), positions in places.items():
        load_credentials = partial(Credentials.load, access, secrets)
        try:
            load_credentials()
        except FailedPreconditionError as error:
            violations.extend(
                FieldViolation(f"rewards[{position}].server", f'reward server "{name}": {error.message}')
                for position in positions
            )
        setups.append(
            ServerSetup(
                name=name,
                addresses=addresses,
                load_credentials=load_credentials,
                bindings=tuple(targets[position].binding for position in positions),
                positions=tuple(positions),
                session_scope=session_scope,
                job_id=job_id,
                model=model,
            )
        )
    if violations:
        raise InvalidArgumentError(violations)
    return setups
