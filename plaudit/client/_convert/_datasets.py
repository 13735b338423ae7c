"""Datasets, their sources and rows."""

from __future__ import annotations

import json

from plaudit.client import models
from plaudit.client._convert._reading import reads_answer
from plaudit.client._convert._values import time_from_proto
from plaudit.gateway.v1 import dataset_service_pb2


@reads_answer
def dataset_from_proto(message: dataset_service_pb2.Dataset) -> models.Dataset:
    """A dataset."""
    return models.Dataset(
        id=message.id,
        name=message.name,
        source_type=message.source_type,
        row_count=message.row_count,
        columns=tuple(message.columns),
        methods=tuple(message.methods),
        size_bytes=message.size_bytes,
        sha256=message.sha256,
        created_at=time_from_proto(message, "created_at"),
        source_uri=_source_uri(message.source) if message.HasField("source") else "",
    )


@reads_answer
def tried_source_from_proto(
    message: dataset_service_pb2.ValidateDatasetSourceResponse,
) -> models.TriedSource:
    """What the first rows of a source are like."""
    count = message.row_count if message.HasField("row_count") else None
    return models.TriedSource(message.error, count, tuple(message.columns))


@reads_answer
def dataset_row_from_proto(message: dataset_service_pb2.DatasetRow) -> models.DatasetRow:
    """A row of a dataset."""
    return models.DatasetRow(
        number=message.number,
        prompt=json.loads(message.prompt_json),
        columns=json.loads(message.columns_json),
    )


@reads_answer
def token_statistics_from_proto(message: dataset_service_pb2.TokenStatistics) -> models.TokenStatistics:
    """Tokens of a dataset's prompts."""
    return models.TokenStatistics(
        count=message.count,
        min=message.min,
        median=message.median,
        p95=message.p95,
        max=message.max,
        above_limit_count=message.above_limit_count,
        too_long_count=message.too_long_count,
        first_too_long_row=message.first_too_long_row if message.HasField("first_too_long_row") else None,
        max_prompt_length=message.max_prompt_length,
        model_revision=message.model_revision,
    )


def _source_uri(source: dataset_service_pb2.DatasetSource) -> str:
    is_file = source.source_type == "path"
    return f"file://{source.path}" if is_file else f"hf://datasets/{source.huggingface_dataset}"
