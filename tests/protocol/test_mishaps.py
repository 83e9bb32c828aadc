"""Ways in which one side could leave the other waiting for ever, each of which must end with a word."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headrace.errors import ProtocolError, UnexpectedFailure
from headrace.protocol.connector import Connector, ConnectorClient
from headrace.protocol.grpc import GrpcConnector, GrpcServer
from headrace.protocol.in_process import InProcess
from headrace.protocol.loop import accept_acknowledge, accept_open, loads, stores
from headrace.protocol.messages import Acknowledge, Acknowledged, Flush, Opened
from headrace.protocol.stream import ConnectorStream
from tests.protocol.background import Background, happens
from tests.protocol.toys import Scripted, open_stream


@contextmanager
def reached(connector: Connector, transport: str) -> Iterator[ConnectorClient]:
    if transport == "in process":
        yield InProcess(connector)
        return
    with GrpcServer(connector, "127.0.0.1:0") as server, GrpcConnector(f"127.0.0.1:{server.port}") as client:
        yield client


transports = pytest.mark.parametrize("transport", ["in process", "grpc"])


@transports
def test_a_connector_that_forgets_an_answer_is_told_which(transport: str) -> None:
    def forgets_flushed(stream: ConnectorStream) -> None:
        accept_open(stream)
        stream.send(Opened())
        assert accept_acknowledge(stream)
        stream.send(Acknowledged())
        list(loads(stream))
        list(stores(stream))

    with reached(Scripted(forgets_flushed), transport) as client:
        stream = client.transactions()
        open_stream(stream)
        stream.send(Acknowledge())
        stream.receive()
        stream.send(Flush())
        with pytest.raises(ProtocolError, match="waits for a request and the runtime for Flushed"):
            Background(stream.receive).result()


@transports
def test_a_connector_that_exits_ends_the_stream(transport: str) -> None:
    with reached(Scripted(lambda _: sys.exit(3)), transport) as client:
        stream = client.transactions()
        with pytest.raises(UnexpectedFailure, match="SystemExit: 3"):
            Background(lambda: open_stream(stream)).result()


@transports
def test_a_stream_that_the_runtime_drops_ends_the_connectors_loop(transport: str) -> None:
    connector = Scripted(lambda stream: _serve(stream))
    with reached(connector, transport) as client:
        stream = client.transactions()
        open_stream(stream)
        del stream
        gc.collect()
        assert happens(connector.ended)


def _serve(stream: ConnectorStream) -> None:
    accept_open(stream)
    stream.send(Opened())
    accept_acknowledge(stream)
