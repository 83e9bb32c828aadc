"""Streams of writes over a real port, from a stock client."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from pyarrow import flight

from headrace.errors import SchemaError
from headrace.ingest.engine_settings import SessionLimits
from headrace.ingest.server import IngestServer
from headrace.model.tiers import Tier
from tests.ingest.flight_client import Stream, our_error
from tests.ingest.support import FakeIceberg, running_server
from tests.ingest.views import GOOD, views
from tests.waiting import wait_until

MEMORY, LOCAL_DISK, OBJECT_STORAGE, COMMITTED = (tier.name for tier in Tier)

THE_FOUR_COLUMNS = pa.schema(
    [
        pa.field("lsn", pa.uint64(), nullable=False),
        pa.field("durability_level", pa.string(), nullable=False),
        pa.field("is_durability_update", pa.bool_(), nullable=False),
        pa.field("timestamp", pa.timestamp("us"), nullable=False),
    ]
)


@pytest.fixture(scope="module")
def tables() -> FakeIceberg:
    return FakeIceberg()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tables: FakeIceberg) -> Iterator[IngestServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.ingest.engine.CommitterProcess", tables.process)
        with running_server(tmp_path_factory.mktemp("data")) as server:
            yield server


def test_a_stock_client_gets_the_four_columns_and_one_lsn_for_each_batch(server: IngestServer) -> None:
    stream = Stream(server.url, "stock")
    for number in range(10):
        stream.send_ids(*range(number + 1))
    assert stream.done() is None
    assert stream.schema == THE_FOUR_COLUMNS
    lsns = stream.lsns(MEMORY)
    assert lsns == list(range(lsns[0], lsns[0] + 10))
    for tier in Tier:
        assert stream.lsns(tier.name) == lsns
    assert all(is_update == (level != MEMORY) for _, level, is_update in stream.acks)
    assert all(message.keys() == {"snapshot_id"} for message in stream.messages)


@pytest.mark.parametrize(
    "path", [["streaming_write"], ["streaming_write/default"], ["streaming_write", "default"]]
)
def test_the_collection_is_in_the_path(server: IngestServer, path: list[str]) -> None:
    before = server.engine.statistics().writes
    assert Stream(server.url, path=path).send_ids(1).done() is None
    assert "default" in server.engine.collections.names()
    assert server.engine.statistics().writes == before + 1


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (["elsewhere"], "streaming_write or streaming_write/COLLECTION, not 'elsewhere'"),
        (["streaming_write", "a", "b"], "not 'streaming_write/a/b'"),
        (["streaming_write/a b"], "'a b' is not a name of a collection"),
        (["streaming_write/"], "'' is not a name of a collection"),
    ],
)
def test_a_path_that_names_no_collection_is_refused(
    server: IngestServer, path: list[str], message: str
) -> None:
    error = our_error(Stream(server.url, path=path).join())
    assert error["error"] == "ConfigError"
    assert message in error["message"]


def test_a_client_that_sends_nothing_is_told_nothing(server: IngestServer) -> None:
    stream = Stream(server.url)
    stream.begin(pa.schema([("id", pa.int64())]))
    assert stream.done() is None
    assert (stream.acks, stream.messages) == ([], [])


def test_options_come_with_the_first_batch_or_alone_before_it(server: IngestServer) -> None:
    with Stream(server.url, "options") as stream:
        stream.send_ids(1, levels=["LOCAL_DISK"])
        assert stream.said("session")["collection"] == "options"
        stream.await_count(LOCAL_DISK, 1)
        assert stream.lsns(MEMORY) == []
    with Stream(server.url, "options") as stream:
        stream.options(levels=["MEMORY"])
        assert stream.said("session")["last_seq"] is None
        stream.send_ids(1).send_ids(2)
        stream.await_count(MEMORY, 2)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({"levels": ["NOWHERE"]}, None, "'NOWHERE' is not a durability level"),
        ({"acks": "never"}, None, "option acks is 'per-lsn' or 'watermark', not 'never'"),
        ({"unknown": 1}, None, "a key 'unknown'; the keys are"),
        ({"seq": 1}, None, "seq needs the option producer"),
        ({"producer": "p"}, None, "needs a seq"),
        ({"rows": [5]}, None, "rows adds up to 5, but the batch has 1 rows"),
        ({"levels": ["MEMORY"]}, {"acks": "watermark"}, "options come with the first message of a stream"),
    ],
)
def test_wrong_options_end_the_stream_with_one_sentence(
    server: IngestServer, first: dict[str, Any], second: dict[str, Any] | None, message: str
) -> None:
    stream = Stream(server.url, "wrong").send_ids(1, **first)
    if second:
        stream.send_ids(2, **second)
    error = stream.join()
    assert type(error) is flight.FlightServerError
    said = our_error(error)
    assert (said["error"], said["transient"]) == ("ConfigError", False)
    assert message in said["message"]
    assert "\n" not in said["message"]
    assert said["message"] in str(error)


def test_coalesced_writes_have_lsns_of_their_own(server: IngestServer) -> None:
    stream = Stream(server.url, "coalesced").send_ids(*range(8), rows=[2, 1, 5]).send_ids(8)
    assert stream.done() is None
    assert len(stream.lsns(MEMORY)) == 4
    assert stream.lsns(COMMITTED) == stream.lsns(MEMORY)


def test_watermarks_instead_of_a_row_for_each_write(server: IngestServer) -> None:
    stream = Stream(server.url, "by_watermark").options(acks="watermark")
    for number in range(500):
        stream.send_ids(number)
    assert stream.done() is None
    last = max(stream.lsns(MEMORY))
    for tier in Tier:
        told = stream.lsns(tier.name)
        assert told == sorted(told)
        assert told[-1] == last
        assert len(told) < 500


def test_what_a_producer_sends_again_is_not_written_again(server: IngestServer, tables: FakeIceberg) -> None:
    with Stream(server.url, "again") as stream:
        stream.options(producer="till", first_seq=5)
        stream.send_ids(1, 2, seq=5, rows=[1, 1]).send_ids(3, seq=7)
        first = stream.await_count(MEMORY, 3)
        stream.await_count(COMMITTED, 3)
    stream = Stream(server.url, "again").options(producer="till", resume_after=first[0])
    greeting = stream.said("session")
    assert greeting["last_seq"] == 7
    assert greeting["assigned"] in ([[6, first[1], 2]], [[7, first[2], 1]])
    stream.send_ids(2, 3, 4, 5, seq=6, rows=[1, 1, 1, 1])  # half of it is new
    assert stream.done() is None
    new = sorted(set(stream.lsns(MEMORY)) - set(first))
    assert len(new) == 2
    assigned = [run for message in stream.messages for run in message.get("assigned", [])]
    told = {seq + n: lsn + n if lsn else 0 for seq, lsn, count in assigned for n in range(count)}
    assert told[7] == first[2]
    assert told[6] in (0, first[1])  # committed, so it may be forgotten
    assert [told[8], told[9]] == new
    assert sorted(tables.lsns["again"]) == [*first, *new]


def test_a_producer_that_goes_on_and_is_not_known_is_refused(
    server: IngestServer, tables: FakeIceberg
) -> None:
    """It may have written what it sends before it was forgotten."""
    with Stream(server.url, "unknown") as stream:
        stream.options(producer="till", resume_after=7)
        assert stream.said("session")["last_seq"] is None
        stream.send_ids(1, seq=2)
        error = our_error(stream.join())
    assert (error["error"], error["transient"]) == ("UnknownProducer", False)
    assert error["fields"] == {"producer": "till", "collection": "unknown", "first_seq": 2}
    assert "does not know producer 'till' in collection 'unknown'" in error["message"]
    with Stream(server.url, "unknown") as stream:  # nothing of it was written, so it is still unknown
        stream.send_ids(1, producer="till", first_seq=2, seq=2).send_ids(2, seq=9)
        lsns = stream.await_count(COMMITTED, 2)
    with Stream(server.url, "unknown") as stream:  # now it is known, and may leave numbers out
        stream.send_ids(3, producer="till", seq=11)
        lsns += stream.await_count(COMMITTED, 1)
    assert tables.lsns["unknown"] == lsns


def test_a_producer_that_opens_a_second_stream_takes_over(server: IngestServer, tables: FakeIceberg) -> None:
    with Stream(server.url, "taken") as old:
        old.send_ids(1, producer="till", seq=1)
        [lsn] = old.await_count(MEMORY, 1)
        with Stream(server.url, "taken") as new:
            new.options(producer="till")
            assert new.said("session")["last_seq"] == 1
            old.send_ids(2, seq=2)
            error = our_error(old.join())
            assert error["error"] == "Fenced"
            assert "'till'" in error["message"]
            new.send_ids(2, seq=2)
            [mine] = new.await_count(COMMITTED, 1)
    assert tables.lsns["taken"] == [lsn, mine]


def test_a_refused_write_leaves_the_ones_before_it_and_names_column_and_types(
    server: IngestServer, tables: FakeIceberg
) -> None:
    Stream(server.url, "typed").send_ids(1).done()
    kept = Stream(server.url, "typed").send_ids(2)
    refused = Stream(server.url, "typed").send(pa.record_batch({"id": pa.array(["text"])}))
    error = our_error(refused.join())
    assert (error["error"], error["transient"]) == ("SchemaError", False)
    assert "column 'id' is int64 and the write has string" in error["message"]
    assert kept.done() is None
    # In one stream: earlier writes are acknowledged on the disk before the error comes.
    stream = Stream(server.url, "typed").send_ids(3).send_ids(4).send_ids(5, rows=[9])
    assert our_error(stream.join())["error"] == "ConfigError"
    assert len(stream.lsns(MEMORY)) == len(stream.lsns(LOCAL_DISK)) == 2
    wait_until(lambda: len(tables.lsns["typed"]) == 4)


def test_a_write_that_is_empty_is_refused(server: IngestServer) -> None:
    error = our_error(Stream(server.url, "sizes").send_ids().join())
    assert "a write has no rows: leave it out" in error["message"]


def test_a_write_that_is_too_large_is_refused(tmp_path: Path, iceberg: FakeIceberg) -> None:
    with running_server(tmp_path, session=SessionLimits(message_bytes=1000)) as server:
        error = our_error(Stream(server.url, "sizes").send_ids(*range(1000)).join())
        assert "bytes and may have 1,000: split it" in error["message"]


def test_columns_are_added_and_widened_and_nulls_have_the_type_of_the_column(server: IngestServer) -> None:
    def write(**columns: pa.Array) -> None:
        assert Stream(server.url, "growing").send(pa.record_batch(columns)).done() is None

    write(id=pa.array([1], pa.int32()))
    write(id=pa.array([1], pa.int64()), name=pa.array(["x"]))
    write(id=pa.array([2], pa.int32()), name=pa.nulls(1))
    assert server.engine.collections.schema("growing") == pa.schema(
        [("id", pa.int64()), ("name", pa.string())]
    )


def test_a_broken_message_is_the_clients_fault_and_told_so(server: IngestServer) -> None:
    offsets, data = (0).to_bytes(4, "little") + (1).to_bytes(4, "little"), b"\xff"  # not UTF-8
    column = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    broken = pa.record_batch([column], ["text"])
    error = our_error(Stream(server.url, "broken").send(broken).join())
    assert (error["error"], error["transient"]) == ("SchemaError", False)
    assert "the batch is malformed" in error["message"]


def test_a_bug_in_the_decision_on_a_schema_is_not_tried_again(
    server: IngestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def admit(name: str, incoming: pa.Schema) -> None:
        raise KeyError(name)

    monkeypatch.setattr(server.engine.collections, "admit", admit)
    error = our_error(Stream(server.url, "unlucky").send_ids(1).join())
    assert (error["error"], error["transient"]) == ("InternalError", False)
    assert error["message"].endswith("KeyError: 'unlucky'")


def test_a_view_of_a_null_cannot_end_the_server(server: IngestServer) -> None:
    column = views(GOOD, (-(2**31), 0, 0, 0), nulls=0b10, kind=pa.string_view())
    error = our_error(Stream(server.url, "broken").send(pa.record_batch([column], ["text"])).join())
    assert "the batch is malformed: a view has a negative length" in error["message"]
    with Stream(server.url, "fine") as stream:
        stream.send_ids(1)
        stream.await_count(MEMORY, 1)


def test_a_dictionary_that_is_small_for_what_it_stands_for_is_refused(server: IngestServer) -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 1900, pa.int16()), pa.array(["x" * (1 << 20)]))
    error = our_error(Stream(server.url, "large").send(pa.record_batch([column], ["text"])).join())
    assert "with a copy of its value for each row a message has 1,99" in error["message"]


def test_nulls_that_take_no_room_on_the_wire_are_refused_before_they_take_some(server: IngestServer) -> None:
    Stream(server.url, "hollow").send_ids(1).done()
    hollow = pa.Array.from_buffers(pa.null(), (1 << 31) - 1, [None])  # as it comes from the network
    error = our_error(Stream(server.url, "hollow").send(pa.record_batch([hollow], ["id"])).join())
    assert "bytes and may have 67,108,864: split it" in error["message"]


def test_a_collection_is_not_made_beside_one_that_differs_in_case_only(server: IngestServer) -> None:
    assert Stream(server.url, "Cased").send_ids(1).done() is None
    error = our_error(Stream(server.url, "cASED").send_ids(2).join())
    assert "collection 'cASED' differs from 'Cased' in case only" in error["message"]
    with pytest.raises(SchemaError, match="choose another name"):
        server.engine.collections.create("CASED", pa.schema([("id", pa.int64())]))
    assert Stream(server.url, "Cased").send_ids(2).done() is None


def test_two_hundred_clients_that_come_and_go_leave_nothing_behind(server: IngestServer) -> None:
    def visit(number: int) -> None:
        with Stream(server.url, "visited") as stream:
            stream.send_ids(number, producer=f"visitor-{number % 3}", seq=number // 3 + 1)
            stream.await_count(MEMORY, 1)  # and away, in the middle

    for number in range(10):
        visit(number)
    wait_until(lambda: server.engine.sessions() == [])
    gc.collect()
    threads = psutil.Process().num_threads()
    for number in range(10, 210):
        visit(number)
    wait_until(lambda: server.engine.sessions() == [])
    wait_until(lambda: psutil.Process().num_threads() <= threads + 8, "an end of threads")


def test_a_client_that_never_reads_hurts_nobody_else(server: IngestServer) -> None:
    client = flight.connect(server.url)
    writer, reader = client.do_exchange(flight.FlightDescriptor.for_path("streaming_write", "deaf"))
    batch = pa.record_batch({"id": pa.array([1], pa.int64())})
    writer.begin(batch.schema)
    for _ in range(300):
        writer.write_batch(batch)
    assert Stream(server.url, "heard").send_ids(1).done() is None
    reader.cancel()
    client.close()
    wait_until(lambda: server.engine.sessions() == [])


def test_a_server_that_stops_says_so_and_says_what_is_synced(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = FakeIceberg()
    monkeypatch.setattr("headrace.ingest.engine.CommitterProcess", tables.process)
    tables.hold()
    with running_server(tmp_path_factory.mktemp("stopping")) as server:
        stream = Stream(server.url).send_ids(1)
        stream.await_count(OBJECT_STORAGE, 1)
        stream.writer.done_writing()
        tables.let_go()
        tables.hold()
        assert server.stop()
        error = stream.join()
        assert error is None or isinstance(error, flight.FlightUnavailableError)
