"""What both sides do: a case, and the files that it needs. Imports no torch."""

from __future__ import annotations

import hashlib
import json
import math
import random
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

VOCABULARY = 4096
TEMPLATE_TOKENS = 5
"""Of the chat template around a question: start, user, end, start, assistant."""

FIRST_WORD = 6
"""Token of the first plain word; before it stand special tokens and roles."""

ROWS = 160
RESPONSE_LENGTH = 64
GROUP_SIZE = 8
BATCH = 64
LEARNING_RATE = 1e-6
KL_COEF = 0.001
SEED = 42

_STOP_CHANCE = 0.02
"""Of each token, in ragged completions."""

STAGES = ("generation", "reference_forward", "policy_forward", "backward", "score_wait", "optimizer")
"""What is timed of a step, in its order but for score_wait; what is left over is `rest`."""

WEIGH = "weigh"
"""What a side is told to take a turn in which its tensors are weighed, which takes too long to be timed."""

Lengths: TypeAlias = Literal["ragged", "even"]
Pace: TypeAlias = Literal["quick", "slow"]


@dataclass(frozen=True, slots=True)
class Work:
    """What a side is told, as JSON on its command line.

    `model_dir` is a folder as save_pretrained writes it; `dataset_uri` a file in the normal form under
    `artifact_root`; `reward_address` where the reward server of our side listens.
    """

    model_dir: str
    artifact_root: str
    dataset_uri: str
    lengths: Lengths
    reward: Pace
    reward_address: str
    steps: int
    scratch: str

    def to_json(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Work:
        """What `to_json` made."""
        return cls(**json.loads(text))


def planned_lengths(lengths: Lengths) -> list[int]:
    """Lengths of the completions of a step, in tokens, ascending.

    Ragged ones are the quantiles of what a stop chance of 2 % a token gives, cut at RESPONSE_LENGTH.
    """
    if lengths == "even":
        return [RESPONSE_LENGTH] * BATCH
    quantiles = ((i + 0.5) / BATCH for i in range(BATCH))
    ragged = (math.ceil(math.log1p(-q) / math.log1p(-_STOP_CHANCE)) for q in quantiles)
    # The first token is sampled from a pass over prompts, of which not every completion has one of its own.
    return [min(max(length, 2), RESPONSE_LENGTH) for length in ragged]


def write_dataset(artifact_root: Path, prompt_tokens: int) -> str:
    """Writes questions of exactly `prompt_tokens` tokens, template included; returns the file's address."""
    source = random.Random(prompt_tokens)
    prompts = []
    for _ in range(ROWS):
        words = (
            f"w{source.randrange(FIRST_WORD, VOCABULARY)}" for _ in range(prompt_tokens - TEMPLATE_TOKENS)
        )
        prompts.append(json.dumps([{"role": "user", "content": " ".join(words)}]))
    folder = artifact_root / "datasets"
    folder.mkdir(parents=True, exist_ok=True)
    unnamed = folder / "unnamed.parquet"
    pq.write_table(pa.table({"prompt": prompts, "columns": ["{}"] * ROWS}), unnamed)
    digest = hashlib.sha256(unnamed.read_bytes()).hexdigest()
    unnamed.rename(folder / f"{digest}.parquet")
    return f"datasets/{digest}.parquet"
