"""Datasets, their sources and rows."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from gateway.datasets import RowPreview
from gateway.servicers._convert._values import time_to_proto
from gateway.store.datasets import StoredDataset
from plaudit.gateway.v1 import dataset_service_pb2
from plaudit.types.dataset_sources import DatasetSource
from plaudit.types.token_statistics import TokenStatistics


def dataset_to_proto(dataset: StoredDataset) -> dataset_service_pb2.Dataset:
    """A dataset."""
    return dataset_service_pb2.Dataset(
        id=dataset.id,
        name=dataset.name,
        source_type=dataset.source_type,
        row_count=dataset.row_count,
        columns=dataset.columns,
        methods=dataset.methods,
        size_bytes=dataset.size_bytes,
        sha256=dataset.sha256,
        created_at=time_to_proto(dataset.created_at),
        source=_source_to_proto(dataset.source),
    )


def source_to_data(source: dataset_service_pb2.DatasetSource) -> dict[str, Any]:
    """A source as JSON-like data, unchecked; what is empty is left out."""
    given = {name: getattr(source, name) for name in ("source_type", "huggingface_dataset", "path", "format")}
    data: dict[str, Any] = {name: value for name, value in given.items() if value}
    if source.HasField("huggingface_config"):
        config = source.huggingface_config
        named = {name: getattr(config, name) for name in ("split", "config_name", "token")}
        data["huggingface_config"] = {
            **{name: value for name, value in named.items() if value},
            "column_mapping": dict(config.column_mapping),
        }
    return data


def dataset_row_to_proto(row: RowPreview) -> dataset_service_pb2.DatasetRow:
    """A row of a dataset."""
    return dataset_service_pb2.DatasetRow(
        number=row.number,
        prompt_json=json.dumps(row.prompt, ensure_ascii=False),
        columns_json=json.dumps(row.columns, ensure_ascii=False),
    )


def token_statistics_to_proto(statistics: TokenStatistics) -> dataset_service_pb2.TokenStatistics:
    """Tokens of a dataset's prompts."""
    return dataset_service_pb2.TokenStatistics(**asdict(statistics))


def _source_to_proto(source: DatasetSource | None) -> dataset_service_pb2.DatasetSource | None:
    if source is None:
        return None
    config = source.huggingface_config
    message = dataset_service_pb2.DatasetSource(
        source_type=source.source_type,
        huggingface_dataset=source.huggingface_dataset or "",
        path=source.path or "",
        format=source.format or "",
    )
    if source.source_type == "hf":
        message.huggingface_config.CopyFrom(
            dataset_service_pb2.HuggingFaceConfig(
                split=config.split,
                config_name=config.config_name or "",
                column_mapping=config.column_mapping,
                token=config.token or "",
            )
        )
    return message
