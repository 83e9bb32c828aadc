"""One stock Flight client in Python, with one write a message, at an offered rate.

Run as a child of the bench: `python -m headrace.bench.python_client`.
"""

from __future__ import annotations

import gc
import sys
from dataclasses import asdict
from threading import Thread
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import flight

from headrace.bench import payloads
from headrace.bench.figures import Latency, Run, Tier
from headrace.bench.pacing import Sent, clock, send_all
from headrace.bench.tether import Tether, work
from headrace.client.failures import error_of
from headrace.errors import ServerUnavailable, UnexpectedFailure

# The interpreter's default of 5 ms would let the sending thread hold up what arrives for that long.
_SWITCH_SECONDS = 0.0005


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
                if batch is None:  # the answer to the options
                    continue
                arrived(clock())
                kept(batch)
                self.rows += batch.num_rows
        except StopIteration:
            pass
        except (flight.FlightError, pa.ArrowException, OSError) as failure:
            self.failure = failure

    def join(self, silence: float) -> None:
        """Until the server ends the stream."""
        heard, rows = clock(), self.rows
        while self._thread.is_alive():
            self._thread.join(1.0)
            if self.rows != rows:
                heard, rows = clock(), self.rows
            if clock() - heard > silence:
                raise ServerUnavailable(f"the server said nothing for {silence:.0f} s")
        if self.failure is not None:
            raise error_of(self.failure)


def run(tether: Tether, command: dict[str, Any]) -> dict[str, Any]:
    rate = float(command["rate"])
    warm_up, count = (max(int(rate * command[name]), 1) for name in ("warm_up_seconds", "seconds"))
    rows = payloads.batches(int(command["payload"]))
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        client = flight.connect(command["url"], **_security(command))
        options = flight.FlightCallOptions(headers=_headers(command))
        descriptor = flight.FlightDescriptor.for_path("streaming_write", command["collection"])
        writer, reader = client.do_exchange(descriptor, options)
        writer.begin(payloads.SCHEMA)
        acks = Acks(reader)
        # The reader hears of one tier only, as it does from the floor.
        writer.write_metadata(pa.py_buffer(b'{"levels": ["MEMORY"]}'))
        gc.collect()
        gc.disable()
        done = tether.report(lambda: acks.rows)
        sent = send_all(writer.write_batch, rows, warm_up + count, rate)
        writer.done_writing()
        acks.join(float(command["silence_seconds"]))
        done.set()
    except (flight.FlightError, pa.ArrowException, OSError) as failure:
        raise error_of(failure) from None
    return asdict(run_of(acks, sent, warm_up, count))


def run_of(acks: Acks, sent: Sent, warm_up: int, count: int) -> Run:
    """What was measured after the warm-up. The nth row acknowledges the nth write, by a rising LSN."""
    lsns = pa.chunked_array([batch.column(0) for batch in acks.batches], pa.uint64()).to_numpy()
    if len(lsns) != warm_up + count or not (np.diff(lsns) > 0).all():
        raise UnexpectedFailure(
            f"{warm_up + count:,} writes were acknowledged with {len(lsns):,} rows, or not in their order"
        )
    arrived = np.repeat(acks.arrivals, [batch.num_rows for batch in acks.batches])[warm_up:]
    due, late = sent.due[warm_up:], sent.late[warm_up:]
    rate = count / float(arrived.max() - due[0])
    tier = Tier(len(lsns), rate, float(arrived.max() - sent.started), Latency.of(arrived - due))
    return Run(1, warm_up + count, {"MEMORY": tier}, Latency.of(late), (rate,))


def _security(command: dict[str, Any]) -> dict[str, Any]:
    return {} if command.get("ca") is None else {"tls_root_certs": command["ca"]}


def _headers(command: dict[str, Any]) -> list[tuple[bytes, bytes]]:
    token = command.get("token")
    return [] if token is None else [(b"authorization", f"Bearer {token}".encode())]


if __name__ == "__main__":
    work(run)
