"""Counting the tokens of prompts: what is told where they cannot be counted, and which never fit."""

import hashlib
import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from training_bench import load_tokenizer

from trainer_service.token_counts import (
    TokenCountRequest,
    model_revision,
    read_token_count,
    write_token_count,
)
from trainer_service.training.dataset import DatasetRow
from trainer_service.training.prompts import measure_prompts, prepare_prompts
from trainer_service.training.tiny import tiny_model_path
from trainer_service.training.token_process import _count


@pytest.fixture
def model(tmp_path):
    """The embedded model's tokenizer without its template: a token for each ~ of a prompt."""
    folder = tmp_path / "model"
    shutil.copytree(tiny_model_path(), folder)
    (folder / "chat_template.jinja").unlink()
    return folder


@pytest.fixture
def request_for(tmp_path, model):
    def made(prompts, **changed):
        table = {"prompt": [json.dumps(prompt) for prompt in prompts], "columns": ["{}"] * len(prompts)}
        pq.write_table(pa.table(table), tmp_path / "rows.parquet")
        values = {
            "base_model": str(model),
            "dataset_uri": "rows.parquet",
            "dataset_sha256": hashlib.sha256((tmp_path / "rows.parquet").read_bytes()).hexdigest(),
            "row_count": len(prompts),
            "max_prompt_length": 3,
            "artifact_root": tmp_path,
        }
        return TokenCountRequest(**{**values, **changed})

    return made


def test_tokens_are_counted(request_for, tmp_path):
    lengths = [1, 2, 2, 3, 4, *[9] * 13, 20, 30]
    counted = _count(request_for(["~" * n for n in lengths]))
    found = counted.statistics
    assert (found.count, found.min, found.median, found.max) == (20, 1, 9, 30)
    # 19 of 20 are 95 %.
    assert found.p95 == 20
    assert (found.above_limit_count, found.too_long_count, found.first_too_long_row) == (16, 0, None)
    write_token_count(tmp_path, counted)
    assert read_token_count(tmp_path) == counted


def test_another_template_is_another_revision(model):
    before = model_revision(str(model))
    assert before == model_revision(str(model))
    (model / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert model_revision(str(model)) != before


@pytest.mark.parametrize(
    ("changed", "code", "said"),
    [
        ({"dataset_uri": "gone.parquet"}, "dataset_error", "does not exist"),
        ({"dataset_sha256": "0" * 64}, "dataset_error", "is not the file"),
        ({"base_model": "/nowhere"}, "model_error", "not a folder"),
    ],
)
def test_what_cannot_be_counted_says_why(request_for, changed, code, said):
    error = _count(request_for(["~"], **changed)).error
    assert error.code == code
    assert said in error.message


def test_a_chat_without_a_template_is_refused_by_its_row(request_for):
    error = _count(request_for(["~", [{"role": "user", "content": "~"}]])).error
    assert error.code == "dataset_error"
    assert "row 2" in error.message and "no chat template" in error.message


def test_prompts_that_never_fit_are_those_that_a_job_refuses(model_dir):
    tokenizer = load_tokenizer(model_dir)
    tokenizer.chat_template = "{% for m in messages %}w7 w7 w7 {{ m.content }} {% endfor %}"
    rows = [DatasetRow(n, " ".join(["w5"] * n), {}) for n in range(1, 5)]
    measured = measure_prompts(rows, tokenizer, max_prompt_length=5)
    assert (measured.lengths, measured.too_long_rows) == ((4, 5, 6, 7), ())
    assert prepare_prompts(rows, tokenizer, max_prompt_length=5).truncated_count == 2
    measured = measure_prompts(rows, tokenizer, max_prompt_length=2)
    assert measured.too_long_rows == (1, 2, 3, 4)
