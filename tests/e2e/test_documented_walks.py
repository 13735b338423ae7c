"""What docs/cli.md and docs/sdk.md say is done as it stands there, on real services."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from stack import Stack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

DOCS = Path(__file__).parents[2] / "docs"


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


def test_the_sdk_alone_leads_from_nothing_to_a_model(stack: Stack, tmp_path: Path) -> None:
    script = blocks("sdk.md", "python", "From nothing to a model")
    script += blocks("sdk.md", "python", "With asyncio")
    told = run([sys.executable, "-c", script], stack, tmp_path)
    assert "StatusChanged(status=<JobStatus.COMPLETED" in told
    assert "completed 4 4" in told
    assert (tmp_path / "doubler-model" / "config.json").is_file()
