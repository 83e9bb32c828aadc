"""Serves a connector over gRPC."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import grpc

from headrace.errors import ConfigError, HeadraceError, StreamBroken
from headrace.protocol.channel import Channel
from headrace.protocol.connector import Connector, serve_transactions
from headrace.protocol.grpc import specs
from headrace.protocol.grpc.gen import materialize_pb2 as pb
from headrace.protocol.grpc.methods import (
    CHANNEL_OPTIONS,
    ERROR_METADATA,
    SERVICE,
    error_details,
    error_metadata,
    status_of,
)
from headrace.protocol.grpc.transactions import Codec, parse
from headrace.protocol.loop import as_headrace_error

MessageIn = TypeVar("MessageIn")
MessageOut = TypeVar("MessageOut")

# Each stream holds one of these threads for its life, so this is how many shards one server takes. One
# more is turned away at once, instead of waiting for a thread that may never be free.
MAX_STREAMS = 64

# Two servers on one port would each get some of the calls, and neither would report that it is taken.
SERVER_OPTIONS = [*CHANNEL_OPTIONS, ("grpc.so_reuseport", 0)]


class GrpcServer:
    """A connector listening on an address such as `127.0.0.1:9000` or `unix:/run/connector.sock`."""

    def __init__(
        self, connector: Connector, address: str, credentials: grpc.ServerCredentials | None = None
    ) -> None:
        self._server = grpc.server(
            ThreadPoolExecutor(MAX_STREAMS), options=SERVER_OPTIONS, maximum_concurrent_rpcs=MAX_STREAMS
        )
        self._server.add_generic_rpc_handlers((_handlers(connector),))
        try:
            if credentials is None:
                self.port = self._server.add_insecure_port(address)
            else:
                self.port = self._server.add_secure_port(address, credentials)
        except RuntimeError:
            raise ConfigError(f"cannot listen on {address}: it is taken, or is not an address here") from None

    def start(self) -> None:
        self._server.start()

    def wait(self) -> None:
        self._server.wait_for_termination()

    def stop(self, grace: float = 5.0) -> None:
        self._server.stop(grace).wait()

    def __enter__(self) -> GrpcServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(grace=0)


def _handlers(connector: Connector) -> grpc.GenericRpcHandler:
    def unary(
        decode: Callable[[MessageIn], object],
        call: Callable[..., object],
        encode: Callable[..., MessageOut],
    ) -> Callable[[MessageIn, grpc.ServicerContext], MessageOut]:
        def handle(message: MessageIn, context: grpc.ServicerContext) -> MessageOut:
            try:
                return encode(call(decode(message)))
            except Exception as error:  # noqa: BLE001 - the client must hear of whatever it is
                raise _abort(context, as_headrace_error(error)) from None

        return handle

    def transactions(
        messages: Iterator[bytes], context: grpc.ServicerContext
    ) -> Iterator[pb.TransactionResponse]:
        yield from _serve_stream(connector, messages, context)

    return grpc.method_handlers_generic_handler(
        SERVICE,
        {
            "Spec": grpc.unary_unary_rpc_method_handler(
                unary(specs.decode_spec, connector.spec, specs.encode_specified),
                pb.SpecRequest.FromString,
                pb.SpecResponse.SerializeToString,
            ),
            "Validate": grpc.unary_unary_rpc_method_handler(
                unary(specs.decode_validate, connector.validate, specs.encode_validated),
                pb.ValidateRequest.FromString,
                pb.ValidateResponse.SerializeToString,
            ),
            "Apply": grpc.unary_unary_rpc_method_handler(
                unary(specs.decode_apply, connector.apply, specs.encode_applied),
                pb.ApplyRequest.FromString,
                pb.ApplyResponse.SerializeToString,
            ),
            "Transactions": grpc.stream_stream_rpc_method_handler(
                transactions, response_serializer=pb.TransactionResponse.SerializeToString
            ),
        },
    )


def _serve_stream(
    connector: Connector, messages: Iterator[bytes], context: grpc.ServicerContext
) -> Iterator[pb.TransactionResponse]:
    channel, codec = Channel(), Codec()

    def pump_requests() -> None:
        try:
            for message in _received(messages, context):
                channel.put_request(codec.decode_request(parse(pb.TransactionRequest, message)))
            channel.end_requests()
        except Exception as error:  # noqa: BLE001 - whatever it is must end the stream, or both sides wait
            channel.fail(as_headrace_error(error))

    threading.Thread(target=pump_requests, name="headrace-requests", daemon=True).start()
    worker = threading.Thread(
        target=serve_transactions, args=(connector, channel), name="headrace-connector", daemon=True
    )
    worker.start()
    try:
        while (response := channel.get_response()) is not None:
            yield from codec.encode_response(response)  # type: ignore[arg-type]  # a channel carries any item
    except Exception as error:  # noqa: BLE001 - the client must hear of whatever it is
        raise _abort(context, as_headrace_error(error)) from None
    finally:
        # Also reached when the client is gone: the connector must hear of it and roll back.
        channel.fail(StreamBroken("the runtime's connection broke"))
        worker.join()


def _received(messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
    try:
        yield from messages
    except Exception:  # noqa: BLE001 - gRPC raises a bare one when the client is gone
        raise StreamBroken("the runtime's connection broke") from None
    # Or it ends the messages as if the client had, where it notices that a moment later. A connector then
    # sees an end that is refused in the middle of a transaction, so nothing commits either way.
    if not context.is_active():
        raise StreamBroken("the runtime's connection broke")


def _abort(context: grpc.ServicerContext, error: HeadraceError) -> Exception:
    context.set_trailing_metadata(((ERROR_METADATA, error_metadata(error)),))
    context.abort(status_of(error), error_details(error))
    return error
