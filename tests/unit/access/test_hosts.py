"""By which names and from which pages the REST API may be called."""

from __future__ import annotations

import pytest

from gateway.access.service import peer_name
from gateway.rest.guard import LOOPBACK_ONLY, Hosts

LOOPBACK = ["127.0.0.1", "127.0.0.1:7431", "localhost:1", "[::1]:7431", "127.8.8.8"]
OTHERS = ["evil.example", "127.0.0.1.evil.example", "localhost.evil", "", "[", "0.0.0.0", "a@127.0.0.1.x"]
ADDRESSES = ["10.1.2.3", "192.168.1.1:7431", "[2001:db8::1]:7431"]
NAMED = ["plaudit.example", "plaudit.example:8443", "PLAUDIT.example"]


@pytest.mark.parametrize(
    ("hosts", "able", "unable"),
    [
        (LOOPBACK_ONLY, LOOPBACK, OTHERS + ADDRESSES + NAMED),
        (Hosts(frozenset({"plaudit.example"})), LOOPBACK + NAMED, OTHERS + ADDRESSES),
        (Hosts(by_address=True), LOOPBACK + ADDRESSES, [h for h in OTHERS if h != "0.0.0.0"] + NAMED),
    ],
)
def test_hosts(hosts: Hosts, able: list[str], unable: list[str]) -> None:
    assert [host for host in able if not hosts.has(host)] == []
    assert [host for host in unable if hosts.has(host)] == []


def test_origins_are_the_page_itself_and_https_behind_a_proxy() -> None:
    assert LOOPBACK_ONLY.origins("http", "localhost:7431") == {"http://localhost:7431"}
    behind = Hosts(frozenset({"plaudit.example"}), behind_proxy=True)
    assert behind.origins("http", "plaudit.example") == {"http://plaudit.example", "https://plaudit.example"}


@pytest.mark.parametrize(
    ("address", "counted_as"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("", ""),
        ("x" * 1000, "x" * 64),
    ],
)
def test_addresses_are_counted_by_what_somebody_has(address: str, counted_as: str) -> None:
    assert peer_name(address) == counted_as
