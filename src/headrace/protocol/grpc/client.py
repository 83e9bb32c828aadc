"""A connector behind a gRPC address, for a runtime of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar, cast

import grpc
from google.protobuf.message import Message

from headrace.errors import ConnectorRefused, EndpointUnavailable, HeadraceError, StreamBroken
from headrace.protocol.channel import Channel
from headrace.protocol.grpc import specs
from headrace.protocol.grpc.gen import materialize_pb2 as pb
from headrace.protocol.grpc.methods import CHANNEL_OPTIONS, ERROR_METADATA, FINAL_STATUSES, method
from headrace.protocol.grpc.transactions import Codec, parse
from headrace.protocol.loop import as_headrace_error
from headrace.protocol.messages import Applied, Apply, Request, Spec, Specified, Validate, Validated
from headrace.protocol.stream import RuntimeStream

MessageOut = TypeVar("MessageOut")

# How long a connector may take to listen: its process may have been started a moment ago.
CONNECT_SECONDS = 30.0


class GrpcConnector:
    """Speaks to the connector that listens on an address such as `127.0.0.1:9000`."""

    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None = None) -> None:
        self._address = address
        if credentials is None:
            self._channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        else:
            self._channel = grpc.secure_channel(address, credentials, options=CHANNEL_OPTIONS)

    def wait_until_ready(self, timeout: float = CONNECT_SECONDS) -> None:
        try:
            grpc.channel_ready_future(self._channel).result(timeout=timeout)
        except grpc.FutureTimeoutError:
            raise EndpointUnavailable(
                f"no connector listens on {self._address}: start one with "
                f"'headrace connector NAME --grpc {self._address}'"
            ) from None

    def spec(self, request: Spec) -> Specified:
        response = self._call("Spec", specs.encode_spec(request), pb.SpecResponse.FromString)
        return specs.decode_specified(response)

    def validate(self, request: Validate) -> Validated:
        response = self._call("Validate", specs.encode_validate(request), pb.ValidateResponse.FromString)
        return specs.decode_validated(response)

    def apply(self, request: Apply) -> Applied:
        response = self._call("Apply", specs.encode_apply(request), pb.ApplyResponse.FromString)
        return specs.decode_applied(response)

    def transactions(self) -> RuntimeStream:
        channel = Channel()
        _StreamCall(self._channel, channel).start()
        return RuntimeStream(channel)

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> GrpcConnector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, name: str, request: Message, decode: Callable[[bytes], MessageOut]) -> MessageOut:
        invoke: grpc.UnaryUnaryMultiCallable[Message, MessageOut] = self._channel.unary_unary(
            method(name), lambda message: message.SerializeToString(), response_deserializer=decode
        )
        try:
            return invoke(request)
        except grpc.RpcError as error:
            raise _error_of(error) from None


class _StreamCall:
    """Carries one stream between a channel and gRPC, in both directions."""

    def __init__(self, connection: grpc.Channel, channel: Channel) -> None:
        self._channel = channel
        self._codec = Codec()
        open_stream: grpc.StreamStreamMultiCallable[pb.TransactionRequest, bytes] = connection.stream_stream(
            method("Transactions"), pb.TransactionRequest.SerializeToString, lambda raw: raw
        )
        self._call = open_stream(self._requests())
        # gRPC's own thread may be stuck in sending, and the connector must hear of the end all the same.
        channel.on_failure(self._call.cancel)

    def start(self) -> None:
        threading.Thread(target=self._pump_responses, name="headrace-responses", daemon=True).start()

    def _requests(self) -> Iterator[pb.TransactionRequest]:
        """Yields what gRPC's own thread sends; ends as the runtime ends its side, and breaks as it breaks."""
        try:
            while (request := self._channel.get_request()) is not None:
                yield from self._codec.encode_request(cast(Request, request))
        except Exception as error:  # noqa: BLE001 - gRPC would only log it, and the runtime wait
            self._channel.fail(as_headrace_error(error))

    def _pump_responses(self) -> None:
        try:
            for message in self._call:
                response = self._codec.decode_response(parse(pb.TransactionResponse, message))
                self._channel.put_response(response)
            self._channel.end_responses()
        except grpc.RpcError as error:
            self._channel.fail(_error_of(error))
        except Exception as error:  # noqa: BLE001 - whatever it is must reach the runtime, which waits
            self._channel.fail(as_headrace_error(error))


def _error_of(error: grpc.RpcError) -> HeadraceError:
    """Returns the connector's error, or one that reports that the connector is gone."""
    call = cast("grpc.Call", error)
    for key, value in call.trailing_metadata() or ():
        if key == ERROR_METADATA and isinstance(value, bytes):
            with suppress(Exception):  # not as ours would write it
                return HeadraceError.from_json(value.decode())
    said = f"{call.code().name}: {call.details()}"
    if call.code() in FINAL_STATUSES or "larger than max" in (call.details() or ""):
        return ConnectorRefused(f"the connector refused the call: {said}")
    return StreamBroken(f"the connector's connection broke: {said}")
