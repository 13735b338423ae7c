"""The formats in which rows come: JSONL, a JSON list, CSV and Parquet."""

from gateway.datasets.formats._reading import FORMATS, read_rows

__all__ = ["FORMATS", "read_rows"]
