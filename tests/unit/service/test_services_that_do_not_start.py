"""A service that dies while it starts: whoever started it hears at once what it said last."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from plaudit.errors import UnavailableError
from plaudit.service import _supervisor
from plaudit.service._supervisor import ServiceCommand, Supervisor

BROKEN = {
    "an import fails": ("import a_package_that_nobody_has\n", "No module named 'a_package_that_nobody_has'"),
    "it raises": ("raise RuntimeError('no table of prices')\n", "RuntimeError: no table of prices"),
    "it ends with a status": ("import sys\nsys.exit('the port is taken')\n", "the port is taken"),
    "it says what is no address": (
        "import sys\nprint('of no use', file=sys.stderr, flush=True)\nprint('ready!', flush=True)\n",
        "of no use",
    ),
}


def command(module: str, folder: Path) -> ServiceCommand:
    environment: Mapping[str, str] = {"PYTHONPATH": str(folder)}
    return ServiceCommand("judge", module, {"address": "--address"}, {}, environment)


@pytest.mark.parametrize("kind", BROKEN)
async def test_its_last_lines_are_told_at_once(kind: str, tmp_path: Path) -> None:
    text, told = BROKEN[kind]
    (tmp_path / "broken_service.py").write_text(text)
    services = Supervisor(tmp_path / "logs")
    try:
        # At once: long before the time that a start may take is over.
        async with asyncio.timeout(_supervisor._START_SECONDS / 2):
            with pytest.raises(UnavailableError, match="the judge service did not start") as caught:
                await services.start(command("broken_service", tmp_path))
    finally:
        await services.stop()
    assert told in caught.value.message
    assert told in (tmp_path / "logs" / "judge.log").read_text()


class Told:
    """What the supervisor logs: event and reason."""

    def __init__(self) -> None:
        self.reasons: asyncio.Queue[str] = asyncio.Queue()

    def warning(self, event: str, **fields: object) -> None:
        assert (event, fields["service"]) == ("a service died", "judge")

    def error(self, event: str, *, reason: str, **fields: object) -> None:
        assert (event, fields) == ("a service could not be restarted", {"service": "judge"})
        self.reasons.put_nowait(reason)


async def test_one_that_dies_and_cannot_come_back_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It announces itself, dies, and finds its package gone when it is started again."""
    (tmp_path / "doomed_service.py").write_text(
        "import json, pathlib\n"
        f"been = pathlib.Path({str(tmp_path / 'been')!r})\n"
        "if been.exists():\n"
        "    import a_package_that_nobody_has\n"
        "been.touch()\n"
        "print(json.dumps({'address': '127.0.0.1:1'}), flush=True)\n"
    )
    told = Told()
    monkeypatch.setattr(_supervisor, "log", told)
    monkeypatch.setattr(_supervisor, "_FIRST_BACKOFF_SECONDS", 0.01)
    services = Supervisor(tmp_path / "logs")
    try:
        assert dict(await services.start(command("doomed_service", tmp_path))) == {"address": "127.0.0.1:1"}
        assert "No module named 'a_package_that_nobody_has'" in await told.reasons.get()
    finally:
        await services.stop()
