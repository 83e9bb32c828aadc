"""Peers that are not written with this package: what they see, and what becomes of what they send."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import grpc
import pytest

from headrace.errors import (
    ConnectorRefused,
    EndpointError,
    EndpointUnavailable,
    Fenced,
    HeadraceError,
    ProtocolError,
    SchemaError,
    StreamBroken,
    Terminal,
)
from headrace.protocol.grpc import GrpcConnector, GrpcServer
from headrace.protocol.grpc.gen import materialize_pb2 as pb
from headrace.protocol.grpc.methods import ERROR_METADATA, MAX_MESSAGE_BYTES, SERVICE
from headrace.protocol.messages import Acknowledge, Acknowledged, Loaded, Spec
from headrace.protocol.stream import ConnectorStream
from tests.protocol.background import Background, happens
from tests.protocol.samples import keys, load
from tests.protocol.toys import MemoryConnector, Scripted, oblige, open_stream
from tests.waiting import DEADLINE_SECONDS

Request, Response = pb.TransactionRequest, pb.TransactionResponse
Behave = Callable[[Iterator[pb.TransactionRequest], grpc.ServicerContext], Iterator[pb.TransactionResponse]]


def as_it_is(raw: bytes) -> bytes:
    return raw


@contextmanager
def foreign_connector(behave: Behave) -> Iterator[GrpcConnector]:
    """A connector that only speaks protobuf; it answers with messages, or with bytes as they are."""
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Transactions": grpc.stream_stream_rpc_method_handler(
            behave,
            Request.FromString,
            lambda answer: answer if isinstance(answer, bytes) else answer.SerializeToString(),
        ),
        "Spec": grpc.unary_unary_rpc_method_handler(
            lambda _, context: behave(iter(()), context), pb.SpecRequest.FromString, as_it_is
        ),
    }
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with GrpcConnector(f"127.0.0.1:{port}") as client:
            yield client
    finally:
        server.stop(0).wait()


def opened() -> pb.TransactionResponse:
    return Response(opened=Response.Opened())


def acknowledged() -> pb.TransactionResponse:
    return Response(acknowledged=Response.Acknowledged())


def test_documents_alone_are_enough_for_loaded() -> None:
    documents = b'{"id":1,"owner":"a"}{"id":3}'

    def behave(requests: Any, context: grpc.ServicerContext) -> Iterator[pb.TransactionResponse]:
        next(requests)
        yield opened()
        next(requests)
        yield acknowledged()
        next(requests)
        slices = pb.Slices(offsets=[0, 20, len(documents)])
        yield Response(loaded=Response.Loaded(arena=documents, docs_json=slices))

    with foreign_connector(behave) as client:
        stream = client.transactions()
        open_stream(stream)
        stream.send(Acknowledge())
        stream.send(load(1, 2, 3))
        assert stream.receive() == Acknowledged()
        response = stream.receive()
        assert isinstance(response, Loaded)
        assert response.keys == keys(1, 3)
        assert response.documents.to_pylist() == ['{"id":1,"owner":"a"}', '{"id":3}']


FAULTY_ANSWERS: dict[str, tuple[Any, type[HeadraceError], str]] = {
    "an empty oneof": (Response(), ProtocolError, "holds no message"),
    "an answer out of turn": (acknowledged(), ProtocolError, "Acknowledged is refused in phase OPENING"),
    "a checkpoint that is no JSON": (
        Response(opened=Response.Opened(runtime_checkpoint_json="{")),
        ProtocolError,
        "runtime_checkpoint_json is not a JSON object",
    ),
    "a document without its key": (
        Response(loaded=Response.Loaded(arena=b"{}", docs_json=pb.Slices(offsets=[0, 2]))),
        SchemaError,
        "field 'id' is required",
    ),
    "bytes that are no protobuf": (b"\xff\xff", ProtocolError, "a TransactionResponse cannot be read"),
}


@pytest.mark.parametrize(("answer", "kind", "text"), FAULTY_ANSWERS.values(), ids=FAULTY_ANSWERS)
def test_a_faulty_answer_is_refused(answer: Any, kind: type[HeadraceError], text: str) -> None:
    def behave(requests: Any, context: grpc.ServicerContext) -> Iterator[pb.TransactionResponse]:
        next(requests)
        yield answer
        yield from requests

    with foreign_connector(behave) as client:
        stream = client.transactions()
        with pytest.raises(kind) as raised:
            Background(lambda: open_stream(stream)).result()
        assert text in str(raised.value)
        stream.abandon()


def failing(metadata: tuple[tuple[str, bytes], ...]) -> Behave:
    def behave(requests: Any, context: grpc.ServicerContext) -> Iterator[pb.TransactionResponse]:
        context.set_trailing_metadata(metadata)
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no")
        return iter(())

    return behave


@pytest.mark.parametrize(
    "call",
    [lambda client: client.spec(Spec()), lambda client: open_stream(client.transactions())],
    ids=["a call", "a stream"],
)
@pytest.mark.parametrize(
    "metadata",
    [
        (),
        ((ERROR_METADATA, b"\xff"),),
        ((ERROR_METADATA, b"{"),),
        ((ERROR_METADATA, b"[" * 100_000),),
        ((ERROR_METADATA, b"[]"),),
        ((ERROR_METADATA, b"{}"),),
        ((ERROR_METADATA, b'{"error": [], "message": "x", "fields": {}}'),),
        ((ERROR_METADATA, b'{"error": "Fenced", "message": "x", "fields": 3}'),),
        (("other-bin", b"{}"),),
    ],
)
def test_an_error_that_does_not_say_what_it_is_goes_by_its_status(
    metadata: tuple[tuple[str, bytes], ...], call: Callable[[GrpcConnector], object]
) -> None:
    refused = pytest.raises(ConnectorRefused, match="FAILED_PRECONDITION: no")
    with foreign_connector(failing(metadata)) as client, refused:
        Background(lambda: call(client)).result()


def test_an_error_of_a_kind_that_this_version_does_not_know_is_terminal() -> None:
    raw = json.dumps({"error": "OutOfPaper", "message": "no paper", "fields": {"tray": 2}}).encode()
    with foreign_connector(failing(((ERROR_METADATA, raw),))) as client:
        stream = client.transactions()
        with pytest.raises(Terminal, match="no paper") as raised:
            open_stream(stream)
    assert type(raised.value) is Terminal
    assert vars(raised.value)["tray"] == 2


@contextmanager
def foreign_runtime(connector: Any) -> Iterator[grpc.Channel]:
    listening = GrpcServer(connector, "127.0.0.1:0")
    with listening, grpc.insecure_channel(f"127.0.0.1:{listening.port}") as channel:
        yield channel


def speak(channel: grpc.Channel, requests: Iterator[Any]) -> grpc.RpcError:
    """Sends these and answers what the stream ended with."""
    call = channel.stream_stream(
        f"/{SERVICE}/Transactions",
        lambda request: request if isinstance(request, bytes) else request.SerializeToString(),
        Response.FromString,
    )
    with pytest.raises(grpc.RpcError) as ended:
        list(call(requests))
    return ended.value


def test_a_faulty_request_is_refused_with_its_fields() -> None:
    connector = Scripted(oblige)
    with foreign_runtime(connector) as channel:
        error: Any = speak(channel, iter([Request(load=Request.Load())]))
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert error.details() == "Load is refused in phase OPEN of transaction 0: expected Open"
        raw = json.loads(dict(error.trailing_metadata())[ERROR_METADATA])
        assert raw["error"] == "ProtocolError"
        assert raw["fields"] == {"message_name": "Load", "phase": "OPEN", "expected": "Open"}
        assert happens(connector.ended)
        assert isinstance(connector.error, ProtocolError)


def test_bytes_that_are_no_protobuf_end_the_stream_and_the_connectors_loop() -> None:
    connector = Scripted(oblige)
    with foreign_runtime(connector) as channel:
        error: Any = speak(channel, iter([b"\xff\xff"]))
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert "a TransactionRequest cannot be read" in error.details()
        assert happens(connector.ended)
        assert isinstance(connector.error, ProtocolError)


def test_an_empty_request_is_refused() -> None:
    with foreign_runtime(MemoryConnector()) as channel:
        error: Any = speak(channel, iter([Request()]))
        assert "holds no message that this version knows" in error.details()


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Fenced("taken over"), grpc.StatusCode.FAILED_PRECONDITION),
        (EndpointError("no"), grpc.StatusCode.FAILED_PRECONDITION),
        (EndpointUnavailable("later"), grpc.StatusCode.UNAVAILABLE),
        (KeyError("oops"), grpc.StatusCode.UNAVAILABLE),
    ],
)
def test_the_status_says_whether_to_try_again(error: Exception, status: grpc.StatusCode) -> None:
    def script(stream: ConnectorStream) -> None:
        raise error

    with foreign_runtime(Scripted(script)) as channel:
        ended: Any = speak(channel, iter([]))
        assert ended.code() is status


def test_the_status_of_a_call_does_too() -> None:
    with foreign_runtime(MemoryConnector()) as channel:
        validate = channel.unary_unary(f"/{SERVICE}/Validate", as_it_is, as_it_is)
        with pytest.raises(grpc.RpcError) as raised:
            validate(pb.ValidateRequest(endpoint_json="[]").SerializeToString())
        error: Any = raised.value
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert "endpoint_json is not a JSON object" in error.details()


def test_a_runtime_needs_nothing_but_the_proto_file() -> None:
    schema = '{"required":["id"],"properties":{"id":{"type":"integer"}}}'
    binding = pb.Materialization.Binding(
        resource_json="{}",
        collection=pb.Collection(name="c", key=["/id"], schema_json=schema),
        resource_path=["c"],
        document="_document",
    )
    materialization = pb.Materialization(name="m", endpoint_json="{}", bindings=[binding])
    key, document = b"\x15\x07", b'{"id":7}'
    packed_keys, docs_json = pb.Slices(offsets=[0, 2]), pb.Slices(offsets=[2, 10])
    stored = Request.Store(arena=key + document, packed_keys=packed_keys, docs_json=docs_json, exists=[False])
    transaction: list[tuple[list[pb.TransactionRequest], list[str]]] = [
        ([Request(acknowledge=Request.Acknowledge())], ["acknowledged"]),
        (
            [
                Request(load=Request.Load(arena=key, packed_keys=packed_keys)),
                Request(flush=Request.Flush()),
            ],
            ["flushed"],
        ),
        (
            [
                Request(store=stored),
                Request(start_commit=Request.StartCommit(runtime_checkpoint_json='{"at":1}')),
            ],
            ["started_commit"],
        ),
    ]
    again = [
        (sent, ["loaded", *answers] if answers == ["flushed"] else answers) for sent, answers in transaction
    ]
    opening = Request(open=Request.Open(materialization=materialization, key_end=2**32 - 1))
    connector = MemoryConnector()
    requests = SimpleQueue[pb.TransactionRequest | None]()
    with foreign_runtime(connector) as channel:
        call = channel.stream_stream(
            f"/{SERVICE}/Transactions", Request.SerializeToString, Response.FromString
        )
        answers = call(iter(requests.get, None))
        for sent, expected in [([opening], ["opened"]), *transaction, *again]:
            for request in sent:
                requests.put(request)
            for name in expected:
                assert next(answers).WhichOneof("message") == name
        requests.put(None)
        assert list(answers) == []
    assert connector.rows == {0: {(7,): '{"id":7}'}}
    assert connector.checkpoint == {"at": 1}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, StreamBroken),
        (grpc.StatusCode.INTERNAL, StreamBroken),
        (grpc.StatusCode.UNKNOWN, StreamBroken),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, StreamBroken),
        (grpc.StatusCode.UNIMPLEMENTED, ConnectorRefused),
        (grpc.StatusCode.UNAUTHENTICATED, ConnectorRefused),
        (grpc.StatusCode.INVALID_ARGUMENT, ConnectorRefused),
    ],
)
def test_a_status_without_more_says_whether_to_try_again(
    status: grpc.StatusCode, kind: type[HeadraceError]
) -> None:
    def behave(requests: Any, context: grpc.ServicerContext) -> Iterator[pb.TransactionResponse]:
        context.abort(status, "no")
        return iter(())

    with foreign_connector(behave) as client:
        stream = client.transactions()
        with pytest.raises(kind, match=f"{status.name}: no"):
            Background(lambda: open_stream(stream)).result()


def test_an_answer_that_is_too_large_is_not_asked_for_again() -> None:
    def behave(requests: Any, context: grpc.ServicerContext) -> Iterator[pb.TransactionResponse]:
        next(requests)
        yield Response(opened=Response.Opened(runtime_checkpoint_json="x" * (MAX_MESSAGE_BYTES + 1)))

    with foreign_connector(behave) as client:
        stream = client.transactions()
        with pytest.raises(ConnectorRefused, match="larger than max"):
            Background(lambda: open_stream(stream)).result()


def test_a_connector_that_does_not_read_hears_that_the_runtime_is_gone() -> None:
    """Although what it does not read blocks the thread that would say so."""
    gone = threading.Event()

    def behave(requests: Any, context: grpc.ServicerContext) -> Iterator[pb.TransactionResponse]:
        context.add_callback(gone.set)
        next(requests)
        yield opened()
        happens(gone)

    with foreign_connector(behave) as client:
        stream = client.transactions()
        open_stream(stream)
        stream.send(Acknowledge())
        stream.send(load(*range(500_000)))
        channel = stream._channel
        with channel._changed:
            assert channel._changed.wait_for(lambda: not channel._requests.items, DEADLINE_SECONDS)
        stream.abandon()
        assert happens(gone)
