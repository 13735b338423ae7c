"""Fixtures: trainer services with scripted runs."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from trainer_process import PATIENCE, InnerTrainer, OuterTrainer

from trainer_service.launchers.processes import kill_processes_of


@pytest.fixture
async def roomy_trainer(tmp_path: Path) -> AsyncIterator[InnerTrainer]:
    """A trainer whose service was not started yet, so that a test chooses its settings."""
    trainer = InnerTrainer(tmp_path)
    yield trainer
    await trainer.stop()


@pytest.fixture
async def trainer(roomy_trainer: InnerTrainer) -> InnerTrainer:
    """A trainer that holds one run at a time, in the test's own process."""
    await roomy_trainer.start()
    return roomy_trainer


@pytest.fixture
async def mortal_trainer(tmp_path: Path) -> AsyncIterator[OuterTrainer]:
    """A trainer in a process that can be killed; not started yet."""
    trainer = OuterTrainer(tmp_path)
    yield trainer
    if trainer.process is not None:
        await trainer.kill()
    runs = tmp_path / "trainer" / "runs"
    for run_dir in runs.iterdir() if runs.exists() else ():
        kill_processes_of(run_dir.resolve(), PATIENCE)
