"""The trainer service as a process, with scripted_run.py in the place of training."""

import sys
from pathlib import Path

from plaudit.service import configure_logging, run_service
from trainer_service.launchers.local import LocalLauncher
from trainer_service.server import serve
from trainer_service.settings import TrainerSettings


def main() -> int:
    configure_logging("trainer")
    settings = TrainerSettings.load(address="127.0.0.1:0", data_dir=sys.argv[1])
    launcher = LocalLauncher((sys.executable, str(Path(__file__).with_name("scripted_run.py"))))
    return run_service(
        lambda stop: serve(settings, launcher, stop), die_with_stdin="--die-with-stdin" in sys.argv
    )


if __name__ == "__main__":
    sys.exit(main())
