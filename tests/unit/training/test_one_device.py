"""A run is one process on one device: no rank waits for another one while rewards are waited for."""

from __future__ import annotations

import os
import warnings

import pytest

from trainer_service.training.run import _prepare_libraries


@pytest.mark.parametrize(
    ("visible", "used"), [(None, "0"), ("0", "0"), ("3,5", "3"), ("GPU-8f1c,GPU-a2", "GPU-8f1c"), ("", "")]
)
def test_of_several_devices_a_run_sees_the_first(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, used: str
) -> None:
    """With more of them in sight transformers would split each batch over all."""
    for name in ("HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_PROGRESS_BARS", "TOKENIZERS_PARALLELISM"):
        monkeypatch.setenv(name, os.environ.get(name, "1"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible or "")
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    with warnings.catch_warnings():
        _prepare_libraries()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == used
