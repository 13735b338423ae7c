"""An export's process that does what the request's base model says: it writes, fails, dies or waits."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

from plaudit.types.statuses import ErrorCode
from trainer_service.control import RunControl
from trainer_service.export_directory import ExportResult, read_request, write_result
from trainer_service.exported import read_exported
from trainer_service.journal import RunError


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--run-dir", type=Path)
    parser.add_argument("--control-fds")
    options = parser.parse_args()
    control = RunControl.from_fds(*(int(fd) for fd in options.control_fds.split(",")))
    control.start()
    request = read_request(options.run_dir)
    folder = request.artifact_root / request.target_uri
    staged = folder.with_name(f".{folder.name}.staged")
    staged.mkdir(parents=True, exist_ok=True)
    control.report(sequence=0, step=0, total_steps=0, status_detail="half of it is written")
    match request.spec.base_model:
        case "waits":
            go_on = request.artifact_root / "go on"
            while not go_on.exists():
                time.sleep(0.01)
        case "dies":
            print("about to die", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        case "fails":
            write_result(options.run_dir, ExportResult(error=RunError(ErrorCode.MODEL_ERROR, "it is odd")))
            return
    (staged / "manifest.json").write_text(json.dumps({"kind": "full", "dtype": "float32", "files": {}}))
    staged.rename(folder)
    model = read_exported(request.artifact_root, request.target_uri)
    write_result(options.run_dir, ExportResult(model=model))


if __name__ == "__main__":
    main()
