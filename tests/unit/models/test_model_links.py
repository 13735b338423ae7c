"""Links open the file that they were given out for, and nothing else, and not for ever."""

from __future__ import annotations

import hashlib
import hmac
import stat
import time
from dataclasses import replace

import pytest

from gateway.models.links import KEY_FILE, LIFETIME_SECONDS, Links
from plaudit.errors import FailedPreconditionError, PermissionDeniedError

ADDRESS = "jobs/job_1/attempt-1/model/model.safetensors"


def test_a_link_is_good_for_an_hour_and_says_when_it_is_not(tmp_path, monkeypatch):
    links = Links.open(tmp_path)
    link = links.sign(ADDRESS)
    assert abs(link.expires - time.time() - 3600) < 5
    links.check(link)
    monkeypatch.setattr(time, "time", lambda: float(link.expires) - 0.5)
    links.check(link)
    monkeypatch.setattr(time, "time", lambda: float(link.expires))
    with pytest.raises(PermissionDeniedError, match=r"has expired.*60 minutes.*ask for the model") as caught:
        links.check(link)
    assert caught.value.reason == "LINK_EXPIRED"
    assert LIFETIME_SECONDS == 3600


def test_the_signature_is_of_address_and_time_by_the_kept_key(tmp_path):
    link = Links.open(tmp_path).sign(ADDRESS)
    key = (tmp_path / KEY_FILE).read_bytes()
    assert len(key) == 32
    # Worked out here, from what the page says of it.
    assert link.signature == hmac.new(key, f"{link.expires}\n{ADDRESS}".encode(), hashlib.sha256).hexdigest()


@pytest.mark.parametrize(
    "change",
    [
        {"address": "jobs/job_1/attempt-1/model/config.json"},
        {"address": ADDRESS + "/"},
        {"expires": 2_000_000_000},
        {"signature": "0" * 64},
        {"signature": ""},
        {"signature": "ü"},
    ],
)
def test_a_link_that_was_changed_is_refused(tmp_path, change):
    links = Links.open(tmp_path)
    with pytest.raises(PermissionDeniedError) as caught:
        links.check(replace(links.sign(ADDRESS), **change))
    assert caught.value.reason == "LINK_INVALID"


def test_links_outlive_a_restart_and_no_other_gateway_takes_them(tmp_path):
    link = Links.open(tmp_path).sign(ADDRESS)
    Links.open(tmp_path).check(link)
    (tmp_path / "other").mkdir()
    with pytest.raises(PermissionDeniedError):
        Links.open(tmp_path / "other").check(link)


def test_the_key_is_its_owners_alone(tmp_path):
    Links.open(tmp_path)
    path = tmp_path / KEY_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [KEY_FILE]
    path.chmod(0o640)
    with pytest.raises(FailedPreconditionError, match="can be read by others"):
        Links.open(tmp_path)
