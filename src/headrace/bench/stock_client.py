"""A stock Arrow Flight client: no options, one write a message, an acknowledgement row for each tier.

Run as a child of the bench: `python -m headrace.bench.stock_client`.
"""

from __future__ import annotations

import gc
import sys
import time
from dataclasses import asdict
from threading import Thread
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import flight

from headrace.bench import payloads
from headrace.bench.figures import Array, Latency, Run, Tier
from headrace.bench.pacing import Sent, clock, send_all
from headrace.bench.tether import Tether, work
from headrace.client.failures import error_of
from headrace.errors import ServerUnavailable, UnexpectedFailure
from headrace.model import tiers

# The interpreter's default of 5 ms would let the sending thread hold up what arrives for that long.
_SWITCH_SECONDS = 0.0005
_SILENCE_SECONDS = 120.0
_POLL_SECONDS = 0.005


class Acks:
    """Keeps what arrives with the time of its arrival; all the rest is done when the run is over."""

    def __init__(self, reader: Any) -> None:
        self.arrivals: list[float] = []
        self.batches: list[pa.RecordBatch] = []
        self.rows = 0
        self.failure: Exception | None = None
        self._reader = reader
        self._thread = Thread(target=self._run, name="acks", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        read, arrived, kept = self._reader.read_chunk, self.arrivals.append, self.batches.append
        try:
            while True:
                batch = read().data
                arrived(clock())
                kept(batch)
                self.rows += batch.num_rows
        except StopIteration:
            pass
        except (flight.FlightError, pa.ArrowException, OSError) as failure:
            self.failure = failure

    def wait_for_first(self, count: int) -> None:
        """Until so many writes are acknowledged for the first time."""
        seen = acknowledged = 0
        heard = clock()
        while acknowledged < count:
            self._check(heard)
            time.sleep(_POLL_SECONDS)
            for batch in self.batches[seen:]:
                acknowledged += batch.num_rows - batch.column(2).true_count
                seen, heard = seen + 1, clock()

    def join(self) -> None:
        """Until the server ends the stream."""
        began = clock()
        while self._thread.is_alive():
            self._thread.join(1.0)
            self._check(max(began, self.arrivals[-1] if self.arrivals else 0.0))
        self._check(clock())

    def _check(self, heard: float) -> None:
        if self.failure is not None:
            raise error_of(self.failure)
        if clock() - heard > _SILENCE_SECONDS:
            raise ServerUnavailable(f"the server said nothing for {_SILENCE_SECONDS:.0f} s")


def run(tether: Tether, command: dict[str, Any]) -> dict[str, Any]:
    count, warm_up = int(command["writes"]), int(command["warm_up"])
    rows = payloads.batches(int(command["payload"]))
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        client = flight.connect(command["url"])
        descriptor = flight.FlightDescriptor.for_path("streaming_write", command["collection"])
        writer, reader = client.do_exchange(descriptor)
        writer.begin(payloads.SCHEMA)
        acks = Acks(reader)
        send_all(writer.write_batch, rows, warm_up, None)
        acks.wait_for_first(warm_up)
        gc.collect()
        gc.disable()
        rows_of_all = (count + warm_up) * (len(tiers.Tier) if command["all_tiers"] else 1)
        done = tether.report(lambda: acks.rows * count // rows_of_all)
        cpu = time.process_time()
        sent = send_all(writer.write_batch, rows, count, command["rate"])
        writer.done_writing()
        acks.join()
        cpu = time.process_time() - cpu
        done.set()
    except (flight.FlightError, pa.ArrowException, OSError) as failure:
        raise error_of(failure) from None
    wall_clock = time.time() - clock()
    reached = tiers_of(acks, sent, warm_up, wall_clock if command["same_clock"] else None)
    late = None if sent.late is None else Latency.of(sent.late)
    return asdict(Run(count, command["rate"], reached, late, client_cpu_us=cpu / count * 1e6))


def tiers_of(acks: Acks, sent: Sent, warm_up: int, wall_clock: float | None) -> dict[str, Tier]:
    """What the rows say of each tier; those of the warm-up, which are the first, are left out."""
    table = pa.Table.from_batches(acks.batches)
    arrivals = np.repeat(acks.arrivals, [batch.num_rows for batch in acks.batches])
    lsns = table.column("lsn").to_numpy()
    stamps = table.column("timestamp").cast(pa.int64()).to_numpy() / 1e6
    names = table.column("durability_level").combine_chunks().dictionary_encode()
    codes = names.indices.to_numpy()
    # One stream's writes get rising LSNs in the order in which they were sent.
    first = np.sort(lsns[codes == names.dictionary.index(tiers.Tier.MEMORY.name).as_py()])
    if len(np.unique(first)) != len(first):
        raise UnexpectedFailure("the server acknowledged an LSN twice")
    reached = {}
    for code, name in enumerate(names.dictionary.to_pylist()):
        chosen = codes == code
        order = np.searchsorted(first, lsns[chosen]) - warm_up
        measured = order >= 0
        order, arrived = order[measured], arrivals[chosen][measured]
        reached[name] = _tier(order, arrived, stamps[chosen][measured], sent, wall_clock)
    return reached


def _tier(order: Array, arrived: Array, stamps: Array, sent: Sent, wall_clock: float | None) -> Tier:
    notice = None if wall_clock is None else Latency.of(arrived + wall_clock - stamps)
    latency = None if sent.due is None else Latency.of(arrived - sent.due[order])
    return Tier(len(order), float(arrived.max() - sent.started), latency, notice)


if __name__ == "__main__":
    work(run)
