"""Requests made from the live OpenAPI document, right ones and wrong ones: none is answered by a 500."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import schemathesis
from dialect_jobs import BODY, SOURCE
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from stack import Service

EXAMPLES = 6
"""Requests of each kind for each operation."""
ENDLESS = {"/v1/watch", "/v1/training_jobs/{id}/watch", "/v1/training_jobs/{id}/logs"}
"""Streams that end with what they stream; other tests read them."""
FROM_ELSEWHERE = {"/v1/datasets/connect", "/v1/datasets/connect/validate"}
"""Routes that go out where a request is right; other tests do that, against a server of their own."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway as a process of its own, without trainers; its URL."""
    folder = Path(tmp_path_factory.mktemp("gateway"))
    (folder / "plaudit.toml").touch()
    service = Service(
        "gateway",
        "gateway",
        {"grpc_address": "--grpc-address", "http_address": "--http-address"},
        folder,
        {
            "PLAUDIT_DATA_DIR": str(folder / "data"),
            "PLAUDIT_CONFIG": str(folder / "plaudit.toml"),
            "PLAUDIT_GATEWAY_TRAINERS": "[]",
            "PLAUDIT_GATEWAY_REWARD_SERVERS": json.dumps({"builtin": ["127.0.0.1:1"]}),
        },
    )
    service.start()
    try:
        yield f"http://{service.addresses['http_address']}"
        assert "Traceback" not in service.log()
    finally:
        service.stop()


def test_no_generated_request_breaks_the_gateway(gateway: str) -> None:
    with httpx2.Client(base_url=gateway, trust_env=False) as http:
        job_id = http.post("/v1/training_jobs", json={**BODY, "reward_source": SOURCE}).json()["id"]
    schema = schemathesis.openapi.from_url(f"{gateway}/openapi.json", timeout=100)
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) > 30
    for operation in operations:
        if operation.path in ENDLESS:
            continue
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            if mode is GenerationMode.POSITIVE and operation.path in FROM_ELSEWHERE:
                continue
            _try(operation, mode, job_id)


def _try(operation: Any, mode: GenerationMode, job_id: str) -> None:
    strategy = operation.as_strategy(generation_mode=mode)

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy, is_real=st.booleans())
    def each(case: Any, is_real: bool) -> None:
        if is_real and "training_jobs/{id}" in operation.path:
            case.path_parameters = {**(case.path_parameters or {}), "id": job_id}
        answer = case.call(timeout=20)
        told = f"{answer.request.method} {answer.request.url}: {answer.status_code} {answer.text[:500]}"
        assert answer.status_code not in (500, 501, 502, 504), told
        if answer.status_code >= 400:
            error = answer.json()["error"]
            assert error["message"], told
            assert "Traceback" not in answer.text, told
            if answer.status_code == 422:
                assert error["errors"], told
                assert all(wrong["param"] and wrong["message"] for wrong in error["errors"]), told

    # A route without parameters and body has no wrong requests.
    with contextlib.suppress(Unsatisfiable):
        each()
