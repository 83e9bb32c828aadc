"""Many clients of `headrace.connect` in one process, one `write` call for each write.

One thread writes for all of them in turns. A hundred clients are a hundred programs elsewhere; a hundred
threads here would measure how they fight for the interpreter's lock. What each client does with its writes,
on its own two threads, is what it does anywhere.

Run as a child of the bench: `python -m headrace.bench.coalescing_client`. It says when its clients are
connected, and begins when it is told to, so that several such processes begin together.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pyarrow as pa

from headrace.bench import payloads
from headrace.bench.tether import Tether, work
from headrace.client import Client, Receipt, Writer, connect

_CLOSE_SECONDS = 10.0
_REACH_SECONDS = 600.0

# A client that writes as fast as it can has this much to say by the time the others have had their turn.
_TURN = 512

# Not perf_counter: the times of several processes are compared.
clock = time.monotonic


class Driver:
    def __init__(self, writers: list[Writer], rows: list[pa.RecordBatch]) -> None:
        self.writes = 0
        self.reached: list[dict[str, float]] = [{} for _ in writers]
        """When each client heard that its last write is at each tier."""
        self._writers, self._rows = writers, rows

    def write(self, count: int, tiers: list[str]) -> None:
        """So many by each client, in turns of a few hundred; returns when all are at all the tiers."""
        for done in range(0, count, _TURN):
            turn = self._rows[: min(_TURN, count - done)]
            is_last = done + _TURN >= count
            for number, writer in enumerate(self._writers):
                write = writer.write
                for row in turn:
                    receipt = write(row)
                self.writes += len(turn)
                if is_last:
                    writer.send_now()
                    self._note(number, receipt, tiers)
        for tier in tiers:
            for writer in self._writers:
                writer.flush(tier, _REACH_SECONDS)

    def _note(self, number: int, receipt: Receipt, tiers: list[str]) -> None:
        for tier in tiers:
            receipt.on(tier, partial(self._heard, self.reached[number], tier))

    @staticmethod
    def _heard(times: dict[str, float], tier: str, _: Receipt) -> None:
        times[tier] = clock()


def run(tether: Tether, command: dict[str, Any]) -> dict[str, Any]:
    client = connect(command["url"])
    try:
        return _measured(tether, command, client)
    finally:
        client.close(_CLOSE_SECONDS)


def _measured(tether: Tether, command: dict[str, Any], client: Client) -> dict[str, Any]:
    rows, count = payloads.batches(int(command["payload"])), int(command["writes"])
    collection, linger = command["collection"], command["linger"]
    writers = [client.writer(collection, linger=linger) for _ in range(command["clients"])]
    Driver(writers, rows).write(1, ["MEMORY"])
    driver = Driver(writers, rows)
    tether.send(ready=True)
    tether.receive()
    done = tether.report(lambda: driver.writes)
    started, cpu = clock(), time.process_time()
    driver.write(count, command["tiers"])
    cpu = time.process_time() - cpu
    done.set()
    for writer in writers:
        writer.close(_CLOSE_SECONDS)  # waits for the callbacks, which come after a flush has returned
    clients = [{"started": started, "written": count, "reached": times} for times in driver.reached]
    return {"cpu_seconds": cpu, "clients": clients}


if __name__ == "__main__":
    work(run)
