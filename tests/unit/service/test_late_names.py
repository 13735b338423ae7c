"""Packages that load their names late have each of the names that they promise, and no other."""

from __future__ import annotations

from types import ModuleType

import pytest

import plaudit.rpc
import plaudit.service


@pytest.mark.parametrize("package", [plaudit.rpc, plaudit.service], ids=lambda package: package.__name__)
def test_every_promised_name_is_there_and_no_other(package: ModuleType) -> None:
    for name in package.__all__:
        assert getattr(package, name) is getattr(package, name), name
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'nothing'"):
        getattr(package, "nothing")  # noqa: B009  # what `from package import nothing` does
