"""The two ends of a stream: each refuses what is out of turn, and both learn how it ended."""

from __future__ import annotations

import gc
import itertools
import threading

import pytest

from headrace.errors import EndpointError, ProtocolError, StreamBroken, UnexpectedFailure
from headrace.model.checkpoints import JsonObject
from headrace.protocol.channel import Channel
from headrace.protocol.connector import Connector, serve_transactions
from headrace.protocol.in_process import InProcess
from headrace.protocol.messages import (
    Acknowledge,
    Acknowledged,
    Applied,
    Apply,
    Flush,
    Flushed,
    Loaded,
    Opened,
    Request,
    Spec,
    StartCommit,
    StartedCommit,
    Validate,
    ValidateBinding,
)
from headrace.protocol.phases import Phase
from headrace.protocol.stream import ConnectorStream, RuntimeStream
from tests.protocol.background import Background, WatchedCondition, happens
from tests.protocol.samples import ACCOUNTS, MATERIALIZATION, OPEN, STANDARD, load, loaded, store
from tests.protocol.toys import MemoryConnector, Rows, Scripted, oblige, open_stream, transact


def test_transactions_pass_from_end_to_end() -> None:
    connector = MemoryConnector()
    with InProcess(connector).transactions() as stream:
        assert open_stream(stream) == Opened({})
        assert stream.phase is Phase.ACKNOWLEDGE
        assert not stream.acknowledged
        assert transact(stream, 1, 2) == []
        assert transact(stream, 2, 3) == [2]
        assert not stream.acknowledged
    with InProcess(connector).transactions() as stream:
        assert open_stream(stream) == Opened({"ids": [2, 3]})
        assert transact(stream, 4, 3, 2, 1) == [3, 2, 1]
    assert set(connector.rows[STANDARD]) == {(1,), (2,), (3,), (4,)}


def test_the_runtime_checkpoint_is_that_of_the_last_start_commit() -> None:
    checkpoints: list[object] = []

    class Noting(MemoryConnector):
        def commit(self, changes: dict[int, Rows], checkpoint: JsonObject) -> None:
            checkpoints.append(checkpoint)

    with InProcess(Noting()).transactions() as stream:
        open_stream(stream)
        transact(stream, 1)
        transact(stream, 2, checkpoint={"at": 2})
        transact(stream, 3, checkpoint={"at": 3})
    assert checkpoints == [{"ids": [1]}, {"at": 2}, {"at": 3}]


def test_there_is_no_runtime_checkpoint_before_the_first_start_commit() -> None:
    stream = ConnectorStream(Channel())
    with pytest.raises(RuntimeError, match="only once stores"):
        _ = stream.runtime_checkpoint


def test_a_runtime_is_refused_by_its_own_end_and_nothing_is_sent() -> None:
    channel = Channel()
    stream = RuntimeStream(channel)
    stream.send(OPEN)
    with pytest.raises(ProtocolError) as refused:
        stream.send(Acknowledge())
    assert refused.value.message_name == "Acknowledge"
    assert channel.get_request() == OPEN
    channel.end_requests()
    assert channel.get_request() is None


def test_a_connector_is_refused_by_its_own_end_and_nothing_is_sent() -> None:
    channel = Channel()
    stream = ConnectorStream(channel)
    with pytest.raises(ProtocolError) as refused:
        stream.send(Opened())
    assert refused.value.expected == "Open"
    with pytest.raises(ProtocolError) as heard:
        channel.get_response()
    assert heard.value is refused.value


def test_a_connector_refuses_what_its_peer_sends_out_of_turn() -> None:
    channel = Channel()
    connector = Scripted(oblige)
    served = Background(lambda: serve_transactions(connector, channel))
    for request in (OPEN, Acknowledge(), store(1)):
        channel.put_request(request)
    assert channel.get_response() == Opened()
    assert channel.get_response() == Acknowledged()
    with pytest.raises(ProtocolError) as refused:
        channel.get_response()
    served.result()
    assert refused.value is connector.error
    assert refused.value.message_name == "Store"


def test_a_runtime_refuses_what_its_peer_sends_out_of_turn() -> None:
    channel = Channel()
    stream = RuntimeStream(channel)
    stream.send(OPEN)
    channel.put_response(Flushed())
    with pytest.raises(ProtocolError) as refused:
        stream.receive()
    assert refused.value.message_name == "Flushed"
    assert refused.value.expected == "Opened"


@pytest.mark.parametrize("stop_after", range(1, 5))
def test_an_end_in_the_middle_reaches_the_connector_as_a_refusal(stop_after: int) -> None:
    channel = Channel()
    connector = Scripted(oblige)
    served = Background(lambda: serve_transactions(connector, channel))
    requests: list[Request] = [OPEN, Acknowledge(), load(1), Flush(), store(1)]
    answers = {0: Opened, 1: Acknowledged, 3: Flushed}
    for number, request in enumerate(requests[: stop_after + 1]):
        channel.put_request(request)
        if number in answers:
            assert isinstance(channel.get_response(), answers[number])
    channel.end_requests()
    served.result()
    at_rest = stop_after == 1
    assert (connector.error is None) == at_rest
    if at_rest:
        assert channel.get_response() is None
    else:
        with pytest.raises(ProtocolError, match="the end of the stream is refused"):
            channel.get_response()


def open_and_close(connector: Connector) -> None:
    with InProcess(connector).transactions() as stream:
        open_stream(stream)


def test_an_error_of_the_connector_is_raised_at_the_runtime() -> None:
    def script(stream: ConnectorStream) -> None:
        stream.receive()
        raise EndpointError("no such table", table="accounts")

    with pytest.raises(EndpointError, match="no such table") as raised:
        open_and_close(Scripted(script))
    assert vars(raised.value)["table"] == "accounts"


def test_an_unforeseen_error_of_the_connector_is_raised_as_what_it_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def script(stream: ConnectorStream) -> None:
        stream.receive()
        raise KeyError("accounts")

    with pytest.raises(UnexpectedFailure, match="KeyError: 'accounts'"):
        open_and_close(Scripted(script))
    assert "a connector failed unexpectedly" in caplog.text


def test_an_error_reaches_a_runtime_that_only_sends() -> None:
    def script(stream: ConnectorStream) -> None:
        stream.receive()
        stream.send(Opened())
        stream.receive()
        raise EndpointError("gone")

    def send_loads() -> None:
        with InProcess(Scripted(script)).transactions() as stream:
            open_stream(stream)
            stream.send(Acknowledge())
            for number in itertools.count():
                stream.send(load(number))

    with pytest.raises(EndpointError, match="gone"):
        Background(send_loads).result()


def test_what_a_connector_sent_before_it_failed_is_received_first() -> None:
    def script(stream: ConnectorStream) -> None:
        oblige_until_commit(stream)
        stream.send(StartedCommit({"file": 7}))
        raise EndpointError("the commit failed")

    connector = Scripted(script)
    stream = InProcess(connector).transactions()
    open_stream(stream)
    stream.send(Acknowledge())
    stream.receive()
    stream.send(Flush())
    stream.receive()
    stream.send(StartCommit({"n": 1}))
    assert happens(connector.ended)
    assert stream.receive() == StartedCommit({"file": 7})
    with pytest.raises(EndpointError, match="the commit failed"):
        stream.receive()


def oblige_until_commit(stream: ConnectorStream) -> None:
    for answer in (Opened(), Acknowledged(), Flushed()):
        stream.receive()
        stream.send(answer)
    assert isinstance(stream.receive(), StartCommit)


def test_a_connector_that_just_returns_breaks_the_stream() -> None:
    connector = Scripted(lambda stream: None)
    stream = InProcess(connector).transactions()
    assert happens(connector.ended)
    with pytest.raises(StreamBroken, match="ended the stream in phase OPEN"):
        stream.receive()


class Interrupted(Exception):
    pass


def leave_in_the_middle(stream: RuntimeStream, error: Exception | None = None) -> None:
    with stream:
        open_stream(stream)
        stream.send(Acknowledge())
        stream.receive()
        stream.send(load(1))
        if error is not None:
            raise error


def test_a_block_that_raises_breaks_the_stream() -> None:
    connector = Scripted(oblige)
    stream = InProcess(connector).transactions()  # held, since one that is dropped breaks anyway
    with pytest.raises(Interrupted):
        leave_in_the_middle(stream, Interrupted())
    assert happens(connector.ended)
    assert isinstance(connector.error, StreamBroken)
    assert "the runtime went away" in str(connector.error)


def test_a_block_that_stops_in_the_middle_is_refused_and_breaks_the_stream() -> None:
    """Or the connector would hold its transaction open and wait for the rest of it."""
    connector = Scripted(oblige)
    stream = InProcess(connector).transactions()
    with pytest.raises(ProtocolError, match="the end of the stream is refused in phase LOAD"):
        leave_in_the_middle(stream)
    assert happens(connector.ended)
    assert isinstance(connector.error, StreamBroken)


def test_a_block_that_hides_a_refusal_still_breaks_the_stream() -> None:
    connector = Scripted(oblige)
    with InProcess(connector).transactions() as stream:
        open_stream(stream)
        with pytest.raises(ProtocolError):
            stream.send(Flush())
    assert happens(connector.ended)
    assert isinstance(connector.error, StreamBroken)


def test_a_closed_stream_can_leave_its_block() -> None:
    connector = Scripted(oblige)
    with InProcess(connector).transactions() as stream:
        open_stream(stream)
        stream.close()
    assert connector.ended.is_set()
    assert connector.error is None


def test_close_waits_for_the_connectors_end() -> None:
    closing, may_end = threading.Event(), threading.Event()

    def script(stream: ConnectorStream) -> None:
        oblige(stream)
        closing.set()
        assert happens(may_end)

    connector = Scripted(script)
    stream = InProcess(connector).transactions()
    open_stream(stream)
    closed = Background(stream.close)
    assert happens(closing)
    assert closed.running
    may_end.set()
    closed.result()
    assert connector.ended.is_set()


def test_close_raises_what_the_connector_ends_with() -> None:
    def script(stream: ConnectorStream) -> None:
        oblige(stream)
        raise EndpointError("cannot sign out")

    with pytest.raises(EndpointError, match="cannot sign out"):
        open_and_close(Scripted(script))


def test_close_passes_over_an_acknowledged_that_nobody_waited_for() -> None:
    with InProcess(Scripted(oblige)).transactions() as stream:
        open_stream(stream)
        stream.send(Acknowledge())


def test_hundreds_of_loads_that_are_answered_at_once_do_not_block() -> None:
    connector = MemoryConnector()
    connector.rows[STANDARD] = {(number,): "{}" for number in range(400)}
    stream = InProcess(connector).transactions()

    def run() -> list[int]:
        open_stream(stream)
        stream.send(Acknowledge())
        for number in range(400):
            stream.send(load(number))
        stream.receive()
        stream.send(Flush())
        found: list[int] = []
        while isinstance(response := stream.receive(), Loaded):
            found += response.keys["id"].to_pylist()
        return found

    assert Background(run).result() == list(range(400))


class HeldBack(Channel):
    """Delays Acknowledged on its way into the queue until another response waits for it or overtakes it."""

    def __init__(self) -> None:
        super().__init__()
        self.acknowledging = threading.Event()
        self.another = threading.Event()

    def put_response(self, response: object) -> None:
        if response == Acknowledged():
            self.acknowledging.set()
            assert happens(self.another)
        else:
            self.another.set()
        super().put_response(response)


class WatchedLock:
    """A lock that sets an event when a thread is about to wait for it."""

    def __init__(self, waited_for: threading.Event) -> None:
        self._lock = threading.Lock()
        self._waited_for = waited_for

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._waited_for.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_two_threads_send_in_the_order_that_the_stream_allowed() -> None:
    channel = HeldBack()
    stream = ConnectorStream(channel)
    stream._sending = WatchedLock(channel.another)  # type: ignore[assignment]
    for request in (OPEN, Acknowledge(), load(1)):
        channel.put_request(request)
    stream.receive()
    stream.send(Opened())
    channel.another.clear()
    stream.receive()
    stream.receive()
    first = Background(lambda: stream.send(Acknowledged()))
    assert happens(channel.acknowledging)
    second = Background(lambda: stream.send(loaded(1)))
    first.result()
    second.result()
    assert [type(channel.get_response()) for _ in range(3)] == [Opened, Acknowledged, Loaded]


def test_one_thread_receives_while_another_waits_for_room_to_send() -> None:
    channel = Channel()
    channel._changed = condition = WatchedCondition()
    stream = ConnectorStream(channel)
    channel.put_request(OPEN)
    stream.receive()
    stream.send(Opened())
    channel.put_request(Acknowledge())
    stream.receive()
    stream.send(Acknowledged())
    channel.put_request(load(*range(20)))
    stream.receive()

    def send_all() -> None:
        for number in range(20):
            stream.send(loaded(number))

    sender = Background(send_all)
    assert happens(condition.waiting)
    receiver = Background(stream.receive)
    more = load(100)
    channel.put_request(more)
    assert receiver.result() == more
    assert sender.running
    for _ in range(22):
        channel.get_response()
    sender.result()


def test_a_background_failure_ends_both_sides() -> None:
    error = EndpointError("apply failed")

    def script(stream: ConnectorStream) -> None:
        stream.receive()
        stream.send(Opened())
        stream.fail(error)
        stream.receive()

    connector = Scripted(script)
    stream = InProcess(connector).transactions()
    open_stream(stream)
    with pytest.raises(EndpointError, match="apply failed"):
        stream.receive()
    assert happens(connector.ended)
    assert connector.error is error


def test_other_calls_pass_through() -> None:
    client = InProcess(MemoryConnector())
    assert client.spec(Spec({"a": 1})).endpoint_schema == {"asked": {"a": 1}}
    validated = client.validate(Validate("it", "memory", {"where": "here"}, (ValidateBinding(ACCOUNTS, {}),)))
    assert validated.bindings[0].resource_path == ("accounts",)
    assert client.apply(Apply(MATERIALIZATION, "7")) == Applied("made samples at version 7")


def test_a_stream_that_is_dropped_does_not_leave_its_connector_waiting() -> None:
    connector = Scripted(oblige)
    stream = InProcess(connector).transactions()
    open_stream(stream)
    del stream
    gc.collect()
    assert happens(connector.ended)
    assert isinstance(connector.error, StreamBroken)


def test_a_runtime_may_send_on_one_thread_and_receive_on_another() -> None:
    connector = MemoryConnector()
    connector.rows[STANDARD] = {(number,): "{}" for number in range(200)}
    stream = InProcess(connector).transactions()
    open_stream(stream)
    stream.send(Acknowledge())
    assert stream.receive() == Acknowledged()

    def send_all() -> None:
        for number in range(200):
            stream.send(load(number))
        stream.send(Flush())

    sender = Background(send_all)
    found: list[int] = []
    while isinstance(response := stream.receive(), Loaded):
        found += response.keys["id"].to_pylist()
    sender.result()
    assert found == list(range(200))
    stream.abandon()


def test_an_unforeseen_exception_of_a_call_is_one_of_our_errors() -> None:
    class Failing(MemoryConnector):
        def apply(self, request: Apply) -> Applied:
            raise KeyError("accounts")

    with pytest.raises(UnexpectedFailure, match="KeyError: 'accounts'") as raised:
        InProcess(Failing()).apply(Apply(MATERIALIZATION, "1"))
    assert isinstance(raised.value.__cause__, KeyError)


def test_a_connector_that_exits_is_heard_of() -> None:
    def script(stream: ConnectorStream) -> None:
        stream.receive()
        raise SystemExit(3)

    with pytest.raises(UnexpectedFailure, match="SystemExit: 3"):
        open_and_close(Scripted(script))
