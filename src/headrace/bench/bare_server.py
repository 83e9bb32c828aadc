"""The ceiling: what Flight itself can do from Python. It counts batches, and acknowledges the count.

Nothing is checked, kept or written. Acknowledgements go out from a second thread that lingers for half a
millisecond; without it a message for each would starve the reading side. Run as a child of the bench:
`python -m headrace.bench.bare_server`.
"""

from __future__ import annotations

import sys
import time
from threading import Event, Thread
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import flight

from headrace.bench.tether import Tether
from headrace.ingest.acks import ACK_SCHEMA

_LINGER_SECONDS = 0.0005
_SWITCH_SECONDS = 0.0005
_MOST_ROWS = 16_384
_NAMES = pa.array(["MEMORY"] * _MOST_ROWS, pa.string())
_UPDATES = pa.array([False] * _MOST_ROWS, pa.bool_())


class BareServer(flight.FlightServerBase):  # type: ignore[misc]
    def do_exchange(self, _context: Any, _descriptor: Any, reader: Any, writer: Any) -> None:
        writer.begin(ACK_SCHEMA)
        count = _Count(writer)
        acks = Thread(target=count.acknowledge, daemon=True)
        acks.start()
        try:
            read = reader.read_chunk
            while True:
                read()
                count.received += 1
                if not count.news.is_set():
                    count.news.set()
        except StopIteration:
            pass
        finally:
            count.is_done = True
            count.news.set()
            acks.join()


class _Count:
    def __init__(self, writer: Any) -> None:
        self.received = 0
        self.is_done = False
        self.news = Event()
        self._writer = writer

    def acknowledge(self) -> None:
        sent = 0
        while True:
            self.news.wait()
            time.sleep(_LINGER_SECONDS)
            self.news.clear()
            is_done, received = self.is_done, self.received
            while sent < received:
                rows = min(received - sent, _MOST_ROWS)
                self._writer.write_batch(_acks(sent + 1, rows))
                sent += rows
            if is_done:
                return


def _acks(first: int, rows: int) -> pa.RecordBatch:
    now = time.time_ns() // 1000
    lsns, times = np.arange(first, first + rows, dtype=np.uint64), np.full(rows, now, np.int64)
    columns = [
        pa.Array.from_buffers(pa.uint64(), rows, [None, pa.py_buffer(lsns)], null_count=0),
        _NAMES.slice(0, rows),
        _UPDATES.slice(0, rows),
        pa.Array.from_buffers(pa.timestamp("us"), rows, [None, pa.py_buffer(times)], null_count=0),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ACK_SCHEMA)


def main() -> None:
    tether = Tether()
    sys.setswitchinterval(_SWITCH_SECONDS)
    server = BareServer("grpc://127.0.0.1:0")
    tether.send(url=f"grpc://127.0.0.1:{server.port}")
    server.serve()


if __name__ == "__main__":
    main()
