"""What docs/cli.md and docs/sdk.md say is done as it stands there, on real services."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from stack import Stack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"
VERBS = {
    "upload data": ("dataset upload", "datasets.upload("),
    "test a reward file": ("reward test", "try_reward("),
    "submit": ("job submit", "training_jobs.create("),
    "watch": ("job watch", "training_jobs.watch("),
    "pause": ("job pause", ".pause("),
    "resume": ("job resume", ".resume("),
    "compare two jobs": ("job compare", "for each in (job, second):"),
    "download the model": ("model download", "models.download("),
}
"""What a reader of the README must be able to do, and the words for it in either walk."""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Services that nobody has used: the pages lead there from nothing, by names that they choose."""
    running = Stack(Path(tmp_path_factory.mktemp("walks")))
    try:
        running.start()
        yield running
    finally:
        running.stop()


def blocks(page: str, language: str, heading: str) -> str:
    """The code of one section of a page, in its order."""
    section = (DOCS / page).read_text().split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return "\n".join(re.findall(rf"```{language}\n(.*?)```", section, re.S))


def run(command: list[str], stack: Stack, folder: Path) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env={
            **os.environ,
            "PLAUDIT_ADDRESS": stack.grpc_address,
            "PLAUDIT_GATEWAY_HTTP_ADDRESS": stack.gateway.addresses["http_address"],
            "PLAUDIT_GATEWAY_TRAINERS": f'["{stack.trainer.addresses["address"]}"]',
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        },
        capture_output=True,
        text=True,
        timeout=550,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{stack.logs()}"
    return done.stdout


def test_the_readme_leads_to_walks_that_do_everything() -> None:
    readme = (REPOSITORY / "README.md").read_text()
    by_cli = blocks("cli.md", "sh", "From nothing to a model")
    by_sdk = blocks("sdk.md", "python", "From nothing to a model")
    for page in ("docs/cli.md", "docs/sdk.md"):
        assert f"]({page}#from-nothing-to-a-model)" in readme
    for verb, (command, call) in VERBS.items():
        assert verb in readme.replace("\n", " ").lower()
        assert f"plaudit {command} " in by_cli, verb
        assert call in by_sdk, verb


def test_the_command_line_alone_leads_from_nothing_to_a_model(stack: Stack, tmp_path: Path) -> None:
    script = blocks("cli.md", "sh", "From nothing to a model")
    told = run(["bash", "-euo", "pipefail", "-c", script], stack, tmp_path)
    assert "Nothing was found that speaks against it." in told
    assert "the job is good; nothing was queued" in told
    # The two jobs differ in what was set, and in nothing else.
    table = told.split("field", 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    assert [line.split() for line in table] == [
        ["output_name", "adder", "adder-2"],
        ["hyperparameters.seed", "42", "7"],
    ]
    assert (tmp_path / "adder-model" / "config.json").is_file()
    # Whoever begins again finds the files and the data that are there, and is told.
    again = "plaudit init adder && exit 1; plaudit init adder --force\n"
    again += "plaudit dataset upload adder/rows.jsonl --name sums"
    assert "sums" in run(["bash", "-euo", "pipefail", "-c", again], stack, tmp_path)


def test_the_sdk_alone_leads_from_nothing_to_a_model(stack: Stack, tmp_path: Path) -> None:
    script = blocks("sdk.md", "python", "From nothing to a model")
    script += blocks("sdk.md", "python", "With asyncio")
    told = run([sys.executable, "-c", script], stack, tmp_path)
    assert "StatusChanged(status=<JobStatus.COMPLETED" in told
    assert "completed 4 4" in told
    assert (tmp_path / "doubler-model" / "config.json").is_file()
