"""Regenerates the code of the contracts elsewhere and fails where the checked-in code differs."""

from __future__ import annotations

import filecmp
import sys
import tempfile
from pathlib import Path

from generate_protos import ROOT, generate


def differences(fresh: Path) -> list[str]:
    """Files under plaudit/*/v1 that are missing, left over or different, relative to the repository."""
    made = {path.relative_to(fresh) for path in fresh.rglob("*.py*")}
    kept = {
        path.relative_to(ROOT)
        for area in ("reward", "trainer", "gateway")
        for path in (ROOT / "plaudit" / area).rglob("*.py*")
        if "__pycache__" not in path.parts
    }
    found = [f"{path}: left over" for path in sorted(kept - made)]
    found += [f"{path}: missing" for path in sorted(made - kept)]
    found += [
        f"{path}: differs from its proto"
        for path in sorted(made & kept)
        if not filecmp.cmp(fresh / path, ROOT / path, shallow=False)
    ]
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        found = differences(Path(folder))
    for line in found:
        print(line)
    if found:
        print("run `make proto`")
        sys.exit(1)
    print("generated code is up to date")
