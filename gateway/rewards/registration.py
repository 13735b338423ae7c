"""How a reward server is registered: where its replicas listen, and what it takes to be let in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

from gateway.names import name_violations
from plaudit.errors import FieldViolation, InvalidArgumentError
from plaudit.types.access import ServerAccess, access_violations
from plaudit.types.addresses import check_address
from plaudit.types.validation import shown

MAX_ADDRESSES: Final = 32
"""Most replicas of one server."""


class Registration(ServerAccess):
    """A reward server that jobs may name; it need not be up."""

    addresses: tuple[str, ...] = Field(
        description="Where its replicas listen, host:port each.", examples=[["127.0.0.1:50061"]]
    )

    @property
    def access(self) -> ServerAccess:
        """What it takes to be let in."""
        return ServerAccess(tls=self.tls, credential=self.credential, plaintext=self.plaintext)


def _from_settings(value: Any) -> Any:
    if isinstance(value, list | tuple):
        value = {"addresses": value}
    if isinstance(value, dict) and isinstance(value.get("addresses"), list):
        value = {**value, "addresses": tuple(value["addresses"])}
    if not isinstance(value, dict | Registration):
        raise ValueError(
            "must be a list of addresses, or a table of addresses, tls, credential and plaintext"
        )
    return value


ConfiguredServer = Annotated[Registration, BeforeValidator(_from_settings)]
"""A registration in a settings file: a table, or the list of its addresses where there is no more to say."""


def registration_refusal(
    found: InvalidArgumentError, name: object, addresses: object
) -> InvalidArgumentError:
    """What is wrong with the form of a registration, and with its name and addresses as far as they go."""
    violations = list(found.violations)
    wrong = {violation.field.partition("[")[0] for violation in violations}
    if isinstance(name, str):
        violations.extend(name_violations(name, "math-rewards"))
    if isinstance(addresses, list) and "addresses" not in wrong:
        violations.extend(_wrong_addresses(addresses))
    return InvalidArgumentError(violations)


def registration_violations(name: str, registration: Registration) -> list[FieldViolation]:
    """Everything that is wrong with registering `registration` as `name`."""
    violations = name_violations(name, "math-rewards")
    wrong = _wrong_addresses(registration.addresses)
    violations.extend(wrong)
    if not wrong:
        violations.extend(access_violations(registration, registration.addresses))
    return violations


def _wrong_addresses(addresses: Sequence[str]) -> list[FieldViolation]:
    violations = []
    if not 1 <= len(addresses) <= MAX_ADDRESSES:
        violations.append(
            FieldViolation(
                "addresses",
                f"holds {len(addresses)} addresses; 1 to {MAX_ADDRESSES} are needed, "
                'for example ["127.0.0.1:50061"]',
            )
        )
    for index, address in enumerate(addresses[:MAX_ADDRESSES]):
        if address in addresses[:index]:
            violations.append(
                FieldViolation(f"addresses[{index}]", f"{shown(address)} stands there twice; name it once")
            )
        try:
            check_address(address)
        except ValueError as error:
            violations.append(FieldViolation(f"addresses[{index}]", f"{shown(address)}: {error}"))
    return violations
