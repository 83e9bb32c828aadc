"""Converts every message of a transactions stream to and from protobuf."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from google.protobuf.message import DecodeError

from headrace.errors import ProtocolError
from headrace.model.checkpoints import to_json
from headrace.model.key_range import KeyRange
from headrace.model.materializations import Binding
from headrace.protocol.grpc.gen import materialize_pb2 as pb
from headrace.protocol.grpc.rows import (
    decode_load,
    decode_loaded,
    decode_store,
    encode_load,
    encode_loaded,
    encode_store,
)
from headrace.protocol.grpc.specs import decode_materialization, encode_materialization, from_json
from headrace.protocol.messages import (
    Acknowledge,
    Acknowledged,
    Flush,
    Flushed,
    Load,
    Loaded,
    Open,
    Opened,
    Request,
    Response,
    StartCommit,
    StartedCommit,
    Store,
)

AnyProto = TypeVar("AnyProto", pb.TransactionRequest, pb.TransactionResponse)


def parse(kind: type[AnyProto], raw: bytes) -> AnyProto:
    """Parses a message. gRPC could do that itself, but takes malformed bytes for the end of the stream."""
    try:
        return kind.FromString(raw)
    except DecodeError as error:
        raise ProtocolError(
            f"a {kind.__name__} cannot be read: {error}",
            message_name=kind.__name__,
            expected="a message",
        ) from None


class Codec:
    """Encodes and decodes one stream; it learns the bindings, and so the types of rows, from Open."""

    def __init__(self) -> None:
        self._bindings: tuple[Binding, ...] = ()

    def encode_request(self, request: Request) -> Iterator[pb.TransactionRequest]:
        match request:
            case Open():
                self._bindings = request.materialization.bindings
                yield pb.TransactionRequest(open=_encode_open(request))
            case Acknowledge():
                yield pb.TransactionRequest(acknowledge=pb.TransactionRequest.Acknowledge())
            case Load():
                yield from encode_load(request)
            case Flush():
                yield pb.TransactionRequest(flush=pb.TransactionRequest.Flush())
            case Store():
                yield from encode_store(request)
            case StartCommit():
                checkpoint = to_json(request.runtime_checkpoint)
                yield pb.TransactionRequest(
                    start_commit=pb.TransactionRequest.StartCommit(runtime_checkpoint_json=checkpoint)
                )

    def decode_request(self, message: pb.TransactionRequest) -> Request:
        match message.WhichOneof("message"):
            case "open":
                request = _decode_open(message.open)
                self._bindings = self._bindings or request.materialization.bindings
                return request
            case "acknowledge":
                return Acknowledge()
            case "load":
                return decode_load(message.load, self._bindings)
            case "flush":
                return Flush()
            case "store":
                return decode_store(message.store, self._bindings)
            case "start_commit":
                text = message.start_commit.runtime_checkpoint_json
                return StartCommit(from_json(text, "runtime_checkpoint_json"))
        raise _empty("TransactionRequest")

    def encode_response(self, response: Response) -> Iterator[pb.TransactionResponse]:
        match response:
            case Opened():
                text = None if response.runtime_checkpoint is None else to_json(response.runtime_checkpoint)
                yield pb.TransactionResponse(
                    opened=pb.TransactionResponse.Opened(runtime_checkpoint_json=text)
                )
            case Acknowledged():
                yield pb.TransactionResponse(acknowledged=pb.TransactionResponse.Acknowledged())
            case Loaded():
                yield from encode_loaded(response)
            case Flushed():
                yield pb.TransactionResponse(flushed=pb.TransactionResponse.Flushed())
            case StartedCommit():
                text = (
                    None if response.connector_checkpoint is None else to_json(response.connector_checkpoint)
                )
                yield pb.TransactionResponse(
                    started_commit=pb.TransactionResponse.StartedCommit(connector_checkpoint_json=text)
                )

    def decode_response(self, message: pb.TransactionResponse) -> Response:
        match message.WhichOneof("message"):
            case "opened":
                if not message.opened.HasField("runtime_checkpoint_json"):
                    return Opened()
                return Opened(from_json(message.opened.runtime_checkpoint_json, "runtime_checkpoint_json"))
            case "acknowledged":
                return Acknowledged()
            case "loaded":
                return decode_loaded(message.loaded, self._bindings)
            case "flushed":
                return Flushed()
            case "started_commit":
                if not message.started_commit.HasField("connector_checkpoint_json"):
                    return StartedCommit()
                text = message.started_commit.connector_checkpoint_json
                return StartedCommit(from_json(text, "connector_checkpoint_json"))
        raise _empty("TransactionResponse")


def _encode_open(request: Open) -> pb.TransactionRequest.Open:
    checkpoint = request.connector_checkpoint
    return pb.TransactionRequest.Open(
        materialization=encode_materialization(request.materialization),
        version=request.version,
        key_begin=request.key_range.begin,
        key_end=request.key_range.end,
        connector_checkpoint_json=None if checkpoint is None else to_json(checkpoint),
    )


def _decode_open(message: pb.TransactionRequest.Open) -> Open:
    checkpoint = None
    if message.HasField("connector_checkpoint_json"):
        checkpoint = from_json(message.connector_checkpoint_json, "connector_checkpoint_json")
    return Open(
        decode_materialization(message.materialization),
        message.version,
        KeyRange(message.key_begin, message.key_end),
        checkpoint,
    )


def _empty(name: str) -> ProtocolError:
    return ProtocolError(
        f"a {name} holds no message that this version knows",
        message_name=name,
        expected="a message",
    )
