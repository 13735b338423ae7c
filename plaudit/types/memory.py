"""How much memory a job's training takes on a trainer, and of what it consists: the words of all sides."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict, Field, computed_field

_UNITS: Final = ("B", "kB", "MB", "GB", "TB")
_STEP: Final = 1000


class MemoryEstimate(BaseModel):
    """What training needs at its peak, in bytes, by the job's limits: its longest prompt, all completions as
    long as they may be.

    The parts up to `reference_bytes` are held all the time; a pass of a micro-batch (`activations_bytes` and
    `logits_bytes`) and a rollout (`rollout_bytes`) come by turns.
    """

    model_config = ConfigDict(frozen=True)

    device: str = Field(description='What trains, for example "cpu" or "NVIDIA H200".')
    available_bytes: int = Field(ge=0, description="Memory that the device has.")
    weights_bytes: int = Field(ge=0, description="The model, adapters included.")
    gradients_bytes: int = Field(ge=0, description="A gradient of each weight that is trained.")
    optimizer_bytes: int = Field(ge=0, description="Adam's two moments of each weight that is trained.")
    reference_bytes: int = Field(ge=0, description="The frozen reference model, where one is loaded.")
    activations_bytes: int = Field(ge=0, description="What a micro-batch keeps for its backward pass.")
    logits_bytes: int = Field(ge=0, description="Logits of a micro-batch, as far as they are held at once.")
    rollout_bytes: int = Field(
        ge=0, description="Keys and values of all completions of a rollout, and the logits they are drawn by."
    )
    micro_batch_size: int = Field(ge=1, description="Rows of a pass for which it was reckoned.")
    longest_row: int = Field(ge=1, description="Tokens of the longest row, prompt included.")

    @property
    def held_bytes(self) -> int:
        """What is held all the time."""
        return self.weights_bytes + self.gradients_bytes + self.optimizer_bytes + self.reference_bytes

    @computed_field  # type: ignore[prop-decorator]  # as pydantic documents it
    @property
    def needed_bytes(self) -> int:
        """The peak."""
        return self.held_bytes + max(self.activations_bytes + self.logits_bytes, self.rollout_bytes)

    @property
    def fits(self) -> bool:
        """Whether the device has what is held and one pass, without which no step is done."""
        return self.held_bytes + self.activations_bytes + self.logits_bytes <= self.available_bytes

    @property
    def rollout_fits(self) -> bool:
        """Whether it also has a rollout of which every completion becomes as long as it may be."""
        return self.held_bytes + self.rollout_bytes <= self.available_bytes

    @property
    def parts(self) -> dict[str, int]:
        """The parts by their names for people, those that are nothing left out."""
        named = {
            "weights": self.weights_bytes,
            "gradients": self.gradients_bytes,
            "optimizer states": self.optimizer_bytes,
            "reference model": self.reference_bytes,
            f"activations of {self.micro_batch_size} x {self.longest_row} tokens": (self.activations_bytes),
            "logits": self.logits_bytes,
            "rollout": self.rollout_bytes,
        }
        return {name: size for name, size in named.items() if size}

    def describe(self) -> str:
        """The estimate in one line, for people."""
        listed = ", ".join(f"{name} {shown_bytes(size)}" for name, size in self.parts.items())
        return (
            f"up to {shown_bytes(self.needed_bytes)} of the {shown_bytes(self.available_bytes)} of "
            f"{self.device}: {listed} (activations and rollout come by turns)"
        )


def shown_bytes(size: int) -> str:
    """A size for people, in units of powers of 1,000."""
    exponent = min((len(str(max(size, 1))) - 1) // 3, len(_UNITS) - 1)
    return f"{size / _STEP**exponent:.4g} {_UNITS[exponent]}"
