"""Generates the Python code of the contracts: `python scripts/generate_protos.py [OUT_DIR]`.

Writes into the repository by default; `make check` writes elsewhere and compares.
"""

from __future__ import annotations

import os
import sys
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"


def generate(out_dir: Path) -> None:
    """Writes `*_pb2.py`, `*_pb2_grpc.py` and their stubs for every proto file under `out_dir`."""
    well_known = resources.files("grpc_tools") / "_proto"
    files = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.rglob("*.proto"))
    out_dir.mkdir(parents=True, exist_ok=True)
    # protoc looks for protoc-gen-mypy on PATH; it is installed beside this interpreter.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    status = protoc.main(
        [
            "protoc",
            f"-I{PROTOS}",
            f"-I{well_known}",
            f"--python_out={out_dir}",
            f"--mypy_out=quiet:{out_dir}",
            f"--grpc_python_out={out_dir}",
            f"--mypy_grpc_out=quiet:{out_dir}",
            *files,
        ]
    )
    if status != 0:
        raise SystemExit(f"protoc failed with status {status}")
    for file in files:
        for folder in (out_dir / file).parent, (out_dir / file).parent.parent:
            (folder / "__init__.py").write_text('"""Generated from protos/; never edited."""\n')


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
