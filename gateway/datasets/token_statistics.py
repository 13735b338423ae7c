"""How long the prompts of a dataset are for a model, which a trainer counts."""

from __future__ import annotations

from typing import Final, Protocol

from gateway.datasets.service import DatasetService
from gateway.jobs.journal import TokenCount
from gateway.store.datasets import StoredDataset
from plaudit.errors import FailedPreconditionError, InvalidArgumentError, UnavailableError
from plaudit.types.hyperparameters import GrpoHyperparameters
from plaudit.types.model_names import model_name_fault
from plaudit.types.token_statistics import TokenStatistics
from plaudit.types.validation import shown

BEING_COUNTED: Final = "TOKENS_BEING_COUNTED"
PATIENCE_SECONDS: Final = 10.0
"""How long a call waits for a count before its caller is told to ask again."""

_RETRY_SECONDS: Final = 1.0
_LARGEST_LIMIT: Final = 10_000_000


class TokenCounter(Protocol):
    """Who counts."""

    async def count_tokens(
        self, base_model: str, dataset: StoredDataset, *, max_prompt_length: int, patience_seconds: float
    ) -> TokenCount:
        """What is counted, or an unfinished count. Raises UnavailableError where nobody can."""


class PromptTokens:
    """Statistics over the prompts of datasets."""

    def __init__(
        self, datasets: DatasetService, counter: TokenCounter, *, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        self._datasets = datasets
        self._counter = counter
        self._patience_seconds = patience_seconds

    async def statistics(self, id_or_name: str, model: str, *, max_prompt_length: int = 0) -> TokenStatistics:
        """The tokens of a dataset's prompts for a `model`, named as in a job. `max_prompt_length` 0 is a
        job's default.

        Raises NotFoundError; InvalidArgumentError; FailedPreconditionError (TOKENS_NOT_COUNTED) where model
        and dataset do not go together; UnavailableError where no trainer answers (NO_TRAINER), or counting
        takes longer than a call (TOKENS_BEING_COUNTED): it goes on, and is asked for again.
        """
        fault = model_name_fault(model)
        if fault is not None:
            raise InvalidArgumentError.of(
                "model", f'{shown(model)} is refused: {fault}; for example "builtin:tiny"'
            )
        limit = max_prompt_length or GrpoHyperparameters().max_prompt_length
        if not 0 < limit <= _LARGEST_LIMIT:
            raise InvalidArgumentError.of(
                "max_prompt_length", f"{limit} is refused: from 1 to {_LARGEST_LIMIT:,} tokens"
            )
        dataset = await self._datasets.get(id_or_name)
        count = await self._counter.count_tokens(
            model, dataset, max_prompt_length=limit, patience_seconds=self._patience_seconds
        )
        if count.error is not None:
            raise FailedPreconditionError(count.error.message, reason="TOKENS_NOT_COUNTED")
        if count.statistics is None:
            raise UnavailableError(
                f"the tokens of {dataset.name} are being counted; ask again",
                reason=BEING_COUNTED,
                retry_after=_RETRY_SECONDS,
            )
        return count.statistics
