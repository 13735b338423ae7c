"""How trainers are spoken to: their addresses, and what it takes to be let in by each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Self, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from plaudit.rpc import Credentials, Endpoint, SecuredChannel
from plaudit.service import Secrets
from plaudit.types.access import OPEN_TO_ALL, ServerAccess, access_violations
from plaudit.types.addresses import Address, is_loopback


class TrainerRegistration(ServerAccess):
    """A trainer that jobs may be given to. Secrets are named, never held."""

    address: Address = Field(description="Where it listens, host:port.", examples=["127.0.0.1:7432"])

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for violation in access_violations(self, [self.address]):
            raise ValueError(f"{violation.field}: {violation.message}")
        return self

    @property
    def access(self) -> ServerAccess:
        """What it takes to be let in."""
        return ServerAccess(tls=self.tls, credential=self.credential, plaintext=self.plaintext)


def _from_settings(value: Any) -> Any:
    return {"address": value} if isinstance(value, str) else value


ConfiguredTrainer = Annotated[TrainerRegistration, BeforeValidator(_from_settings)]
"""A trainer in a settings file: a table, or its address where there is no more to say."""

TrainerDoor: TypeAlias = Callable[[str], Credentials]
"""What it takes to be let in by the trainer at an address, read anew at each call."""


def open_door(address: str) -> Credentials:
    """For trainers that ask for nothing."""
    return Credentials(OPEN_TO_ALL)


def doors_of(trainers: Sequence[TrainerRegistration], secrets: Secrets) -> TrainerDoor:
    """For these trainers. Raises FailedPreconditionError at once where a secret of one is missing, and later
    where it is missing then.
    """
    by_address = {trainer.address: trainer.access for trainer in trainers}

    def credentials(address: str) -> Credentials:
        return Credentials.load(by_address[address], secrets)

    for address in by_address:
        credentials(address)
    return credentials


def endpoint_of(address: str) -> Endpoint:
    """A trainer's address comes from the operator's own settings, and gRPC looks it up at each connection."""
    return Endpoint(f"dns:{address}", address, is_loopback(address))


def dial(address: str, credentials: Credentials) -> SecuredChannel:
    """A channel to the trainer at `address`."""
    return credentials.open_channel(endpoint_of(address))
