"""The short form of `make test-languages`: two languages whose toolchains install in seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from language_checks import check_answers, check_conformance, check_stop
from language_servers import LANGUAGES, Language, LanguageServer, build, what_is_missing

SHORT = ("ruby", "node")


@pytest.fixture(scope="module", params=SHORT)
def language(request: pytest.FixtureRequest) -> Language:
    """A language, with its server built."""
    chosen = LANGUAGES[request.param]
    missing = what_is_missing(chosen)
    if missing:
        pytest.skip(missing)
    build(chosen)
    return chosen


@pytest.fixture(scope="module")
def server(language: Language, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageServer]:
    """Its server, running."""
    running = LanguageServer(language, Path(tmp_path_factory.mktemp(language.name)) / "stderr")
    yield running
    running.kill()


async def test_its_rewards_answer_as_worked_out_by_hand(server: LanguageServer) -> None:
    await check_answers(server)


@pytest.mark.slow
def test_it_conforms(server: LanguageServer) -> None:
    check_conformance(server, "answer_tag", quick=True)


async def test_it_takes_its_address_from_the_environment_and_stops_in_order(
    language: Language, tmp_path: Path
) -> None:
    running = LanguageServer(language, tmp_path / "stderr", {"REWARD_ADDRESS": "127.0.0.1:0"})
    try:
        await check_stop(running)
    finally:
        running.kill()
