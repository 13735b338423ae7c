"""Writes constraints.txt from the packages of this interpreter: `make constraints` after an upgrade."""

from __future__ import annotations

from importlib.metadata import distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Not requirements of ours: they come with the virtual environment, or are the project itself.
LEFT_OUT = {"pip", "setuptools", "wheel", "plaudit"}


def pinned() -> list[str]:
    """`name==version` of every package, torch first, without local parts such as +cpu."""
    versions = {d.metadata["Name"]: d.version.partition("+")[0] for d in distributions()}
    names = sorted(
        (n for n in versions if n.lower() not in LEFT_OUT), key=lambda n: (n != "torch", n.lower())
    )
    return [f"{name}=={versions[name]}" for name in names]


if __name__ == "__main__":
    head = "# Every version that Plaudit is built and tested with. Written by `make constraints`."
    (ROOT / "constraints.txt").write_text("\n".join([head, *pinned()]) + "\n")
