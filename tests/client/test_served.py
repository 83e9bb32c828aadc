"""The client with `headrace serve` itself, which is killed and frozen."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import headrace
from headrace.client import Receipt, Reconnect, Tier
from headrace.errors import SchemaError
from headrace.testing.ingest_process import IngestProcess
from tests.client.conftest import QUICK, be_patient
from tests.waiting import DEADLINE_SECONDS, wait_until

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IngestProcess]:
    folder = tmp_path_factory.mktemp("served")
    config = folder / "headrace.yaml"
    config.write_text(json.dumps({"ingest": {"segment_seconds": 0.05, "commit_interval": 0.1}}))
    with IngestProcess(folder / "data", "--config", str(config)) as server:
        yield server


def test_the_examples_of_the_documentation(
    served: IngestProcess, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/client.md").read_text(), re.DOTALL)
    exec(compile("\n".join(blocks), "docs/client.md", "exec"), {"url": served.url, "__name__": "example"})
    said = capsys.readouterr().out
    assert "column 'id' is int64" in said
    assert "'COMMITTED'}" in said
    assert said.splitlines()[-1] == "ok"


def test_a_server_that_is_killed_while_it_is_written_to(served: IngestProcess) -> None:
    reconnect = Reconnect(first_pause=0.01, longest_pause=0.2, give_up_after=DEADLINE_SECONDS)
    receipts: list[Receipt] = []
    is_enough = threading.Event()

    def write() -> None:
        while not is_enough.is_set():
            receipts.extend(writer.write({"n": len(receipts)}) for _ in range(50))
            receipts[-1].wait(timeout=DEADLINE_SECONDS)

    with headrace.connect(served.url) as client:
        writer = client.writer("killed", reconnect=reconnect)
        writing = threading.Thread(target=write)
        writing.start()
        wait_until(lambda: len(receipts) >= 200, "200 writes")
        served.kill()
        served.start()
        is_enough.set()
        writing.join()
        writer.flush("COMMITTED", timeout=DEADLINE_SECONDS)
        rows = client.read("killed", committed_only=True).read_all().sort_by("_lsn")
        assert rows.column("n").to_pylist() == list(range(len(receipts)))
        assert rows.column("_lsn").to_pylist() == [receipt.lsn for receipt in receipts]
        assert all(receipt.level is Tier.COMMITTED for receipt in receipts)


def test_a_server_that_stands_still(served: IngestProcess) -> None:
    with headrace.connect(served.url) as client, client.writer("frozen", reconnect=QUICK) as writer:
        writer.write_durable({"n": 0}, timeout=DEADLINE_SECONDS)
        served.freeze()
        try:
            writer._sender._reconnect = replace(QUICK, open_timeout=0.2, ack_timeout=0.1)
            receipt = writer.write({"n": 1})
            wait_until(lambda: writer.trouble is not None, "the writer's trouble")
            be_patient(writer)
        finally:
            served.resume()  # other tests share it
        receipt.wait(timeout=DEADLINE_SECONDS)
        assert client.read("frozen").read_all().column("n").to_pylist() == [0, 1]


def test_many_schemas_in_one_writer(served: IngestProcess) -> None:
    client = headrace.connect(served.url)
    client.create_collection("mixed", pa.schema([("a", pa.int64()), ("b", pa.string())]))
    with client, client.writer("mixed", reconnect=QUICK) as writer:
        first = writer.write({"a": 1, "b": "x"})
        bad = writer.write({"a": "not a number", "b": "x"})
        last = writer.write(pa.RecordBatch.from_pylist([{"b": "y", "a": 2}]))
        with pytest.raises(SchemaError, match="'a'"):
            bad.wait(timeout=DEADLINE_SECONDS)
        last.wait(timeout=DEADLINE_SECONDS)
        assert last.lsn > first.lsn
        rows = client.read("mixed", from_lsn=first.lsn).read_all().sort_by("_lsn")
        assert rows.column("a").to_pylist() == [1, 2]
