"""The process of a count: `python -m trainer_service.training.token_process --run-dir DIR --control-fds R,W`.

Reads `request.json` in the directory and writes `result.json`, whatever comes of it.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
from pathlib import Path

import structlog

from plaudit.errors import PlauditError
from plaudit.service import configure_logging
from plaudit.types.statuses import ErrorCode
from plaudit.types.token_statistics import TokenStatistics
from trainer_service.control import RunControl
from trainer_service.journal import RunError
from trainer_service.token_counts import (
    TokenCount,
    TokenCountRequest,
    model_revision,
    read_token_request,
    write_token_count,
)

log = structlog.get_logger(__name__)


def main(arguments: list[str] | None = None) -> int:
    """Runs the process; returns its exit status."""
    parser = argparse.ArgumentParser(prog="trainer_service.training.token_process")
    parser.add_argument("--run-dir", type=Path, required=True, help="directory that holds request.json")
    parser.add_argument("--control-fds", required=True, help="descriptors of the control line: R,W")
    options = parser.parse_args(arguments)
    read_fd, write_fd = (int(fd) for fd in options.control_fds.split(","))
    # Ends this process with the service.
    RunControl.from_fds(read_fd, write_fd).start()
    configure_logging("tokens")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    write_token_count(options.run_dir, _count(read_token_request(options.run_dir)))
    return 0


def _count(request: TokenCountRequest) -> TokenCount:
    try:
        return TokenCount(count_tokens(request))
    except PlauditError as error:
        return TokenCount(error=RunError(getattr(error, "code", ErrorCode.CONFIG_ERROR), error.message))
    except Exception as error:
        log.exception("the tokens were not counted")
        message = f"counting stopped with {type(error).__name__}: {error}; the log on the trainer says more"
        return TokenCount(error=RunError(ErrorCode.TRAINING_ERROR, message))


def count_tokens(request: TokenCountRequest) -> TokenStatistics:
    """Counts the tokens of every prompt as a job would feed it. Raises ModelError and DatasetError."""
    # Heavy: transformers takes seconds, in which the service may die.
    from trainer_service.training.dataset import read_rows
    from trainer_service.training.model_sources import load_tokenizer
    from trainer_service.training.prompts import measure_prompts

    tokenizer = load_tokenizer(request.base_model)
    rows = read_rows(request.artifact_root, request.dataset)
    measured = measure_prompts(rows, tokenizer, max_prompt_length=request.max_prompt_length)
    counts = sorted(measured.lengths)
    return TokenStatistics(
        count=len(counts),
        min=counts[0],
        median=statistics.median(counts),
        p95=counts[math.ceil(0.95 * len(counts)) - 1],
        max=counts[-1],
        above_limit_count=sum(count > request.max_prompt_length for count in counts),
        too_long_count=len(measured.too_long_rows),
        first_too_long_row=measured.too_long_rows[0] if measured.too_long_rows else None,
        max_prompt_length=request.max_prompt_length,
        # Of what was loaded: a model of the hub is on this machine by now.
        model_revision=model_revision(request.base_model) or "",
    )


if __name__ == "__main__":
    sys.exit(main())
