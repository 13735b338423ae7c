"""Datasets: uploaded as JSONL, kept in one normal form, and those that ship with Plaudit."""

from gateway.datasets.service import (
    DEFAULT_MAX_UPLOAD_BYTES,
    DatasetService,
    DatasetUpload,
    check_upload,
)

__all__ = ["DEFAULT_MAX_UPLOAD_BYTES", "DatasetService", "DatasetUpload", "check_upload"]
