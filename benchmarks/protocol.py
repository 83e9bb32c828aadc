"""What the protocol costs: tuples, and documents a second into a connector that drops them.

python -m benchmarks.protocol [--rows 500000]
"""

from __future__ import annotations

import argparse
import queue
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection

import grpc
from rich.console import Console
from rich.table import Table

from benchmarks import tuple_packing
from benchmarks.noop_connector import NoopConnector
from benchmarks.served import Served, serve_noop
from benchmarks.workload import (
    ACCOUNTS,
    DOCUMENT_BYTES,
    ROWS_PER_MESSAGE,
    Batch,
    batches,
    load,
    opened,
    store,
)
from headrace.protocol.connector import ConnectorClient
from headrace.protocol.grpc import GrpcConnector
from headrace.protocol.grpc.methods import CHANNEL_OPTIONS
from headrace.protocol.in_process import InProcess
from headrace.protocol.messages import ValidateBinding
from headrace.testing import materialization_of

RUNS = 3


def stored_per_second(client: ConnectorClient, rows: list[Batch], count: int) -> float:
    materialization = materialization_of(client, "bench", "noop", {}, [ValidateBinding(ACCOUNTS, {})])
    best = float("inf")
    for _ in range(RUNS):
        with opened(client, materialization) as stream:
            load(stream, iter(()))
            start = time.perf_counter()
            store(stream, iter(rows), exists=False)
            best = min(best, time.perf_counter() - start)
            _forget_digests(rows)
    return count / best


def _forget_digests(rows: list[Batch]) -> None:
    """Each run sends new messages, so nothing that an earlier one computed is there to be used again."""
    for batch in rows:
        batch.keys = batch.keys.slice(0)


def queue_per_second(rows: list[Batch], count: int) -> float:
    """The floor in process: the same batches through a bounded queue to a thread that drops them."""
    best = float("inf")
    for _ in range(RUNS):
        pipe: queue.Queue[Batch | None] = queue.Queue(4)
        reader = threading.Thread(target=lambda pipe=pipe: [None for _ in iter(pipe.get, None)])
        start = time.perf_counter()
        reader.start()
        for batch in rows:
            pipe.put(batch)
        pipe.put(None)
        reader.join()
        best = min(best, time.perf_counter() - start)
    return count / best


def serve_bytes(ready: Connection) -> None:
    """The floor over gRPC: a server that drops byte strings."""

    def drop(messages: Iterator[bytes], _: grpc.ServicerContext) -> Iterator[bytes]:
        for _message in messages:
            pass
        yield b"done"

    server = grpc.server(ThreadPoolExecutor(2), options=CHANNEL_OPTIONS)
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(drop)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench", {"Drop": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    ready.send(port)
    server.wait_for_termination()


def bytes_per_second(port: int, count: int) -> float:
    """Documents a second of nothing but their own bytes, in messages as large as ours."""
    message = b"x" * (DOCUMENT_BYTES * ROWS_PER_MESSAGE)
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=CHANNEL_OPTIONS) as channel:
        call: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream("/bench/Drop")
        best = float("inf")
        for _ in range(RUNS):
            start = time.perf_counter()
            list(call(message for _ in range(count // ROWS_PER_MESSAGE)))
            best = min(best, time.perf_counter() - start)
    return count / best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    count = parser.parse_args().rows
    console = Console()
    console.print(_tuples_table())
    rows = list(batches(count))
    table = Table(
        "transport",
        "documents/s",
        "at least",
        "floor/s",
        "of the floor",
        title="Into a no-op connector",
    )
    ours, floor = stored_per_second(InProcess(NoopConnector()), rows, count), queue_per_second(rows, count)
    table.add_row("in process", f"{ours:,.0f}", "300,000", f"{floor:,.0f} (a queue)", f"{ours / floor:.5f}")
    with Served(serve_noop) as port, GrpcConnector(f"127.0.0.1:{port}") as client:
        ours = stored_per_second(client, rows, count)
    with Served(serve_bytes) as port:
        floor = bytes_per_second(port, count)
    table.add_row("gRPC", f"{ours:,.0f}", "100,000", f"{floor:,.0f} (bare gRPC)", f"{ours / floor:.3f}")
    console.print(table)


def _tuples_table() -> Table:
    table = Table("", "rows/s", "times fdb.tuple", "at least", title="Packed tuples")
    results = tuple_packing.measure()
    for name in results:
        if name.endswith(" ratio"):
            what = name.removesuffix(" ratio")
            table.add_row(what, f"{results[f'{what} rows/s']:,.0f}", f"{results[name]:.0f}", "20")
    return table


if __name__ == "__main__":
    main()
