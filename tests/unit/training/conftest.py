import gc
import os

# Before torch and the hub's client are imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

import pytest
from sft_bench import SftBenchMaker
from training_bench import BenchMaker, save_random_model

# Every trainer collects garbage when it starts, which would look through all that was imported each time.
gc.collect()
gc.freeze()


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    save_random_model(folder)
    return folder


@pytest.fixture
def make_bench(model_dir, tmp_path):
    maker = BenchMaker(model_dir, tmp_path)
    yield maker
    for journal in maker.journals:
        journal.close()


@pytest.fixture
def make_sft_bench(model_dir, tmp_path):
    maker = SftBenchMaker(model_dir, tmp_path)
    yield maker
    for journal in maker.journals:
        journal.close()
