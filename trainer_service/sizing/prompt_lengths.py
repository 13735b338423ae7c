"""About how long a dataset's rows are, in tokens, before there is a tokenizer to count them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_BYTES_PER_TOKEN: Final = 3
"""Of text; most tokenizers put more into a token of English, and less into one of other languages."""
_TEMPLATE_TOKENS: Final = 32
"""What a chat template adds, about."""


def longest_row_tokens(dataset: Path, columns: tuple[str, ...]) -> int | None:
    """About how many tokens the longest row of a dataset in the normal form has in `columns`.

    None where the file cannot be read. Blocks for as long as reading those columns takes.
    """
    # Takes a while to import, and the service needs it for this alone.
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    longest = 0
    try:
        with pq.ParquetFile(dataset) as file:
            for batch in file.iter_batches(columns=list(columns)):
                sizes = [pc.binary_length(batch.column(name)) for name in columns]
                total = sizes[0]
                for size in sizes[1:]:
                    total = pc.add(total, size)
                longest = max(longest, pc.max(total).as_py() or 0)
    except (pa.ArrowException, OSError):
        return None
    return longest // _BYTES_PER_TOKEN + _TEMPLATE_TOKENS
