"""A run's process: `python -m trainer_service.training.run --run-dir DIR --control-fds R,W`.

Reads `start.json` in the run's directory, trains, and writes everything that happens into the journal there.
The last entry says how it ended; the exit status is 0 unless the run failed.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from importlib import import_module
from pathlib import Path

import structlog

from plaudit.errors import InvalidArgumentError
from plaudit.service import configure_logging
from plaudit.types.statuses import RunState
from trainer_service.control import RunControl
from trainer_service.journal import JournalWriter, RunStateChanged
from trainer_service.run_directory import RunStart, read_start
from trainer_service.training.loading import lighten, loaded
from trainer_service.training.reporting import RunCancelledError, RunReporter

log = structlog.get_logger(__name__)


def main(arguments: list[str] | None = None) -> int:
    """Runs the process; returns its exit status."""
    parser = argparse.ArgumentParser(prog="trainer_service.training.run", description="Trains one run.")
    parser.add_argument("--run-dir", type=Path, required=True, help="directory that holds start.json")
    parser.add_argument("--control-fds", required=True, help="descriptors of the control line: R,W")
    options = parser.parse_args(arguments)
    read_fd, write_fd = (int(fd) for fd in options.control_fds.split(","))
    control = RunControl.from_fds(read_fd, write_fd)
    control.start()
    configure_logging("run")
    start = read_start(options.run_dir)
    lighten(start.spec)
    structlog.contextvars.bind_contextvars(run_id=start.run_id, job_id=start.job_id, attempt=start.attempt)
    with JournalWriter(options.run_dir) as journal:
        end = _run(start, options.run_dir, RunReporter(journal, control))
    log.info("the run ended", state=end.state, reason=end.reason)
    return int(end.state is RunState.FAILED)


def _run(start: RunStart, run_dir: Path, reporter: RunReporter) -> RunStateChanged:
    """Trains and writes the last entry, which it returns."""
    try:
        reporter.waiting_for("loading the training libraries")
        _prepare_libraries()
        if start.spec.hyperparameters.use_unsloth:
            _import_unsloth()
        # Heavy: torch and its kin take seconds, in which a cancel is to be heard already.
        from trainer_service.training.session import train

        loaded()
        end = train(start, run_dir, reporter)
    except RunCancelledError:
        end = RunStateChanged(RunState.CANCELLED)
    except Exception as error:
        from trainer_service.training.failures import describe_failure

        end = RunStateChanged(RunState.FAILED, describe_failure(error, start.spec.hyperparameters))
        # The journal first: whatever becomes of a traceback with all its frames, the run has told its end.
        reporter.append(end)
        log.error("the run failed", exc_info=error)
        return end
    reporter.append(end)
    return end


def _prepare_libraries() -> None:
    # A run is one process on one device; with more of them in sight transformers would split batches.
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
    os.environ["CUDA_VISIBLE_DEVICES"] = devices.split(",")[0]
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # TRL uses names that transformers is about to rename.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"transformers\.")


def _import_unsloth() -> None:
    """Lets unsloth change the libraries, which it can only before anything else has imported them."""
    try:
        import_module("unsloth")
    except Exception as error:
        raise InvalidArgumentError.of(
            "hyperparameters.use_unsloth",
            f"true, but unsloth cannot be imported by {sys.executable}: {error}; mend that environment, or "
            "leave it out",
        ) from error


if __name__ == "__main__":
    sys.exit(main())
