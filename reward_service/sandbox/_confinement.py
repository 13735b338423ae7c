"""How a worker is started: the command line of bubblewrap, or, where the operator allows it, none."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reward_service.sandbox.settings import SandboxSettings

_HERE: Final = Path(__file__).resolve().parent
_INSIDE: Final = "/plaudit"
_PROBE_SECONDS: Final = 20.0
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
# What the dynamic loader needs. Nothing else of the host's /etc and /usr is there.
_SHARED_LIBRARIES: Final = (
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc/ld.so.cache",
    "/etc/alternatives",
)
_ENVIRONMENT: Final[Mapping[str, str]] = {
    "HOME": "/tmp",  # noqa: S108  # the sandbox's own, in memory
    "LANG": "C.UTF-8",
    "PATH": "/nowhere",
    # Equal inputs give equal values, with sets of text too.
    "PYTHONHASHSEED": "0",
    # A worker is one of several on this machine.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
}
_PROBE: Final = """
import json, os, sys, sysconfig
paths = sysconfig.get_paths()
library = os.path.join(sysconfig.get_config_var("LIBDIR") or "", sysconfig.get_config_var("LDLIBRARY") or "")
print(json.dumps({
    "executable": os.path.realpath(sys.executable),
    "standard": sorted({paths["stdlib"], paths["platstdlib"]}),
    "library": [os.path.realpath(library)] if library.endswith(".so") and os.path.isfile(library) else [],
    "loaded": [library + tail for tail in ("", ".1.0") if os.path.isfile(library + tail)],
    "packages": [p for p in sys.path if p.endswith(("site-packages", "dist-packages")) and os.path.isdir(p)],
}))
"""


class SandboxUnavailable(Exception):  # a state, not a bug
    """Reward code cannot be run here; the message says what to install or to allow."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The interpreter that runs reward code, and the paths that it needs."""

    executable: str
    reads: tuple[str, ...]
    packages: tuple[str, ...]

    @classmethod
    async def probe(cls, python: Path | None) -> Interpreter:
        """Asks an interpreter where its parts are."""
        program = str(python or sys.executable)
        errors = b""
        try:
            process = await asyncio.create_subprocess_exec(
                program,
                "-I",
                "-c",
                _PROBE,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            try:
                answer, errors = await asyncio.wait_for(process.communicate(), _PROBE_SECONDS)
            except TimeoutError:
                process.kill()
                raise
            parts = json.loads(answer)
        except (OSError, ValueError) as error:  # TimeoutError is an OSError
            told = errors.decode("utf-8", "replace").strip() or str(error) or "it does not answer"
            raise SandboxUnavailable(f"{program} is no Python interpreter that runs here: {told}") from None
        packages = tuple(dict.fromkeys(parts["packages"]))
        reads = (parts["executable"], *parts["standard"], *parts["library"], *parts["loaded"], *packages)
        return cls(parts["executable"], tuple(dict.fromkeys(reads)), packages)


@dataclass(frozen=True, slots=True)
class Confinement:
    """What a worker is run in. `bwrap` is the program, or None: then only the limits hold."""

    interpreter: Interpreter
    settings: SandboxSettings
    bwrap: str | None

    @classmethod
    def find_bwrap(cls, settings: SandboxSettings) -> str:
        """The path of bubblewrap."""
        found = shutil.which(settings.bwrap)
        if found is None:
            raise SandboxUnavailable(
                f"bubblewrap ({settings.bwrap}) is not installed, and reward code is not run without it; "
                "install it (apt-get install bubblewrap, dnf install bubblewrap), or let the operator set "
                "allow_unsandboxed = true in [reward.sandbox]"
            )
        return os.path.realpath(found)

    def command(self, slot: int) -> list[str]:
        """The command line of worker number `slot`, which a process of any user may run."""
        limits = {
            "memory_bytes": self.settings.memory_mb << 20,
            "processes": self.settings.processes,
            "file_bytes": self.settings.tmp_mb << 20,
            "open_files": self.settings.open_files,
            "packages": self.interpreter.packages,
            "alone": self.bwrap is not None or os.geteuid() == 0,
        }
        folder = str(_HERE) if self.bwrap is None else _INSIDE
        start = f"import sys; sys.path.insert(0, {folder!r}); from inside import main; main()"
        python = [self.interpreter.executable, "-I", "-S", "-c", start, json.dumps(limits)]
        is_root = os.geteuid() == 0
        reads = [*self.interpreter.reads, str(_HERE / "inside")]
        plan = {
            "uid": self.settings.first_uid + slot if is_root else None,
            "parent": os.getpid(),
            "reads": reads if self.bwrap is None else [*reads, self.bwrap],
            "command": python if self.bwrap is None else [self.bwrap, *self._confined(), "--", *python],
            "environment": dict(_ENVIRONMENT),
        }
        # -S: it needs no packages, and is there some milliseconds earlier.
        return [sys.executable, "-I", "-S", str(_HERE / "_launcher.py"), json.dumps(plan)]

    def _confined(self) -> Iterator[str]:
        yield from ("--unshare-user", "--disable-userns", "--unshare-pid", "--unshare-net", "--unshare-ipc")
        yield from ("--unshare-uts", "--hostname", "sandbox", "--unshare-cgroup-try")
        yield from ("--die-with-parent", "--new-session", "--cap-drop", "ALL")
        for path in _SHARED_LIBRARIES:
            if Path(path).is_symlink():
                yield from ("--symlink", str(Path(path).readlink()), path)
            elif Path(path).exists():
                yield from ("--ro-bind", path, path)
        # Its own, before the interpreter, which may lie below the host's.
        yield from ("--size", str(self.settings.tmp_mb << 20), "--tmpfs", "/tmp")  # noqa: S108
        for path in self.interpreter.reads:
            yield from ("--ro-bind", path, path)
        yield from ("--ro-bind", str(_HERE / "inside"), f"{_INSIDE}/inside")
        for device in _DEVICES:
            yield from ("--dev-bind", device, device)
        # No /proc: Python does without it, and it says much of the host.
        # Folders in the root are in memory too, and bounded by nothing.
        yield from ("--remount-ro", "/", "--chdir", "/tmp")  # noqa: S108
