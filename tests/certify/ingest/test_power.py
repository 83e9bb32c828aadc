from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.certify.ingest.power import RECORDER, lose_power
from headrace.faults import Faults
from headrace.wal.segments import segment_name

# Two files: one with a write that is not synced, one whose second sync fails and whose third does not.
WRITE = """
import sys
from pathlib import Path
from headrace.faults import reached
from headrace.ingest.log import seeded

reached("log opening")  # which loads the recorder
hooks = seeded.hooks
first, second, third = map(Path, sys.argv[1:])

def create(path):
    path.touch()
    hooks.created(str(path))

def write(path, data):
    with path.open("ab") as file:
        file.write(data)

create(first)
write(first, b"synced")
hooks.synced(str(first), False)
write(first, b"not synced")
create(second)
write(second, b"kept")
hooks.synced(str(second), False)
write(second, b"dropped")
hooks.synced(str(second), True)
write(second, b"after it")
hooks.synced(str(second), False)
create(third)
"""


@pytest.mark.processes
def test_what_was_not_synced_is_gone(tmp_path: Path) -> None:
    faults = Faults(tmp_path / "faults")
    faults.load(RECORDER)
    paths = [tmp_path / segment_name(number) for number in (1, 2, 3)]
    environment = {**os.environ, **faults.environment}
    subprocess.run([sys.executable, "-c", WRITE, *map(str, paths)], env=environment, check=True)
    assert [path.read_bytes() for path in paths] == [b"syncednot synced", b"keptdroppedafter it", b""]
    assert lose_power(tmp_path, faults) == len("not synced") + len("droppedafter it")
    assert [path.read_bytes() for path in paths] == [b"synced", b"kept", b""]
