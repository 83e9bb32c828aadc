"""Messages that no decent client sends; each of them has to be refused, and nobody else to notice."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable

import pyarrow as pa
from pyarrow import flight

from headrace.certify.ingest.journal import Broken

_LONG = b"a value of more than twelve bytes"
_LEVELS = 250  # what JSON libraries read, and do not write
_NAME_BYTES = 2 << 20
_ROWS = 1 << 28


def _views() -> pa.RecordBatch:
    """A null whose view has a negative length, which a cast would follow."""
    words = ((len(_LONG), int.from_bytes(_LONG[:4], "little"), 0, 0), (-(2**31), 0, 0, 0))
    body = pa.py_buffer(b"".join(struct.pack("<iiii", *word) for word in words))
    buffers = [pa.py_buffer(b"\x01"), body, pa.py_buffer(_LONG)]
    return pa.record_batch({"text": pa.Array.from_buffers(pa.string_view(), 2, buffers)})


def _wide_schema() -> pa.RecordBatch:
    return pa.record_batch([[1]] * 4, [f"{number}{'x' * _NAME_BYTES}" for number in range(4)])


def _hollow() -> pa.RecordBatch:
    """Nulls, which take no room before they have a type."""
    return pa.record_batch([pa.Array.from_buffers(pa.null(), _ROWS, [None])], ["number"])


def _writing(collection: str, make: Callable[[], pa.RecordBatch]) -> Callable[[flight.FlightClient], None]:
    def write(client: flight.FlightClient) -> None:
        batch = make()
        descriptor = flight.FlightDescriptor.for_path("streaming_write", collection)
        writer, reader = client.do_exchange(descriptor)
        with writer:
            writer.begin(batch.schema)
            writer.write_batch(batch)
            writer.done_writing()
            for _ in reader:
                pass

    return write


def _deep_json(client: flight.FlightClient) -> None:
    schema = '{"a":' * _LEVELS + "1" + "}" * _LEVELS
    declared = f'"type": "object", "properties": {{"id": {{"type": "integer"}}}}, "examples": [{schema}]'
    body = f'{{"name": "deep", "key": ["/id"], "schema": {{{declared}}}}}'
    json.loads(body)
    list(client.do_action(flight.Action("create_collection", body.encode())))


def acts(collection: str) -> dict[str, Callable[[flight.FlightClient], None]]:
    """Returns them by name; `collection` is one that others write to."""
    return {
        "views that point nowhere": _writing("hostile", _views),
        "a schema of eight megabytes": _writing("hostile", _wide_schema),
        "JSON that is nested 250 deep": _deep_json,
        "a column of nulls that is larger than memory": _writing(collection, _hollow),
    }


def refused(url: str, what: str, act: Callable[[flight.FlightClient], None]) -> None:
    """Raises if the server takes it."""
    with flight.connect(url) as client:
        try:
            act(client)
        except flight.FlightError:
            return
    raise Broken(f"a server takes {what}")
