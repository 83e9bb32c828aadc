"""The helpers that connectors are composed of, in a synchronous and in a pipelined connector."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from headrace.errors import EndpointError, ProtocolError, StreamBroken, UnexpectedFailure
from headrace.model.checkpoints import JsonObject
from headrace.protocol.channel import Channel
from headrace.protocol.connector import Connector, serve_transactions
from headrace.protocol.in_process import InProcess
from headrace.protocol.loop import (
    StreamEnded,
    accept_acknowledge,
    accept_open,
    acknowledging,
    as_headrace_error,
    loads,
    stores,
)
from headrace.protocol.messages import (
    Acknowledge,
    Acknowledged,
    Flush,
    Flushed,
    Load,
    Loaded,
    Opened,
    Request,
    Response,
    StartCommit,
    StartedCommit,
)
from headrace.protocol.stream import ConnectorStream, RuntimeStream
from tests.protocol.background import Background, happens
from tests.protocol.samples import OPEN, STANDARD, load, loaded, store
from tests.protocol.toys import MemoryConnector, Rows, Scripted, open_stream, transact


class PipelinedConnector(MemoryConnector):
    """Commits after StartedCommit, in the background of the next transaction's loads."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[str] = []

    def transactions(self, stream: ConnectorStream) -> None:
        accept_open(stream)
        stream.send(Opened())
        pending: tuple[dict[int, Rows], JsonObject] = ({}, {})
        while accept_acknowledge(stream):
            with acknowledging(stream, lambda changes=pending: self.finish(*changes)):  # type: ignore[misc]
                staged = [self.stage(asked) for asked in loads(stream)]
            for asked in staged:
                self.events.append("looks up")
                for found in self.look_up(asked):
                    stream.send(found)
            stream.send(Flushed())
            pending = self.staged(stream)
            stream.send(StartedCommit())

    def stage(self, asked: Load) -> Load:
        self.events.append("stages")
        return asked

    def finish(self, changes: dict[int, Rows], checkpoint: JsonObject) -> None:
        self.commit(changes, checkpoint)
        self.events.append("finished")


@pytest.mark.parametrize(
    "connector", [MemoryConnector(), PipelinedConnector()], ids=["synchronous", "pipelined"]
)
def test_a_connector_composed_of_the_helpers(connector: MemoryConnector) -> None:
    with InProcess(connector).transactions() as stream:
        open_stream(stream)
        assert transact(stream, 1, 2) == []
        assert transact(stream, 3, 2) == [2]
        assert transact(stream, 3, 1, 4) == [3, 1]
        stream.send(Acknowledge())
        assert stream.receive() == Acknowledged()
    assert set(connector.rows[STANDARD]) == {(1,), (2,), (3,), (4,)}
    assert connector.checkpoint == {"ids": [3, 1, 4]}


def test_loads_are_received_while_the_last_transaction_is_still_being_finished() -> None:
    all_staged = threading.Event()

    class Slow(PipelinedConnector):
        def stage(self, asked: Load) -> Load:
            super().stage(asked)
            if self.events.count("stages") == 10:
                all_staged.set()
            return asked

        def finish(self, changes: dict[int, Rows], checkpoint: JsonObject) -> None:
            if changes:
                assert happens(all_staged), "no load was received before the commit was done"
            super().finish(changes, checkpoint)

    connector = Slow()
    stream = InProcess(connector).transactions()
    open_stream(stream)
    transact(stream, *range(10))
    connector.events.clear()
    stream.send(Acknowledge())
    for number in range(10):
        stream.send(load(number))
    assert stream.receive() == Acknowledged()
    # The lookups wait for Flush, which waits for Acknowledged, which waits for the commit.
    assert connector.events == ["stages"] * 10 + ["finished"]
    stream.send(Flush())
    found = []
    while isinstance(response := stream.receive(), Loaded):
        found += response.keys["id"].to_pylist()
    assert found == list(range(10))
    assert connector.events == ["stages"] * 10 + ["finished"] + ["looks up"] * 10
    stream.abandon()


def test_no_load_is_looked_up_before_acknowledged_was_sent() -> None:
    """Not even one that was received long before."""
    staged, may_finish = threading.Event(), threading.Event()

    class Slow(PipelinedConnector):
        def stage(self, asked: Load) -> Load:
            staged.set()
            return super().stage(asked)

        def finish(self, changes: dict[int, Rows], checkpoint: JsonObject) -> None:
            await_event(may_finish)
            super().finish(changes, checkpoint)

    connector = Slow()
    stream = InProcess(connector).transactions()
    open_stream(stream)
    stream.send(Acknowledge())
    stream.send(load(1))
    assert happens(staged)
    assert connector.looked_up == []
    may_finish.set()
    assert stream.receive() == Acknowledged()
    assert connector.looked_up == []
    stream.send(Flush())
    assert stream.receive() == Flushed()
    assert connector.looked_up == [(1,)]
    stream.abandon()


class Failing(PipelinedConnector):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error
        self.ended = threading.Event()
        self.raised: BaseException | None = None

    def finish(self, changes: dict[int, Rows], checkpoint: JsonObject) -> None:
        if changes:
            raise self.error

    def transactions(self, stream: ConnectorStream) -> None:
        try:
            super().transactions(stream)
        except BaseException as error:
            self.raised = error
            raise
        finally:
            self.ended.set()


def start_second_transaction(connector: Connector) -> RuntimeStream:
    stream = InProcess(connector).transactions()
    open_stream(stream)
    transact(stream, 1)
    stream.send(Acknowledge())
    return stream


def send_loads_without_end(stream: RuntimeStream) -> None:
    for number in range(10_000):
        stream.send(load(number))


@pytest.mark.parametrize(
    "wait", [lambda stream: stream.receive(), send_loads_without_end], ids=["receiving", "sending"]
)
def test_a_commit_that_fails_ends_both_sides_with_its_error(wait: Callable[[RuntimeStream], None]) -> None:
    error = EndpointError("the warehouse is closed")
    connector = Failing(error)
    stream = start_second_transaction(connector)
    with pytest.raises(EndpointError, match="the warehouse is closed"):
        Background(lambda: wait(stream)).result()
    assert happens(connector.ended)
    assert connector.raised is error


def test_a_commit_that_fails_unexpectedly_says_what_it_was(caplog: pytest.LogCaptureFixture) -> None:
    connector = Failing(ZeroDivisionError("division by zero"))
    stream = start_second_transaction(connector)
    with pytest.raises(UnexpectedFailure, match="ZeroDivisionError: division by zero"):
        Background(stream.receive).result()
    assert happens(connector.ended)
    assert isinstance(connector.raised, UnexpectedFailure)
    assert "division by zero" in caplog.text


def test_a_clean_end_right_after_acknowledge_still_sends_acknowledged() -> None:
    ended, finished = threading.Event(), threading.Event()

    class Slow(PipelinedConnector):
        def finish(self, changes: dict[int, Rows], checkpoint: JsonObject) -> None:
            assert happens(ended)
            super().finish(changes, checkpoint)
            finished.set()

    connector = Slow()
    channel = Channel()
    for request in (OPEN, Acknowledge()):
        channel.put_request(request)
    channel.end_requests()
    served = Background(lambda: serve_transactions(connector, channel))
    assert channel.get_response() == Opened()
    ended.set()
    assert channel.get_response() == Acknowledged()
    assert finished.is_set()
    assert channel.get_response() is None
    served.result()


def test_a_pipelined_commit_is_finished_before_the_stream_ends() -> None:
    connector = PipelinedConnector()
    with InProcess(connector).transactions() as stream:
        open_stream(stream)
        transact(stream, 1)
        stream.send(Acknowledge())
    assert set(connector.rows[STANDARD]) == {(1,)}


def test_a_connector_that_looks_up_too_early_is_refused_by_its_own_stream() -> None:
    """And that is what the runtime hears of, not that Acknowledged then had nowhere to go."""
    refused = threading.Event()

    def script(stream: ConnectorStream) -> None:
        accept_open(stream)
        stream.send(Opened())
        accept_acknowledge(stream)
        with acknowledging(stream, lambda: await_event(refused)):
            for asked in loads(stream):
                try:
                    stream.send(Loaded(asked.binding, asked.keys, loaded(1).documents))
                finally:
                    refused.set()

    connector = Scripted(script)
    stream = InProcess(connector).transactions()
    open_stream(stream)
    stream.send(Acknowledge())
    stream.send(load(1))
    with pytest.raises(ProtocolError) as raised:
        Background(stream.receive).result()
    assert raised.value.message_name == "Loaded"
    assert raised.value.expected == "Load or Acknowledged"
    assert happens(connector.ended)
    assert connector.error is raised.value


def test_acknowledging_waits_for_its_thread_also_when_the_block_fails() -> None:
    finished = threading.Event()
    failing = threading.Event()

    def script(stream: ConnectorStream) -> None:
        def finish() -> None:
            assert happens(failing)
            finished.set()

        accept_open(stream)
        stream.send(Opened())
        accept_acknowledge(stream)
        with acknowledging(stream, finish):
            failing.set()
            raise EndpointError("cannot stage")

    connector = Scripted(script)
    stream = InProcess(connector).transactions()
    open_stream(stream)
    stream.send(Acknowledge())
    assert happens(connector.ended)
    assert finished.is_set()
    assert isinstance(connector.error, EndpointError)


def test_a_broken_stream_unwinds_the_block_and_its_thread() -> None:
    may_finish = threading.Event()

    def script(stream: ConnectorStream) -> None:
        accept_open(stream)
        stream.send(Opened())
        accept_acknowledge(stream)
        with acknowledging(stream, lambda: await_event(may_finish)):
            list(loads(stream))

    connector = Scripted(script)
    stream = InProcess(connector).transactions()
    open_stream(stream)
    stream.send(Acknowledge())
    stream.abandon()
    may_finish.set()
    assert happens(connector.ended)
    assert isinstance(connector.error, StreamBroken)


def await_event(event: threading.Event) -> None:
    assert happens(event)


def connector_stream(*requests: object) -> ConnectorStream:
    channel = Channel()
    for request in requests:
        channel.put_request(request)
    channel.end_requests()
    return ConnectorStream(channel)


def test_each_helper_reads_up_to_what_ends_its_phase() -> None:
    channel = Channel()
    stream = ConnectorStream(channel)
    channel.put_request(OPEN)
    assert accept_open(stream) == OPEN
    stream.send(Opened())
    channel.put_request(Acknowledge())
    assert accept_acknowledge(stream)
    stream.send(Acknowledged())
    for request in (load(1), load(2), Flush()):
        channel.put_request(request)
    assert list(loads(stream)) == [load(1), load(2)]
    stream.send(Flushed())
    for change in (store(3), store(4), StartCommit({"at": 9})):
        channel.put_request(change)
    assert list(stores(stream)) == [store(3), store(4)]
    assert stream.runtime_checkpoint == {"at": 9}
    stream.send(StartedCommit())
    channel.end_requests()
    assert not accept_acknowledge(stream)


def test_a_stream_that_ends_before_open_just_ends() -> None:
    with pytest.raises(StreamEnded):
        accept_open(connector_stream())


def test_a_stream_that_ends_before_the_first_load_just_ends() -> None:
    stream = connector_stream(OPEN, Acknowledge())
    accept_open(stream)
    stream.send(Opened())
    assert accept_acknowledge(stream)
    with pytest.raises(StreamEnded):
        list(loads(stream))


def test_a_stream_that_ends_is_no_error_to_its_runtime() -> None:
    channel = Channel()
    channel.end_requests()
    serve_transactions(MemoryConnector(), channel)
    assert channel.get_response() is None


def test_an_error_of_ours_stays_as_it_is() -> None:
    error = EndpointError("it")
    assert as_headrace_error(error) is error


OWING: dict[str, tuple[tuple[object, ...], Callable[[ConnectorStream], object]]] = {
    "Opened": ((OPEN,), accept_acknowledge),
    "Flushed": (
        (OPEN, Opened(), Acknowledge(), Acknowledged(), Flush()),
        lambda stream: list(stores(stream)),
    ),
    "StartedCommit": (
        (OPEN, Opened(), Acknowledge(), Acknowledged(), Flush(), Flushed(), StartCommit({"at": 1})),
        accept_acknowledge,
    ),
}


@pytest.mark.parametrize(
    ("owed", "before", "wait"), [(owed, *case) for owed, case in OWING.items()], ids=OWING
)
def test_a_connector_that_forgot_to_answer_is_told_so(
    owed: str, before: tuple[object, ...], wait: Callable[[ConnectorStream], object]
) -> None:
    """Else it waits for a request, and the runtime for its answer, for good."""
    channel = Channel()
    stream = ConnectorStream(channel)
    for message in before:
        if isinstance(message, Request):
            channel.put_request(message)
            stream.receive()
        else:
            assert isinstance(message, Response)
            stream.send(message)
            channel.get_response()
    assert stream.owes == owed
    with pytest.raises(ProtocolError, match=f"the runtime for {owed}: send it first") as refused:
        Background(lambda: wait(stream)).result()
    assert refused.value.message_name == owed


def test_a_commit_that_exits_ends_both_sides_too() -> None:
    class Exiting(PipelinedConnector):
        def finish(self, changes: dict[int, Rows], checkpoint: JsonObject) -> None:
            raise SystemExit(3)

    stream = InProcess(Exiting()).transactions()
    open_stream(stream)
    stream.send(Acknowledge())
    with pytest.raises(UnexpectedFailure, match="SystemExit: 3"):
        Background(stream.receive).result()
