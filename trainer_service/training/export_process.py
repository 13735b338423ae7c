"""An export's process: `python -m trainer_service.training.export_process --run-dir DIR --control-fds R,W`.

Reads `request.json` in the directory and writes `result.json`, whatever comes of it. On the CPU: the
accelerators belong to the runs.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from plaudit.service import configure_logging
from trainer_service.control import RunControl
from trainer_service.export_directory import ExportRequest, ExportResult, read_request, write_result
from trainer_service.training.loading import lighten, loaded


def main(arguments: list[str] | None = None) -> int:
    """Runs the process; returns its exit status."""
    parser = argparse.ArgumentParser(prog="trainer_service.training.export_process")
    parser.add_argument("--run-dir", type=Path, required=True, help="directory that holds request.json")
    parser.add_argument("--control-fds", required=True, help="descriptors of the control line: R,W")
    options = parser.parse_args(arguments)
    read_fd, write_fd = (int(fd) for fd in options.control_fds.split(","))
    control = RunControl.from_fds(read_fd, write_fd)
    # Ends this process with the service.
    control.start()
    configure_logging("export")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    request = read_request(options.run_dir)
    lighten(request.spec)
    write_result(options.run_dir, _export(request, control))
    return 0


def _export(request: ExportRequest, control: RunControl) -> ExportResult:
    # Heavy: torch and its kin take seconds, in which the service may die.
    import torch

    from trainer_service.training.release import Release, describe_export_failure, hand_out

    loaded()
    control.report(sequence=0, step=0, total_steps=0, status_detail="exporting the model")
    release = Release(
        job_id=request.job_id,
        spec=request.spec,
        artifact_root=request.artifact_root,
        checkpoint_uri=request.checkpoint_uri,
        target_uri=request.target_uri,
        form=request.form,
        dtype=request.dtype,
    )
    try:
        return ExportResult(model=hand_out(release, torch.device("cpu")))
    except Exception as error:
        return ExportResult(error=describe_export_failure(error))


if __name__ == "__main__":
    sys.exit(main())
