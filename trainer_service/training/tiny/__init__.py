"""The embedded model: a 0.6M-parameter Qwen2 that can add, for demos and tests without a network or a GPU."""

from __future__ import annotations

from pathlib import Path


def tiny_model_path() -> Path:
    """Return the folder to give to `from_pretrained`; it holds the model and its tokenizer."""
    # Beside this file, not importlib.resources: transformers wants a folder on disk.
    return Path(__file__).resolve().parent / "weights"
