"""What is in the files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.connectors.files import encoding
from headrace.connectors.files.config import FilesResource
from headrace.connectors.files.storage import Sink
from headrace.model.collections import DOCUMENT_FIELD
from headrace.model.materializations import Binding
from headrace.protocol.messages import Apply
from headrace.testing import MemoryLog, Runtime, samples
from tests.connectors.files.driving import CLIENT, applied, open_again, planned, things, write
from tests.connectors.files_endpoint import FilesEndpointUnderTest


def only_file(endpoint: FilesEndpointUnderTest) -> Path:
    (path,) = endpoint.files("things")
    return Path(path)


@pytest.mark.parametrize(
    ("resource", "ending", "codec"),
    [
        ({}, ".parquet", "ZSTD"),
        ({"compression": "snappy"}, ".parquet", "SNAPPY"),
        ({"compression": "none"}, ".parquet", "UNCOMPRESSED"),
    ],
)
def test_parquet(folder: FilesEndpointUnderTest, resource: dict[str, str], ending: str, codec: str) -> None:
    log, view = MemoryLog(), applied(folder.config, things(), **resource)
    write(view, log, [1, 2])
    open_again(view, log)
    path = only_file(folder)
    assert path.name.endswith(ending)
    about = pq.read_metadata(path)
    assert about.row_group(0).column(0).compression == codec
    assert json.loads(about.metadata[b"headrace"]) == {
        "materialization": "view",
        "collection": "things",
        "key_range": "00000000-ffffffff",
        "number": 1,
    }


def test_rows_go_out_in_row_groups(folder: FilesEndpointUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "ROW_GROUP_BYTES", 800)
    log, view = MemoryLog(), applied(folder.config, things())
    with Runtime(CLIENT, view, log, rows_per_message=10) as runtime:
        runtime.transact([[{"id": number} for number in range(250)]], {"n": 1})
    open_again(view, log)
    assert pq.read_metadata(only_file(folder)).num_row_groups == 3
    assert pq.read_table(only_file(folder)).column("id").to_pylist() == list(range(250))


def test_json_lines(folder: FilesEndpointUnderTest) -> None:
    log = MemoryLog()
    view = planned(folder.config, samples.ALL_TYPES, include=[DOCUMENT_FIELD], format="jsonl")
    CLIENT.apply(Apply(view, "1"))
    with Runtime(CLIENT, view, log) as runtime:
        runtime.transact([samples.ALL_TYPES_DOCUMENTS], {"n": 1})
    open_again(view, log)
    path = only_file(folder)
    assert path.name.endswith(".jsonl.gz")
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    assert [row[DOCUMENT_FIELD] for row in rows] == samples.ALL_TYPES_DOCUMENTS
    usual, bare = rows[0], rows[1]
    assert {name: usual[name] for name in samples.ALL_TYPES_DOCUMENTS[0] if name != "instant"} == {
        name: value for name, value in samples.ALL_TYPES_DOCUMENTS[0].items() if name != "instant"
    }
    assert usual["instant"] == "2026-11-15T06:30:00.123456Z"
    assert bare["object"] is None


class InMemory(Sink):
    def __init__(self) -> None:
        super().__init__()
        self.data = b""

    def write(self, data: Any) -> int:
        self.data += bytes(data)
        return len(data)


def test_json_text_of_several_lines_is_one_line() -> None:
    sink = InMemory()
    binding = Binding(things(), {}, ("things",), delta_updates=True)
    encoder = encoding.encoder(
        binding, FilesResource(prefix="things", format="jsonl", compression="none"), b"", sink
    )
    document = json.dumps({"id": 1, "text": "a\nb"}, indent=2)
    encoder.write(pa.RecordBatch.from_pydict({"id": [1], DOCUMENT_FIELD: [document]}))
    encoder.close()
    assert sink.data.count(b"\n") == 1
    assert json.loads(sink.data) == {"id": 1, DOCUMENT_FIELD: {"id": 1, "text": "a\nb"}}
