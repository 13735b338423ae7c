"""The job's field `preflight`: default, refusal, and its way through the SDK's message."""

import pytest

from gateway.servicers._convert import spec_to_data
from plaudit.client._convert import spec_from_proto, spec_to_proto
from plaudit.errors import InvalidArgumentError
from plaudit.types.jobs import accepted_job_spec
from plaudit.types.validation import parse_job_spec

JOB = {
    "base_model": "builtin:tiny",
    "dataset_id": "builtin:additions",
    "output_name": "adder",
    "rewards": [{"server": "builtin", "reward": "exact_answer"}],
}


def test_it_stops_unless_told_otherwise():
    assert parse_job_spec(JOB).preflight == "stop"
    assert parse_job_spec({**JOB, "preflight": "warn"}).preflight == "warn"


@pytest.mark.parametrize("value", ["maybe", True, None, "STOP"])
def test_anything_else_is_refused_by_name(value):
    with pytest.raises(InvalidArgumentError) as refused:
        parse_job_spec({**JOB, "preflight": value})
    (violation,) = refused.value.violations
    assert violation.field == "preflight"
    assert "'stop', 'warn' or 'off'" in violation.message


@pytest.mark.parametrize("given", [{}, {"preflight": "off"}])
def test_it_travels(given):
    message = spec_to_proto({**JOB, **given})
    wanted = given.get("preflight", "stop")
    assert parse_job_spec(spec_to_data(message, [])).preflight == wanted
    assert spec_from_proto(message).preflight == wanted


def test_a_job_of_an_older_version_stays_readable():
    older = parse_job_spec(JOB).model_dump(mode="json")
    del older["preflight"]
    assert accepted_job_spec(older).preflight == "stop"
