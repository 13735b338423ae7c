"""Who may call a server of ours: TLS, client certificates, tokens, and what is refused beyond loopback."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self

import grpc
import grpc.aio
from grpc_health.v1 import health
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, model_validator

from plaudit.errors import FailedPreconditionError, InvalidArgumentError, UnauthenticatedError
from plaudit.service import check_private, read_key_pair
from plaudit.types.addresses import is_loopback
from plaudit.types.validation import violations_of

_TOKEN: Final = re.compile(r"[\x21-\x7e]{16,4096}")
_WHAT_TOKENS_ARE: Final = "16 or more characters of printable ASCII without blanks, one token a line"
_BEARER: Final = "bearer "


class ListenTls(BaseModel):
    """How a server proves who it is, and by which certificates it knows callers. Without any field: plain
    text. For a server that asks for tokens of its own.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    tls_cert: Path | None = Field(
        default=None, description="Certificate of the server with its chain, PEM. null: plain text."
    )
    tls_key: Path | None = Field(
        default=None, description="Private key of the certificate, PEM, without a password, mode 0600."
    )
    client_ca: Path | None = Field(
        default=None,
        description="CA that signs the certificates of those who may call, PEM. null: none is asked for.",
    )
    plaintext: bool = Field(
        default=False,
        description="Whether to listen in plain text beyond this machine, as behind a proxy that speaks TLS; "
        "a token is asked for all the same.",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key go together; name the other too, or neither")
        if self.client_ca is not None and self.tls_cert is None:
            raise ValueError("client_ca asks for TLS; name tls_cert and tls_key too, or leave it out")
        if self.plaintext and self.tls_cert is not None:
            raise ValueError("plaintext is true, and there is a certificate; leave one of them out")
        return self

    @classmethod
    def of(cls, given: Mapping[str, object]) -> Self:
        """What the fields in `given` ask for; None counts as not given. Raises InvalidArgumentError."""
        try:
            return cls.model_validate({name: value for name, value in given.items() if value is not None})
        except ValidationError as error:
            raise InvalidArgumentError(list(violations_of(error, cls))) from None

    def refusal(self, address: str) -> str | None:
        """Why a server must not listen on `address` (host:port) so, with the way out; None: it may."""
        lacking = self._lacking()
        if is_loopback(address) or not lacking:
            return None
        return (
            f"it can be reached from other machines, and that needs {' and '.join(lacking)}; a loopback "
            "address, as 127.0.0.1, needs nothing"
        )

    def _lacking(self) -> list[str]:
        """What is needed to listen beyond this machine, and is not there."""
        if self.tls_cert is None and not self.plaintext:
            return ["a certificate (tls_cert, tls_key), or plaintext = true behind a proxy of TLS"]
        return []

    def server_credentials(self) -> grpc.ServerCredentials | None:
        """TLS as asked for; None: plain text. Raises FailedPreconditionError where a file cannot be used."""
        if self.tls_cert is None or self.tls_key is None:
            return None
        pair = read_key_pair(self.tls_cert, self.tls_key, "the server's certificate")
        client_ca = None
        if self.client_ca is not None:
            client_ca = _read(self.client_ca, "the CA of the clients")
        return grpc.ssl_server_credentials(
            [(pair.key, pair.certificate)], client_ca, require_client_auth=client_ca is not None
        )

    def interceptors(self) -> list[grpc.aio.ServerInterceptor]:
        """What asks each call for more than TLS does."""
        return []


class ListenSecurity(ListenTls):
    """How a server proves who it is, and whom it lets in. Without any field: plain text, and everyone."""

    token_file: Path | None = Field(
        default=None,
        description=f"File of the tokens of those who may call: {_WHAT_TOKENS_ARE}; mode 0600. null: none "
        "is asked for.",
    )

    def _lacking(self) -> list[str]:
        lacking = super()._lacking()
        if self.token_file is None and (self.client_ca is None or self.plaintext):
            lacking.append("a token (token_file) or the CA of its clients (client_ca)")
        return lacking

    def interceptors(self) -> list[grpc.aio.ServerInterceptor]:
        """What asks each call for a token; none where none is asked for. Raises FailedPreconditionError."""
        if self.token_file is None:
            return []
        data = _read(self.token_file, "the file of tokens")
        check_private(self.token_file, "the file of tokens")
        tokens = data.decode("utf-8", "replace").split("\n")
        tokens = [token.strip() for token in tokens if token.strip()]
        if not tokens or not all(_TOKEN.fullmatch(token) for token in tokens):
            raise FailedPreconditionError(
                f"the file of tokens {self.token_file} must hold {_WHAT_TOKENS_ARE}", reason="SECRET_UNUSABLE"
            )
        return [_TokenInterceptor(tokens)]


def checked_listen_address(address: str, info: ValidationInfo) -> str:
    """For field_validator: an address that the field `security`, which stands before it, allows."""
    security: ListenTls | None = info.data.get("security")
    # Where the security itself is wrong, that is told.
    refusal = security.refusal(address) if security is not None else None
    if refusal is not None:
        raise ValueError(refusal)
    return address


class _TokenInterceptor(grpc.aio.ServerInterceptor):
    """Lets calls through that carry one of the tokens, and those that ask for health."""

    def __init__(self, tokens: list[str]) -> None:
        self._digests = [_digest(token) for token in tokens]

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        # Health tells only whether the server serves, and its askers (probes, balancers) have no token.
        if handler_call_details.method.startswith(f"/{health.SERVICE_NAME}/"):
            return await continuation(handler_call_details)
        headers = dict(handler_call_details.invocation_metadata or ())
        given = headers.get("authorization")
        if given is None:
            return _refusal(
                "this server asks for a token, and none was sent; send it as `authorization: Bearer TOKEN`: "
                "register the server with the name of its credential"
            )
        if not isinstance(given, str) or not self._is_known(given):
            return _refusal(
                "the token is none that this server knows; give the credential the token that stands in the "
                "server's token file"
            )
        return await continuation(handler_call_details)

    def _is_known(self, given: str) -> bool:
        if given[: len(_BEARER)].lower() != _BEARER:
            return False
        digest = _digest(given[len(_BEARER) :].strip())
        # All are compared, so that the time tells nothing.
        return sum(hmac.compare_digest(digest, known) for known in self._digests) > 0


def _refusal(message: str) -> grpc.RpcMethodHandler[Any, Any]:
    async def refuse(requests: Any, context: Any) -> AsyncIterator[Any]:
        raise UnauthenticatedError(message)
        yield

    # Whatever the method takes and returns: nothing is read, and only the status is sent.
    handler: grpc.RpcMethodHandler[Any, Any] = grpc.stream_stream_rpc_method_handler(refuse)
    return handler


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FailedPreconditionError(
            f"{what}: {path} cannot be read ({error.strerror})", reason="SECRET_UNUSABLE"
        ) from None
