"""`headrace serve` as a child process, and what of it can be looked at from outside."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import yaml
from pyarrow import flight

from headrace.testing.ingest_process import without_pandas
from tests.waiting import DEADLINE_SECONDS, wait_until

HEADRACE = (sys.executable, "-m", "headrace")
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])

_LISTENS = re.compile(r"^headrace listens on (\S+)$", re.MULTILINE)
_METRICS = re.compile(r"^metrics on port (\d+):", re.MULTILINE)


class Serving:
    """A context manager: the server listens inside of the block, and is dead after it."""

    def __init__(
        self,
        data: Path,
        *options: str,
        config: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        before_exec: Callable[[], None] | None = None,
    ) -> None:
        self.data = data
        files = ["--config", _written(data, config)] if config is not None else []
        self._command = [*HEADRACE, "serve", "--data", str(data), *files, *_ports(options), *options]
        self._environment = {**os.environ, **without_pandas(data.parent), **(environment or {})}
        self._before_exec = before_exec
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end of the block
        self.process: subprocess.Popen[bytes]
        self.url = ""
        self.metrics_port = 0

    def begin(self) -> None:
        self.process = subprocess.Popen(
            self._command,
            stdout=self._output,
            stderr=self._output,
            env=self._environment,
            preexec_fn=self._before_exec,
        )

    def __enter__(self) -> Serving:
        self.begin()
        self.wait_until_it_listens()
        return self

    def wait_until_it_listens(self) -> None:
        is_last = "--no-metrics" in self._command
        wait_until(
            lambda: (
                (_LISTENS if is_last else _METRICS).search(self.output()) or self.process.poll() is not None
            ),
            "a server that listens",
        )
        found = _LISTENS.search(self.output())
        assert found, f"the server ended with {self.process.poll()}:\n{self.output()}"
        self.url = found[1]
        metrics = _METRICS.search(self.output())
        self.metrics_port = int(metrics[1]) if metrics else 0

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._output.close()

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    @property
    def seen(self) -> psutil.Process:
        return psutil.Process(self.process.pid)

    @property
    def rss(self) -> int:
        return int(self.seen.memory_info().rss)

    def output(self) -> str:
        """All that it has said, on both of its outputs."""
        size = os.fstat(self._output.fileno()).st_size
        return os.pread(self._output.fileno(), size, 0).decode(errors="replace")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_SECONDS)

    def client(self) -> flight.FlightClient:
        return flight.FlightClient(self.url)

    def action(self, called: str, /, **body: Any) -> dict[str, Any]:
        with self.client() as client:
            return action(client, called, **body)

    def sessions(self) -> list[dict[str, Any]]:
        sessions: list[dict[str, Any]] = self.action("health")["sessions"]
        return sessions

    def page(self, path: str, headers: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Status and text of a page of the metrics port."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.metrics_port}{path}", headers=headers or {})
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_SECONDS) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def metric(self, name: str) -> float:
        """A metric with its labels, as the page spells them."""
        _, text = self.page("/metrics")
        (value,) = [line.rpartition(" ")[2] for line in text.splitlines() if line.startswith(f"{name} ")]
        return float(value)


def _ports(options: Sequence[str]) -> list[str]:
    ports = [] if "--port" in options else ["--port", "0"]
    return ports if {"--no-metrics", "--metrics-port"} & set(options) else [*ports, "--metrics-port", "0"]


def _written(data: Path, config: Mapping[str, Any]) -> str:
    path = data.with_name(f"{data.name}.yaml")
    path.write_text(yaml.safe_dump(dict(config)))
    return str(path)


def action(
    client: flight.FlightClient,
    called: str,
    options: flight.FlightCallOptions | None = None,
    /,
    **body: Any,
) -> dict[str, Any]:
    (result,) = client.do_action(flight.Action(called, json.dumps(body).encode()), options)
    answer: dict[str, Any] = json.loads(result.body.to_pybytes())
    return answer


def rows(first: int, count: int = 1, text: str = "") -> pa.RecordBatch:
    ids = list(range(first, first + count))
    return pa.record_batch([pa.array(ids, pa.int64()), pa.array([text] * count, pa.string())], schema=SCHEMA)


def exchange(
    client: flight.FlightClient, collection: str, options: flight.FlightCallOptions | None = None
) -> tuple[Any, Any]:
    descriptor = flight.FlightDescriptor.for_path("streaming_write", collection)
    # With an end: a call that waits for ever cannot be interrupted, not even by pytest's own limit.
    patience = options or flight.FlightCallOptions(timeout=DEADLINE_SECONDS)
    pair: tuple[Any, Any] = client.do_exchange(descriptor, patience)
    return pair


def write_all(
    client: flight.FlightClient, collection: str, batches: Sequence[pa.RecordBatch], until: str = "LOCAL_DISK"
) -> list[int]:
    """Writes each batch as a stock client does, and returns the LSNs once all are at the tier."""
    writer, reader = exchange(client, collection)
    try:
        writer.begin(batches[0].schema)
        for batch in batches:
            writer.write_batch(batch)
        lsns: list[int] = []
        while len(lsns) < len(batches):
            chunk = reader.read_chunk().data
            levels = chunk.column("durability_level").to_pylist()
            found = zip(chunk.column("lsn").to_pylist(), levels, strict=True)
            lsns += [lsn for lsn, level in found if level == until]
        return lsns
    finally:
        hang_up(writer, reader)


def hang_up(writer: Any, reader: Any) -> None:
    """Ends a stream without waiting for what the server has yet to say."""
    reader.cancel()
    with suppress(pa.ArrowException, OSError, flight.FlightError):
        writer.close()


def read_back(
    client: flight.FlightClient, collection: str, options: flight.FlightCallOptions | None = None
) -> pa.Table:
    ticket = flight.Ticket(json.dumps({"collection": collection}).encode())
    return client.do_get(ticket, options).read_all().sort_by([("_lsn", "ascending"), ("_row", "ascending")])


def error_of(failure: flight.FlightError) -> dict[str, Any]:
    """What the server said to programs."""
    told: dict[str, Any] = json.loads(bytes(failure.extra_info))
    return told
