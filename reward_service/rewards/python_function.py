"""python_function: a function of the user's own. docs/rewards/python_function.md describes it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator

from plaudit.errors import FieldViolation
from plaudit.types.scoring import Failed, FailureCode
from reward_service._item import Item
from reward_service._reward import Answer, Reward, reward
from reward_service.sandbox import (
    Program,
    ProgramRefused,
    SandboxPool,
    SandboxSettings,
    SandboxUnavailable,
)

MAX_SOURCE_BYTES: Final = 256 * 1024

# Completions that are with the pool; those beyond wait where sessions take turns.
_CONCURRENCY: Final = 512

_MOST_ABSOLUTE_VALUE: Final = 1e6
"""Beyond it a job takes no value of any reward."""


class PythonFunctionConfig(BaseModel):
    """The source, and how its function is called."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    source: str = Field(
        min_length=1,
        description="Text of a Python file that defines the function, at most 256 KiB.",
        examples=[
            "def reward(completions, **columns):\n    return [float(len(c) < 80) for c in completions]\n"
        ],
    )
    function: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$",
        description="Its name. Default: reward, or the only one that takes what a reward is given.",
        examples=["reward"],
    )
    filename: str = Field(
        default="reward.py",
        pattern=r"^[A-Za-z0-9_.-]{1,128}$",
        description="Name that tracebacks and the log give to the source.",
        examples=["reward.py"],
    )
    format: Literal["trl", "miles"] | None = Field(
        default=None,
        description=(
            '"trl": def reward(prompts, completions, **columns) -> list; "miles": async def reward(args, '
            "sample, **kwargs) -> float. Default: as the signature says."
        ),
        examples=["trl"],
    )
    form: Literal["text", "messages"] = Field(
        default="text",
        description=(
            'How prompts and completions are given, whatever the prompts of the dataset are: "text", or '
            '"messages", lists of {"role", "content"}.'
        ),
        examples=["messages"],
    )
    batch_size: int = Field(
        default=1,
        ge=1,
        le=1024,
        description=(
            'Most completions in a call, for the format "trl". A call that fails, fails all of them.'
        ),
        examples=[32],
    )
    timeout_seconds: float = Field(
        default=10.0, gt=0.0, le=600.0, description="What a call may take, in seconds.", examples=[10.0]
    )
    with_prefill: bool = Field(
        default=False,
        description="Whether completions begin with what the chat template put at the start of the turn.",
        examples=[True],
    )

    with_special_tokens: bool = Field(
        default=False,
        description="Whether completions hold special tokens, the one that ends the turn included.",
        examples=[True],
    )

    _program: Any = PrivateAttr(default=None)

    @field_validator("source")
    @classmethod
    def _is_bounded(cls, source: str) -> str:
        size = len(source.encode("utf-8", "surrogatepass"))
        if size > MAX_SOURCE_BYTES:
            raise ValueError(f"it has {size} bytes, of at most {MAX_SOURCE_BYTES}")
        return source

    def model_post_init(self, _: Any) -> None:
        """Makes once what every completion is run with."""
        self._program = Program(
            source=self.source,
            filename=self.filename,
            function=self.function,
            format=self.format,
            form=self.form,
            batch_size=self.batch_size,
            timeout=self.timeout_seconds,
            with_prefill=self.with_prefill,
            with_special_tokens=self.with_special_tokens,
        )

    @property
    def program(self) -> Program:
        """What the sandbox runs."""
        program: Program = self._program
        return program


@asynccontextmanager
async def open_python_function(settings: SandboxSettings) -> AsyncIterator[Reward]:
    """The reward; its worker processes are gone when the context is left."""
    async with SandboxPool(settings) as pool:
        yield _python_function(pool)


def _python_function(pool: SandboxPool) -> Reward:
    async def check(config: PythonFunctionConfig) -> list[FieldViolation]:
        try:
            await pool.load(config.program)
        except ProgramRefused as refused:
            return [FieldViolation("source", f"{config.filename} {refused}")]
        except SandboxUnavailable as unavailable:
            return [FieldViolation("", f"cannot be used on this server: {unavailable}")]
        return []

    def required_columns(config: PythonFunctionConfig) -> tuple[str, ...]:
        signature = pool.signature_of(config.program)
        return () if signature is None else signature.required_columns

    @reward(
        description="What a Python function of yours returns, run in a sandbox.",
        min_value=-_MOST_ABSOLUTE_VALUE,
        max_value=_MOST_ABSOLUTE_VALUE,
        required_columns=required_columns,
        config=PythonFunctionConfig,
        check=check,
        deterministic=False,
        concurrency=_CONCURRENCY,
    )
    async def python_function(item: Item[PythonFunctionConfig]) -> Answer:
        """The value of one completion."""
        program = item.config.program
        try:
            signature = await pool.load(program)
            missing = [name for name in signature.required_columns if name not in item.columns]
            if missing:
                return Failed(
                    FailureCode.INVALID,
                    f"the row lacks column {', '.join(missing)}, which {signature.name} takes; it has "
                    f"{', '.join(item.columns) or 'none'}",
                )
            return await pool.score(program, item)
        except ProgramRefused as refused:
            return Failed(FailureCode.INTERNAL, f"{program.filename} {refused}")
        except SandboxUnavailable as unavailable:
            return Failed(FailureCode.UNAVAILABLE, str(unavailable))

    return python_function
