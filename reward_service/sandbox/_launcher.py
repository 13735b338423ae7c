"""What becomes a worker: run as a script, it gives up what it has and executes the rest of the command.

It stands alone, on the standard library, and is no part of the service's process: leaving root between fork
and exec would need code to run in the fork of a process with gRPC's threads.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import stat
import sys
from pathlib import Path
from typing import Any, Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NO_NEW_PRIVS: Final = 38
_CLONE_NEWNS: Final = 0x00020000
_MS_RDONLY: Final = 1
_MS_REMOUNT: Final = 32
_MS_BIND: Final = 4096
_MS_REC: Final = 16384
_MS_PRIVATE: Final = 1 << 18

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Executes the command of the plan in argv[1]."""
    plan: dict[str, Any] = json.loads(sys.argv[1])
    # The first to go where memory is short: the service and the trainer beside it are worth more. A container
    # may have closed that file.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    uid = plan["uid"]
    if uid is not None:
        try:
            _expose(plan["reads"])
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        except OSError as error:
            sys.exit(f"cannot become user {uid}: {error}")
    # After the change of user, which clears it. The parent may have gone before.
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != plan["parent"]:
        sys.exit("the service is gone")
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    os.chdir("/")
    try:
        os.execve(plan["command"][0], plan["command"], plan["environment"])  # noqa: S606  # no shell is wanted
    except OSError as error:
        sys.exit(f"{plan['command'][0]} cannot be run: {error.strerror}")


def _expose(reads: list[str]) -> None:
    """Lets an unprivileged user reach `reads` though they lie in a folder of root's own, as /root.

    In a mount namespace of this process alone, an empty folder takes the place of the closed one, with
    nothing in it but the paths that are read.
    """
    closed: dict[str, list[str]] = {}
    for path in reads:
        folder = _closed_folder(path)
        if folder is not None:
            closed.setdefault(folder, []).append(path)
    if not closed:
        return
    if _libc.unshare(_CLONE_NEWNS) != 0:
        raise _failure(
            f"{', '.join(closed)} is closed to other users and holds the interpreter, and a mount namespace "
            "that would open it was refused; install Python where every user may read it"
        )
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE, None)
    for folder, paths in closed.items():
        held = [(path, os.open(path, os.O_PATH)) for path in paths]
        _mount("tmpfs", folder, "tmpfs", 0, "mode=755,size=1m")
        for path, fd in held:
            if stat.S_ISDIR(os.fstat(fd).st_mode):
                Path(path).mkdir(parents=True, exist_ok=True)
            else:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                Path(path).touch()
            _mount(f"/proc/self/fd/{fd}", path, None, _MS_BIND, None)
            _mount(None, path, None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY, None)
            os.close(fd)


def _closed_folder(path: str) -> str | None:
    """The outermost folder on the way to `path` that others may not pass, or None."""
    parts = path.split("/")[1:-1]
    for count in range(1, len(parts) + 1):
        folder = "/" + "/".join(parts[:count])
        if not Path(folder).stat().st_mode & stat.S_IXOTH:
            return folder
    return None


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None) -> None:
    arguments = [None if text is None else text.encode() for text in (source, target, kind, data)]
    if _libc.mount(arguments[0], arguments[1], arguments[2], ctypes.c_ulong(flags), arguments[3]) != 0:
        raise _failure(f"{target} could not be mounted")


def _failure(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{what} ({os.strerror(number)})")


if __name__ == "__main__":
    main()
