"""What a reader sees while files come in, and what a large transaction costs."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from headrace.errors import HeadraceError
from headrace.model.key_range import FULL_RANGE
from headrace.protocol.messages import (
    Acknowledge,
    Acknowledged,
    Flush,
    Flushed,
    Open,
    Opened,
    StartCommit,
    StartedCommit,
    Store,
)
from headrace.testing import MemoryLog
from tests.connectors.files.driving import CLIENT, applied, things, write
from tests.connectors.files_endpoint import FilesEndpointUnderTest
from tests.waiting import wait_until

ROWS = 200
DOCUMENTS = 500_000
MOST_MEMORY = 300 << 20
"""What 500,000 documents may add; they are 1 GB as rows in memory."""


def test_a_reader_that_polls_never_sees_part_of_a_transaction(any_endpoint: FilesEndpointUnderTest) -> None:
    """Over the whole prefix, as a user would who knows nothing of its folders."""
    view, log, done = applied(any_endpoint.config, things()), MemoryLog(), threading.Event()
    errors: list[HeadraceError] = []
    seen: list[int] = []

    def seen_since(looks: int) -> Callable[[], bool]:
        """Holds after two more looks, because the one under way may have begun before."""
        return lambda: len(seen) >= looks + 2

    def write_on() -> None:
        try:
            for number in range(12):
                first, second = number * 2 * ROWS, (number * 2 + 1) * ROWS
                write(view, log, range(first, second), range(second, second + ROWS))
                if number < 3:  # or it may be over before the reader has had its turns
                    wait_until(seen_since(len(seen)), "a look that began after the write")
        except HeadraceError as error:
            errors.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=write_on)
    thread.start()
    while not done.is_set():
        seen.append(counted(any_endpoint))
    thread.join()
    assert not errors
    assert all(count % ROWS == 0 for count in seen), "a part of a transaction was seen"
    assert seen == sorted(seen), "what was seen went away"
    assert len(set(seen)) > 2, "the reader must have looked while files came in"
    assert counted(any_endpoint) == 23 * ROWS, "all but the last, which is not acknowledged"


def counted(endpoint: FilesEndpointUnderTest) -> int:
    """How many rows there are, each of which must be there once."""
    schema = pa.schema([("id", pa.int64())])
    there = ds.dataset(f"{endpoint.root}/things", schema, format="parquet", filesystem=endpoint.filesystem)
    # The tests' S3 server, unlike S3, lists what is still being put, with an id of its own behind the name.
    files = [path for path in there.files if path.endswith(".parquet")]
    found = ds.dataset(files, schema, format="parquet", filesystem=endpoint.filesystem)
    rows = found.to_table().column("id").to_pylist()
    assert len(set(rows)) == len(rows)
    return len(rows)


@pytest.mark.processes
def test_a_large_transaction_takes_little_memory(folder: FilesEndpointUnderTest) -> None:
    """In a process of its own, whose peak is its own too."""
    code = (
        "import json, sys; from tests.connectors.files.test_readers import write_much;"
        "write_much(json.loads(sys.argv[1]))"
    )
    subprocess.run([sys.executable, "-c", code, json.dumps(dict(folder.config))], check=True)
    (path,) = folder.files("things")
    about = pq.read_metadata(path)
    assert about.num_rows == DOCUMENTS
    assert about.num_row_groups > 3


def write_much(config: dict[str, Any]) -> None:
    """Message by message, since the runtime of tests has a whole transaction in memory."""
    view = applied(config, things(text={"type": "string"}))
    text = pa.array(["x" * 2000] * 1000)
    with CLIENT.transactions() as stream:
        stream.send(Open(view, "1", FULL_RANGE))
        assert isinstance(stream.receive(), Opened)
        stream.send(Acknowledge())
        assert isinstance(stream.receive(), Acknowledged)
        stream.send(Flush())
        assert isinstance(stream.receive(), Flushed)
        before = peak()
        for begin in range(0, DOCUMENTS, len(text)):
            keys = pa.RecordBatch.from_pydict({"id": pa.array(range(begin, begin + len(text)))})
            values = pa.RecordBatch.from_pydict({"text": text})
            stream.send(Store(0, keys, values, None, pa.array([False] * len(text))))
        stream.send(StartCommit({"n": 1}))
        assert isinstance(stream.receive(), StartedCommit)
        stream.send(Acknowledge())
        assert isinstance(stream.receive(), Acknowledged)
    added = peak() - before
    assert added < MOST_MEMORY, f"{added >> 20} MiB"


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
