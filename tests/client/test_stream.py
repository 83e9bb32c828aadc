"""How a stream ends. Arrow aborts the process if a stream is cancelled while its writes are being ended."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

import headrace
from headrace.client.acknowledgements import Acknowledgements
from headrace.client.buffer import Buffer
from headrace.client.ledger import Ledger
from headrace.client.sender import Sender
from headrace.client.stream import Stream
from headrace.errors import Closed, WriteTimeout
from headrace.model.tiers import Tier
from tests.client.scripted_server import ScriptedServer
from tests.waiting import DEADLINE_SECONDS, wait_until


class Calls:
    """The two ends of a stream; `done_writing` waits until it may return."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.may_return = threading.Event()

    def done_writing(self) -> None:
        self.made.append("done writing")
        assert self.may_return.wait(DEADLINE_SECONDS)
        self.made.append("writes ended")

    def cancel(self) -> None:
        self.made.append("cancel")

    def close(self) -> None:
        self.made.append("close")


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
def stream(calls: Calls) -> Stream:
    buffer = Buffer(Ledger(Tier.LOCAL_DISK), 1, 1, 1)
    stream = Stream(buffer, Acknowledgements(buffer, "orders", "me", resends=True), pa.schema([]))
    stream._writer = stream._reader = calls
    stream._thread = threading.Thread(target=lambda: None)
    stream._thread.start()
    return stream


def test_a_stream_is_not_cancelled_while_its_writes_are_being_ended(stream: Stream, calls: Calls) -> None:
    closing = threading.Thread(target=lambda: stream.close(wait=True))
    closing.start()
    wait_until(lambda: calls.made == ["done writing"])
    cancelling = threading.Thread(target=lambda: stream.cancel(Closed("the writer was closed")))
    cancelling.start()
    calls.may_return.set()
    closing.join(DEADLINE_SECONDS)
    cancelling.join(DEADLINE_SECONDS)
    assert calls.made[:2] == ["done writing", "writes ended"]
    assert calls.made.count("cancel") == 2


def test_the_writes_of_a_cancelled_stream_are_not_ended(stream: Stream, calls: Calls) -> None:
    stream.cancel(Closed("the writer was closed"))
    stream.close(wait=True)
    assert "done writing" not in calls.made


def test_a_writer_that_gives_up_does_not_end_its_stream_cleanly(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleanly: list[bool] = []
    drop = Sender._drop_stream

    def dropped(sender: Sender, **how: bool) -> None:
        cleanly.append(how.get("cleanly", False))
        drop(sender, **how)

    monkeypatch.setattr(Sender, "_drop_stream", dropped)
    server.auto = None
    client = headrace.connect(server.url)
    client.writer().write({"a": 1})
    wait_until(lambda: server.rows() == [{"a": 1}])
    with pytest.raises(WriteTimeout):
        client.close(timeout=0.01)
    wait_until(lambda: cleanly)
    assert cleanly == [False]
