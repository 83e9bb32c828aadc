"""The pipe between the two sides: bounded, never stuck, and honest about how it ended."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.errors import EndpointError, Fenced, StreamBroken
from headrace.protocol.channel import CAPACITY, Channel
from tests.protocol.background import Background, WatchedCondition, happens


@pytest.fixture
def condition() -> WatchedCondition:
    return WatchedCondition()


@pytest.fixture
def channel(condition: WatchedCondition) -> Channel:
    channel = Channel()
    channel._changed = condition
    return channel


Put = Callable[[Channel, object], None]
Get = Callable[[Channel], object | None]
DIRECTIONS = pytest.mark.parametrize(
    ("put", "get"),
    [(Channel.put_request, Channel.get_request), (Channel.put_response, Channel.get_response)],
    ids=["requests", "responses"],
)


@DIRECTIONS
def test_items_come_out_in_order(channel: Channel, put: Put, get: Get) -> None:
    for item in range(CAPACITY):
        put(channel, item)
    assert [get(channel) for _ in range(CAPACITY)] == list(range(CAPACITY))


@DIRECTIONS
def test_a_full_queue_makes_its_writer_wait_until_there_is_room(
    channel: Channel, condition: WatchedCondition, put: Put, get: Get
) -> None:
    for item in range(CAPACITY):
        put(channel, item)
    writer = Background(lambda: put(channel, CAPACITY))
    assert happens(condition.waiting)
    assert writer.running
    assert get(channel) == 0
    writer.result()
    assert [get(channel) for _ in range(CAPACITY)] == list(range(1, CAPACITY + 1))


@DIRECTIONS
def test_an_empty_queue_makes_its_reader_wait_until_something_comes(
    channel: Channel, condition: WatchedCondition, put: Put, get: Get
) -> None:
    reader = Background(lambda: get(channel))
    assert happens(condition.waiting)
    assert reader.running
    put(channel, "it")
    assert reader.result() == "it"


def test_a_queue_holds_its_capacity_and_no_more(channel: Channel, condition: WatchedCondition) -> None:
    taken = []

    def write() -> None:
        for item in range(3 * CAPACITY):
            channel.put_request(item)
            taken.append(item)

    writer = Background(write)
    assert happens(condition.waiting)
    with condition:
        assert len(taken) <= CAPACITY
        assert len(channel._requests.items) == CAPACITY
    for _ in range(3 * CAPACITY):
        channel.get_request()
    writer.result()


@pytest.mark.parametrize("count", [CAPACITY, 500])
def test_a_writer_that_does_not_read_and_an_echo_do_not_wait_for_each_other(count: int) -> None:
    """A runtime may send all its loads before it reads an answer; a connector may answer each at once."""
    channel = Channel()

    def echo() -> None:
        while (request := channel.get_request()) is not None:
            channel.put_response(request)
        channel.end_responses()

    def write() -> None:
        for item in range(count):
            channel.put_request(item)
        channel.end_requests()

    connector, runtime = Background(echo), Background(write)
    runtime.result()
    answers = []
    while (answer := channel.get_response()) is not None:
        answers.append(answer)
    assert answers == list(range(count))
    connector.result()


def test_answers_step_aside_only_while_requests_wait_too(
    channel: Channel, condition: WatchedCondition
) -> None:
    """So memory is bounded as long as the runtime does not run ahead."""
    for item in range(CAPACITY):
        channel.put_response(item)
    connector = Background(lambda: channel.put_response(CAPACITY))
    assert happens(condition.waiting)
    for item in range(CAPACITY):
        channel.put_request(item)
    with condition:
        assert connector.running
        assert not channel._overflow
    runtime = Background(lambda: channel.put_request(CAPACITY))
    connector.result()
    assert len(channel._overflow) == CAPACITY
    assert channel.get_request() == 0
    runtime.result()
    assert [channel.get_response() for _ in range(CAPACITY + 1)] == list(range(CAPACITY + 1))


def test_an_echo_in_between_keeps_its_order() -> None:
    """What stepped aside is read before what came after it."""
    channel = Channel()
    sent, received = 0, []

    def echo() -> None:
        while (request := channel.get_request()) is not None:
            channel.put_response(request)
        channel.end_responses()

    connector = Background(echo)
    for ahead in (3 * CAPACITY, 1, 5 * CAPACITY, 2, 20 * CAPACITY):
        for _ in range(ahead):
            channel.put_request(sent)
            sent += 1
        received += [channel.get_response() for _ in range(ahead // 2)]
    channel.end_requests()
    while (answer := channel.get_response()) is not None:
        received.append(answer)
    assert received == list(range(sent))
    connector.result()


def test_the_end_of_requests_comes_after_them(channel: Channel) -> None:
    channel.put_request("last")
    channel.end_requests()
    assert channel.get_request() == "last"
    assert channel.get_request() is None
    assert channel.get_request() is None


def test_the_end_of_responses_comes_after_them(channel: Channel) -> None:
    channel.put_response("last")
    channel.end_responses()
    assert channel.get_response() == "last"
    assert channel.get_response() is None


@pytest.mark.parametrize(
    ("get", "end"),
    [(Channel.get_request, Channel.end_requests), (Channel.get_response, Channel.end_responses)],
    ids=["requests", "responses"],
)
def test_an_end_wakes_its_reader(
    channel: Channel, condition: WatchedCondition, get: Get, end: Callable[[Channel], None]
) -> None:
    reader = Background(lambda: get(channel))
    assert happens(condition.waiting)
    end(channel)
    assert reader.result() is None


def test_responses_still_pass_after_the_end_of_requests(channel: Channel) -> None:
    channel.end_requests()
    channel.put_response("late")
    assert channel.get_response() == "late"


def test_a_connector_that_ended_takes_no_more_requests(channel: Channel) -> None:
    channel.end_responses()
    with pytest.raises(StreamBroken, match="connector ended the stream before the runtime"):
        channel.put_request("late")


def test_a_connector_that_ends_wakes_a_runtime_that_waits_for_room(
    channel: Channel, condition: WatchedCondition
) -> None:
    for item in range(CAPACITY):
        channel.put_request(item)
    runtime = Background(lambda: channel.put_request(CAPACITY))
    assert happens(condition.waiting)
    channel.end_responses()
    with pytest.raises(StreamBroken):
        runtime.result()


ERROR = EndpointError("the disk is full")


@pytest.mark.parametrize(
    "call",
    [
        lambda channel: channel.put_request("it"),
        lambda channel: channel.get_request(),
        lambda channel: channel.put_response("it"),
        lambda channel: channel.get_response(),
    ],
    ids=["put_request", "get_request", "put_response", "get_response"],
)
def test_an_error_reaches_every_call_of_both_sides(channel: Channel, call: Get) -> None:
    channel.fail(ERROR)
    for _ in range(2):
        with pytest.raises(EndpointError) as raised:
            call(channel)
        assert raised.value is ERROR


@pytest.mark.parametrize(
    ("fill", "call"),
    [
        (Channel.put_request, lambda channel: channel.put_request("more")),
        (Channel.put_response, lambda channel: channel.put_response("more")),
        (None, lambda channel: channel.get_request()),
        (None, lambda channel: channel.get_response()),
    ],
    ids=["put_request", "put_response", "get_request", "get_response"],
)
def test_an_error_wakes_whoever_waits(
    channel: Channel, condition: WatchedCondition, fill: Put | None, call: Get
) -> None:
    for item in range(CAPACITY if fill else 0):
        assert fill is not None
        fill(channel, item)
    waiting = Background(lambda: call(channel))
    assert happens(condition.waiting)
    channel.fail(ERROR)
    with pytest.raises(EndpointError):
        waiting.result()


def test_the_first_error_is_the_one_that_everyone_sees(channel: Channel) -> None:
    channel.fail(Fenced("taken over"))
    channel.fail(ERROR)
    with pytest.raises(Fenced):
        channel.get_response()


def test_what_was_answered_before_an_error_is_still_delivered() -> None:
    """It may be a StartedCommit: the runtime must know that the transaction may be in the endpoint."""
    channel = Channel()
    for item in range(2 * CAPACITY):
        # Some of it steps aside for requests.
        connector = Background(lambda item=item: channel.put_response(item))  # type: ignore[misc]
        if item == CAPACITY:
            for number in range(CAPACITY):
                channel.put_request(number)
            runtime = Background(lambda: channel.put_request("one too many"))
        connector.result()
    assert channel._overflow
    channel.fail(ERROR)
    assert [channel.get_response() for _ in range(2 * CAPACITY)] == list(range(2 * CAPACITY))
    with pytest.raises(EndpointError):
        channel.get_response()
    with pytest.raises(EndpointError):
        runtime.result()


def test_requests_before_an_error_are_dropped(channel: Channel) -> None:
    """A connector that goes on with them would work on a transaction that cannot commit."""
    channel.put_request("it")
    channel.fail(ERROR)
    with pytest.raises(EndpointError):
        channel.get_request()


def test_the_first_failure_is_told_to_who_waits_elsewhere(channel: Channel) -> None:
    told: list[str] = []
    channel.on_failure(lambda: told.append("it failed"))
    channel.end_requests()
    assert told == []
    channel.fail(ERROR)
    channel.fail(ERROR)
    assert told == ["it failed"]


def test_who_is_told_of_a_failure_may_use_the_channel(channel: Channel) -> None:
    """As gRPC's cancel does, on another thread."""
    channel.on_failure(lambda: Background(channel.end_requests).result())
    Background(lambda: channel.fail(ERROR)).result()
