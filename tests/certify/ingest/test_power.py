from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.certify.ingest.power import RECORDER, lose_power
from headrace.faults import Action, Faults
from headrace.wal.segments import segment_name

# Two files: one with a write that is not synced, one whose second sync fails and whose third does not.
WRITE = """
import sys
from contextlib import suppress
from pathlib import Path
from headrace.faults import reached
from headrace.wal.files import Files

reached("log opening")  # which loads the recorder
files = Files()
first = files.create(Path(sys.argv[1]))
files.write(first, b"synced")
files.sync(first)
files.write(first, b"not synced")
second = files.create(Path(sys.argv[2]))
files.write(second, b"kept")
files.sync(second)
files.write(second, b"dropped")
with suppress(OSError):
    files.sync(second)
files.write(second, b"after it")
files.sync(second)
files.create(Path(sys.argv[3]))
"""


@pytest.mark.processes
def test_what_was_not_synced_is_gone(tmp_path: Path) -> None:
    faults = Faults(tmp_path / "faults")
    faults.load(RECORDER)
    faults.arm("wal syncing", Action.IO_ERROR, 3)
    paths = [tmp_path / segment_name(number) for number in (1, 2, 3)]
    environment = {**os.environ, **faults.environment}
    subprocess.run([sys.executable, "-c", WRITE, *map(str, paths)], env=environment, check=True)
    assert [path.read_bytes() for path in paths] == [b"syncednot synced", b"keptdroppedafter it", b""]
    assert lose_power(tmp_path, faults) == len("not synced") + len("droppedafter it")
    assert [path.read_bytes() for path in paths] == [b"synced", b"kept", b""]
