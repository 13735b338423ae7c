"""`make test-languages`: builds the reward servers and the clients in other languages, and puts each through
everything.

LANGS=go,node takes some of them; QUICK=1 leaves out what takes a minute a language. One line a language on
stdout; exit status 1 where any fails. What a language needs and is not there is installed where that can be,
else it is told.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "integration/reward_service")]

from language_checks import (  # noqa: E402 (the path is made first)
    check_answers,
    check_conformance,
    check_stop,
    check_training,
    singles_per_second,
)
from language_clients import LANGUAGE_CLIENTS, build_client, check_client  # noqa: E402
from language_servers import LANGUAGES, Language, LanguageServer, build, install  # noqa: E402
from stack import Stack  # noqa: E402


def main() -> int:
    """Exit status."""
    names = [name.strip() for name in os.environ.get("LANGS", "").split(",") if name.strip()] or list(
        LANGUAGES
    )
    unknown = [name for name in names if name not in LANGUAGES]
    if unknown:
        print(f"LANGS: there is no {', '.join(unknown)}; there are {', '.join(LANGUAGES)}", file=sys.stderr)
        return 2
    quick = bool(os.environ.get("QUICK"))
    failed = []
    with tempfile.TemporaryDirectory(prefix="plaudit-languages-") as folder:
        stack = Stack(Path(folder) / "stack")
        try:
            stack.start()
            for name in names:
                begun = time.monotonic()
                try:
                    told = f"ok      {_run(LANGUAGES[name], stack, Path(folder), quick)}"
                except Exception as error:  # whatever it is, the other languages have their turn
                    failed.append(name)
                    told = f"FAILED  {error}"
                print(f"{name:5} {told} ({time.monotonic() - begun:.0f} s)", flush=True)
        finally:
            stack.stop()
    return 1 if failed else 0


def _run(language: Language, stack: Stack, folder: Path, quick: bool) -> str:
    install(language)
    build(language)
    server = LanguageServer(language, folder / f"{language.name}.log")
    try:
        asyncio.run(check_answers(server))
        rules = check_conformance(server, "answer_tag", quick=quick)
        check_conformance(server, language.own_reward, quick=True)
        singles = asyncio.run(singles_per_second(server))
        learned = check_training(stack, server)
        asyncio.run(check_stop(server))
    finally:
        server.kill()
    told = f"{rules}; {singles:,.0f} singles/s; reward {learned.first:.2f} → {learned.last:.2f}"
    client = LANGUAGE_CLIENTS.get(language.name)
    if client is None:
        return told
    build_client(client)
    return f"{told}; {asyncio.run(check_client(client, stack, folder))}"


if __name__ == "__main__":
    sys.exit(main())
