"""Datasets: uploaded in several formats, kept in one normal form, and those that ship with Plaudit."""

from gateway.datasets.connection import DatasetConnection, TriedSource, read_connection
from gateway.datasets.formats import FORMATS
from gateway.datasets.hub import HubReader
from gateway.datasets.previews import RowPreview
from gateway.datasets.service import (
    DEFAULT_MAX_UPLOAD_BYTES,
    DatasetService,
    DatasetUpload,
    check_upload,
)

__all__ = [
    "DEFAULT_MAX_UPLOAD_BYTES",
    "FORMATS",
    "DatasetConnection",
    "DatasetService",
    "DatasetUpload",
    "HubReader",
    "RowPreview",
    "TriedSource",
    "check_upload",
    "read_connection",
]
