"""Generates the Python code of proto/ into src/headrace/protocol/grpc/gen (or another folder)."""

from __future__ import annotations

import sys
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).parent.parent
PROTO = ROOT / "proto" / "headrace" / "materialize" / "v1"
GENERATED = ROOT / "src" / "headrace" / "protocol" / "grpc" / "gen"


def generate(out: Path) -> None:
    include = resources.files("grpc_tools") / "_proto"
    arguments = [
        "protoc",
        f"--proto_path={PROTO}",
        f"--proto_path={include}",
        f"--python_out={out}",
        f"--pyi_out={out}",
        str(PROTO / "materialize.proto"),
    ]
    if protoc.main(arguments) != 0:
        raise SystemExit("protoc refused materialize.proto; see its message above")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else GENERATED)
