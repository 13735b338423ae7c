"""Settings of judges: named profiles of endpoints, the operator's. A job names a profile, never a URL."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationInfo, field_validator

from plaudit.types.access import SecretName
from plaudit.types.addresses import is_loopback

ProfileName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,62}$")]

_DEFAULT_URLS = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}


class JudgeProfile(BaseModel):
    """An endpoint that judges: where it is, which model answers, what it costs, and how much it is asked."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    provider: Literal["openai", "anthropic"] = Field(
        default="openai",
        description='What the endpoint speaks: "openai" is any that is compatible with chat completions.',
        examples=["openai"],
    )
    model: str = Field(
        min_length=1, max_length=256, description="Model that judges.", examples=["gpt-4.1-mini"]
    )
    credential: SecretName | None = Field(
        default=None,
        description=(
            "Name of the key: the variable PLAUDIT_CREDENTIAL_{NAME}, or a file of that name (mode 0600) in "
            "the secrets folder. null: the endpoint wants none."
        ),
        examples=["openai"],
    )
    base_url: str = Field(
        default="",
        validate_default=True,
        max_length=2048,
        description="Address of the endpoint, without the path of a call. Empty: the provider's own.",
        examples=["http://127.0.0.1:8000/v1"],
    )
    plaintext: bool = Field(
        default=False,
        validate_default=True,
        description="Whether key and completions may travel in plain text beyond this machine.",
        examples=[False],
    )
    verdict_format: Literal["json_schema", "prompt"] = Field(
        default="json_schema",
        description=(
            'How the form of a verdict is asked for: "json_schema" where the endpoint takes one, else '
            '"prompt".'
        ),
        examples=["json_schema"],
    )
    token_limit_field: Literal["max_tokens", "max_completion_tokens"] = Field(
        default="max_tokens",
        description='Name under which max_tokens is sent; "max_completion_tokens" for reasoning models.',
        examples=["max_tokens"],
    )
    input_price: float | None = Field(
        default=None,
        ge=0.0,
        le=1e6,
        description="Price of a million tokens that are read, in the currency of budgets. null: not known.",
        examples=[0.4],
    )
    output_price: float | None = Field(
        default=None,
        ge=0.0,
        le=1e6,
        description="Price of a million tokens that are written, in the same currency. null: not known.",
        examples=[1.6],
    )
    concurrency: int = Field(
        default=16, ge=1, le=1024, description="Calls that are under way at once.", examples=[16]
    )
    requests_per_minute: int | None = Field(
        default=None, ge=1, description="Calls in any 60 s. null: no limit.", examples=[500]
    )
    tokens_per_minute: int | None = Field(
        default=None,
        ge=1,
        description="Tokens, read and written, in any 60 s; by what calls really took. null: no limit.",
        examples=[200_000],
    )
    request_timeout_seconds: float = Field(
        default=60.0, gt=0.0, le=3600.0, description="How long a call may take, in seconds.", examples=[60.0]
    )
    backoff_first_seconds: float = Field(
        default=0.5,
        gt=0.0,
        le=60.0,
        description="Wait before the first repeat of a call that failed, in seconds; then twice as long.",
        examples=[0.5],
    )
    backoff_most_seconds: float = Field(
        default=20.0, gt=0.0, le=600.0, description="Longest such wait, in seconds.", examples=[20.0]
    )
    breaker_failures: int = Field(
        default=10,
        ge=1,
        le=10_000,
        description="Failures of the endpoint in a row after which it is left alone for a while.",
        examples=[10],
    )
    breaker_seconds: float = Field(
        default=15.0, gt=0.0, le=3600.0, description="How long it is left alone, in seconds.", examples=[15.0]
    )
    max_completion_chars: int = Field(
        default=32_000,
        ge=1,
        le=4_000_000,
        description="Longest completion that is sent, in characters.",
        examples=[32_000],
    )

    @field_validator("base_url")
    @classmethod
    def _is_url_of_endpoint(cls, url: str, info: ValidationInfo) -> str:
        if not url:
            return _DEFAULT_URLS.get(info.data.get("provider", ""), "")
        parts = urlsplit(url)
        has_host = parts.hostname and parts.port != 0  # port raises ValueError where it is none
        if parts.scheme not in ("http", "https") or not has_host or parts.query or parts.fragment:
            raise ValueError("must be http:// or https://, a host, and a path without query")
        if parts.username is not None or parts.password is not None:
            raise ValueError("must hold no user and no password; name the key in credential")
        return url.rstrip("/")

    @field_validator("plaintext")
    @classmethod
    def _is_private(cls, plaintext: bool, info: ValidationInfo) -> bool:
        parts = urlsplit(info.data.get("base_url", ""))
        if parts.scheme == "http" and not plaintext and not is_loopback(f"{parts.hostname}:80"):
            raise ValueError(
                f"key and completions would travel in plain text to {parts.hostname}; use https, or say true "
                "where a proxy or tunnel keeps them"
            )
        return plaintext

    @property
    def has_prices(self) -> bool:
        """Whether money can be counted."""
        return self.input_price is not None and self.output_price is not None

    def cost(self, input_tokens: float, output_tokens: float) -> float:
        """What tokens cost, in the currency of budgets; 0 where prices are not known."""
        return (input_tokens * (self.input_price or 0.0) + output_tokens * (self.output_price or 0.0)) / 1e6


class JudgeSettings(BaseModel):
    """Judges that jobs may name, and the cache of what they said."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    profiles: dict[ProfileName, JudgeProfile] = Field(
        default_factory=dict, description="Endpoints by the name under which jobs ask for them."
    )
    cache_max_verdicts: int = Field(
        default=200_000,
        ge=0,
        le=100_000_000,
        description="Verdicts that are kept on disk; the oldest go first. 0: none is kept.",
        examples=[200_000],
    )
