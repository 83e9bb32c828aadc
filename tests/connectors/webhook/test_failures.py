"""What a receiver can do wrong, and what comes of it."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.connectors.webhook.delivery import deliver
from headrace.errors import ConfigError, EndpointError, EndpointUnavailable
from tests.connectors.webhook.clock import Clock
from tests.connectors.webhook.driving import planned, send, things
from tests.connectors.webhook_endpoint import (
    Behaviour,
    Handler,
    Received,
    Receiver,
    answers,
    takes_and_breaks_off,
    takes_and_closes,
)
from tests.waiting import DEADLINE_SECONDS


def hangs(handler: Handler, received: Received) -> None:
    received.taken = False
    handler.server.receiver.closing.wait()


def drips(handler: Handler, received: Received) -> None:
    """Its answer never pauses for long, and never ends."""
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    while not handler.server.receiver.closing.wait(0.1):
        handler.wfile.write(b".")


def breaks_off_a_chunk(handler: Handler, received: Received) -> None:
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b"a\r\nhalf")
    handler.close_connection = True


def talks_nonsense(handler: Handler, received: Received) -> None:
    handler.wfile.write(b"nonsense\r\n\r\n")
    handler.close_connection = True


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 599])
def test_what_may_pass_is_tried_again(receiver: Receiver, status: int) -> None:
    receiver.script.extend([answers(status), answers(status)])
    send(planned(receiver.address), things(3))
    assert len(receiver.received) == 3
    assert len(set(receiver.keys)) == 1
    assert len({request.raw for request in receiver.received}) == 1
    assert len(receiver.stored("things")) == 3


@pytest.mark.parametrize(
    "behaviour", [takes_and_closes, takes_and_breaks_off, breaks_off_a_chunk, talks_nonsense]
)
def test_an_answer_that_is_not_whole_is_none(receiver: Receiver, behaviour: Behaviour) -> None:
    receiver.script.append(behaviour)
    send(planned(receiver.address), things(3))
    assert len(receiver.received) == 2
    assert len(set(receiver.keys)) == 1
    assert len(receiver.stored("things")) == 3


@pytest.mark.parametrize("behaviour", [hangs, drips])
def test_an_answer_that_takes_too_long_is_none(receiver: Receiver, behaviour: Behaviour) -> None:
    receiver.script.append(behaviour)
    send(planned(receiver.address, timeout=1, retry_for=3600), things(1))
    assert len(receiver.received) >= 2, "the first one is still being answered"
    assert len(set(receiver.keys)) == 1


def test_a_receiver_that_asks_for_a_pause_gets_it(
    receiver: Receiver, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.script.append(answers(429, b"slowly, please", Retry_After="1"))
    send(planned(receiver.address), things(1))
    assert clock.pauses == [1]
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert record.message == (
        f"webhook {receiver.address}, resource 'things', answers 429 Too Many Requests: slowly, please; "
        "trying again in 1.00 s"
    )


def test_a_pause_beyond_retry_for_is_given_up_at_once(receiver: Receiver) -> None:
    receiver.script.append(answers(503, b"", Retry_After="3600"))
    with pytest.raises(EndpointUnavailable) as error:
        send(planned(receiver.address), things(1))
    assert str(error.value) == (
        f"webhook {receiver.address}, resource 'things', answers 503 Service Unavailable, "
        "asks for a pause of 3600 s, and was tried once within the 5 s of 'retry_for'"
    )
    assert len(receiver.received) == 1


def test_what_does_not_pass_in_time_is_an_outage(receiver: Receiver) -> None:
    receiver.script.extend([answers(503, b"down for today")] * 50)
    with pytest.raises(EndpointUnavailable, match=r"503 Service Unavailable: down for today, and was tried"):
        send(planned(receiver.address, retry_for=4), things(1))
    assert 2 < len(receiver.received) < 20


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 413, 422, 451])
def test_what_is_refused_is_for_its_owner(receiver: Receiver, status: int) -> None:
    receiver.script.append(answers(status, b'{"error":\n "no such\tthing"}' + b"x" * 1000))
    with pytest.raises(EndpointError) as error:
        send(planned(receiver.address), things(1))
    assert str(error.value).startswith(f"webhook {receiver.address}, resource 'things', answers {status} ")
    assert '{"error": "no such thing"}xx' in str(error.value)
    assert str(error.value).endswith("xxx...")
    assert len(str(error.value)) < 500
    assert len(receiver.received) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(receiver: Receiver, status: int) -> None:
    receiver.script.append(answers(status, b"", Location=f"{receiver.address}/elsewhere?key=hunter2"))
    with pytest.raises(EndpointError, match="put the final URL into 'address'") as error:
        send(planned(receiver.address), things(1))
    assert "hunter2" not in str(error.value)
    assert len(receiver.received) == 1


def test_a_long_answer_is_not_waited_for(receiver: Receiver) -> None:
    def endless(handler: Handler, received: Received) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not handler.server.receiver.closing.is_set():
            handler.wfile.write(b"." * 4096)

    receiver.script.append(endless)
    send(planned(receiver.address, batch_documents=1), things(2))
    assert len(receiver.received) == 2
    assert receiver.connections == 2, "a connection with the rest of an answer in it is of no use"


def test_nobody_there() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # it does not listen, and nobody else gets the port
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(EndpointUnavailable, match="cannot be reached: Connection refused, and was tried"):
            send(planned(address, retry_for=0.5), things(1))


def test_a_host_that_nobody_knows() -> None:
    with pytest.raises(EndpointUnavailable, match="nobody knows its host name"):
        send(planned("http://receiver.invalid", retry_for=0), things(1))


def test_a_host_that_cannot_be_one() -> None:
    with pytest.raises(ConfigError, match="'address': what it has for a host is no host's name"):
        send(planned("http://receiver..invalid"), things(1))


def test_a_server_that_takes_no_connection() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        # The queue of the kernel takes a few, and then no more.
        waiting = [socket.socket() for _ in range(4)]
        for connection in waiting:
            connection.setblocking(False)
            connection.connect_ex(("127.0.0.1", port))
        with pytest.raises(EndpointUnavailable, match=r"cannot be reached within the 0.3 s of 'timeout'"):
            send(planned(f"http://127.0.0.1:{port}", timeout=0.3, retry_for=0), things(1))
        for connection in waiting:
            connection.close()


def test_the_first_failure_of_many_is_raised(receiver: Receiver) -> None:
    receiver.script.extend([answers(200), answers(400, b"no")])
    with pytest.raises(EndpointError, match="answers 400 Bad Request: no"):
        send(planned(receiver.address, batch_documents=1, concurrency=3), things(100))


def test_nothing_is_begun_after_the_first_failure() -> None:
    failing: list[threading.Thread] = []
    failed, taking = threading.Event(), threading.Lock()
    begun: list[object] = []

    def post(batch: object) -> None:
        begun.append(batch)
        this = threading.current_thread()
        with taking:
            if not failing and this.name == "headrace-webhook":  # not in the thread that waits for the others
                failing.append(this)
        if this in failing:
            failed.set()
            raise EndpointError("no")
        assert failed.wait(DEADLINE_SECONDS)
        failing[0].join(DEADLINE_SECONDS)  # when it has ended, the others can see its failure

    batches: Iterator[Any] = iter(range(100))
    with pytest.raises(EndpointError, match="no"):
        deliver(batches, post, 3)
    assert len(begun) <= 3


def test_a_transaction_that_failed_comes_again_under_the_same_keys(receiver: Receiver) -> None:
    receiver.script.extend([answers(200), answers(503)])
    materialization = planned(receiver.address, batch_documents=2, retry_for=0)
    with pytest.raises(EndpointUnavailable):
        send(materialization, things(6))
    send(materialization, things(6))
    assert [request.body["batch"] for request in receiver.received] == [1, 2, 1, 2, 3]
    assert receiver.keys[:2] == receiver.keys[2:4]
    assert sorted(row["id"] for row in receiver.stored("things")) == [*range(6)]
