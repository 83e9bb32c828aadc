"""Makes fixtures of the formats that the current code writes.

    python -m tests.formats.make v3
    python -m tests.formats.make v3 --only ingest

It makes data folders and buckets of the ingest server, and state folders, endpoints and targets of pipelines,
as archives in tests/formats/VERSION. It refuses a version that exists, because a fixture is never changed.
README.md describes each fixture.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.formats.archives import FORMATS
from tests.formats.make_ingest import make_ingest
from tests.formats.make_pipelines import make_pipelines

_MAKERS: dict[str, Callable[[str, Path, Path], None]] = {
    "ingest": make_ingest,
    "pipelines": make_pipelines,
}
_MOST_BYTES = 10 << 20  # of all versions together


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        "python -m tests.formats.make",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("version", help="the name of the new folder, such as v3")
    parser.add_argument("--only", choices=sorted(_MAKERS), help="make those of one part only")
    options = parser.parse_args(arguments)
    target = FORMATS / options.version
    chosen = [options.only] if options.only else sorted(_MAKERS)
    target.mkdir(exist_ok=True)
    for part in chosen:
        if there := sorted(target.glob(f"{part}*.tar.xz")):
            parser.error(f"{there[0].relative_to(FORMATS)} is there, and fixtures are never changed")
    for part in chosen:
        with tempfile.TemporaryDirectory(prefix="headrace-formats-making-") as scratch:
            _MAKERS[part](options.version, target, Path(scratch))
    total = sum(archive.stat().st_size for archive in FORMATS.glob("v*/*.tar.xz"))
    for archive in sorted(target.glob("*.tar.xz")):
        print(f"{archive.stat().st_size:>10,}  {archive.name}")  # noqa: T201
    if total > _MOST_BYTES:
        parser.error(f"all fixtures have {total:,} bytes, and may have {_MOST_BYTES:,}: make smaller ones")


if __name__ == "__main__":
    main(sys.argv[1:])
