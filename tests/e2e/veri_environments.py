"""Virtual environments with the published veri-sdk, one for each version, kept between test runs."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path


class Veri:
    """A version of the client in an environment of its own, speaking to one gateway."""

    def __init__(self, version: str, url: str, home: Path) -> None:
        self._bin = _environment(version) / "bin"
        self._variables = {
            # Nothing of the caller's: neither our packages nor a configuration of theirs.
            "PATH": f"{self._bin}:{os.environ['PATH']}",
            "HOME": str(home),
            "NO_COLOR": "1",
            "COLUMNS": "200",
            "VERI_API_URL": url,
            "VERI_API_KEY": "vk_0123456789abcdef0123456789abcdef",
        }
        self.home = home

    def python(self, script: str, *arguments: str) -> str:
        """What a program prints."""
        file = self.home / "program.py"
        file.write_text(script)
        return self._run([str(self._bin / "python"), str(file), *arguments])

    def cli(self, *arguments: str, status: int = 0) -> str:
        """What the command `veri` prints; it must end with `status`."""
        return self._run([str(self._bin / "veri"), *arguments], status)

    def _run(self, command: list[str], status: int = 0) -> str:
        done = subprocess.run(
            command, env=self._variables, cwd=self.home, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == status, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def _environment(version: str) -> Path:
    """The environment with this version, made where it is not there."""
    folder = Path(sys.prefix) / "veri-sdk" / version
    complete = folder / "complete"
    if not complete.exists():
        venv.create(folder, clear=True, symlinks=True)
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "--python",
                str(folder / "bin" / "python"),
                "install",
                "--quiet",
                "--no-compile",
                f"veri-sdk=={version}",
            ],
            check=True,
            timeout=300,
        )
        complete.touch()
    return folder
