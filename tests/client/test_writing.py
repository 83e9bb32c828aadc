"""Writing: what goes into one message, in which order, and what waits for room."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pyarrow as pa
import pytest

from headrace.client import Client, Receipt, Tier
from headrace.client.groups import Group
from headrace.errors import BufferFull, Closed, ConfigError
from tests.client.conftest import UNTIL_TOLD
from tests.client.scripted_server import ScriptedServer
from tests.waiting import DEADLINE_SECONDS, wait_until

ONE = pa.RecordBatch.from_pylist([{"a": 1}])


def groups_alive() -> int:
    gc.collect()
    return sum(isinstance(thing, Group) for thing in gc.get_objects())


def test_messages_are_cut_by_count_and_by_size(server: ScriptedServer, client: Client) -> None:
    with client.writer(linger=0, max_batch_writes=3) as writer:
        server.on_message = lambda point, session: None
        for n in range(10):
            writer.write({"a": n})
    assert max(server.message_sizes) <= 3
    assert [row["a"] for row in server.rows()] == list(range(10))
    server.message_sizes.clear()
    with client.writer(linger=UNTIL_TOLD, max_batch_bytes=1000) as writer:
        for _ in range(10):
            writer.write({"b": "x" * 300})
        writer.write({"b": "x" * 5000})
        writer.flush()
    assert server.message_sizes == [3, 3, 3, 1, 1]


def test_lingering_gathers_and_a_flush_does_not_wait_for_it(server: ScriptedServer, client: Client) -> None:
    with client.writer(linger=UNTIL_TOLD) as writer:
        for _ in range(100):
            writer.write(ONE)
        assert server.message_sizes == []
        writer.flush(timeout=DEADLINE_SECONDS)
        assert server.message_sizes == [100]
        writer.write(ONE)
        writer.write_durable(ONE, timeout=DEADLINE_SECONDS)
        assert server.message_sizes == [100, 2]
        writer.write(ONE)
    assert server.message_sizes == [100, 2, 1]


def test_a_new_schema_keeps_the_order(server: ScriptedServer, client: Client) -> None:
    with client.writer() as writer:
        receipts = [writer.write({"a": n} if n % 3 else {"b": str(n)}) for n in range(12)]
        writer.flush()
        assert [receipt.lsn for receipt in receipts] == list(range(1000, 1012))
        assert all(receipt.wait("COMMITTED").level is Tier.COMMITTED for receipt in receipts)
    assert server.rows() == [{"a": n} if n % 3 else {"b": str(n)} for n in range(12)]
    assert [logged.seq for logged in server.log] == list(range(1, 13))
    assert server.duplicates == 0


def test_writers_have_their_own_producers_and_collections(server: ScriptedServer, client: Client) -> None:
    with client.writer("orders", producer="me") as orders, client.writer() as other:
        orders.write_durable({"a": 1})
        other.write_durable({"a": 2})
        assert {session.collection for session in server.sessions} == {"orders", "default"}
    assert server.options[0] == {"producer": "me", "acks": "watermark"}
    assert len(server.options[1]["producer"]) == 32


def test_a_producer_goes_on_where_it_was(server: ScriptedServer, client: Client) -> None:
    with client.writer(producer="me") as writer:
        writer.write({"a": 1})
        writer.write({"a": 2})
    with client.writer(producer="me") as writer:
        assert writer.write_durable({"a": 3}).lsn == 1002
    assert [(logged.seq, logged.rows) for logged in server.log] == [
        (1, [{"a": 1}]),
        (2, [{"a": 2}]),
        (3, [{"a": 3}]),
    ]


@pytest.mark.parametrize("empty", [ONE.slice(0, 0), pa.table({"a": pa.array([], pa.int64())}), [], {}])
def test_empty_data_is_refused(client: Client, empty: Any) -> None:
    with client.writer() as writer:
        for _ in range(2):  # the short way and the long one
            with pytest.raises(ConfigError, match="nothing to write"):
                writer.write(empty)
            writer.write(ONE)


@pytest.mark.parametrize(
    "options", [{"on_full": "explode"}, {"max_buffer": 0}, {"linger": -1}, {"retain": "x"}]
)
def test_options_that_cannot_be(client: Client, options: Any) -> None:
    with pytest.raises(ConfigError):
        client.writer(**options)


def test_many_threads_share_a_writer(server: ScriptedServer, client: Client) -> None:
    receipts: dict[int, list[Receipt]] = {}

    def write(thread: int) -> None:
        receipts[thread] = [writer.write({"a": thread * 1000 + n}) for n in range(100)]

    with client.writer(max_batch_writes=7) as writer:
        threads = [threading.Thread(target=write, args=(thread,)) for thread in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        writer.flush()
        by_lsn = {logged.lsn: logged.rows[0]["a"] for logged in server.log}
        for thread_number, written in receipts.items():
            values = [by_lsn[receipt.lsn] for receipt in written]
            assert values == [thread_number * 1000 + n for n in range(100)]
    assert len(by_lsn) == 600


def test_a_full_buffer_refuses(server: ScriptedServer, client: Client) -> None:
    server.auto = Tier.MEMORY
    with client.writer(linger=0, max_buffer=10_000, on_full="raise") as writer:
        receipts: list[Receipt] = []
        with pytest.raises(BufferFull, match="10000 bytes is full"):
            receipts.extend(writer.write({"a": "x" * 1000}) for _ in range(10_000))
        wait_until(lambda: len(server.log) >= 5)
        assert len(server.log) <= 20
        server.auto = Tier.LOCAL_DISK
        server.reach(Tier.LOCAL_DISK)
        writer.flush()
        writer.write({"a": "x" * 1000})


def test_a_full_buffer_waits(server: ScriptedServer, client: Client) -> None:
    server.auto = Tier.MEMORY
    written: list[int] = []

    def write() -> None:
        for n in range(50):
            writer.write({"a": "x" * 1000})
            written.append(n)

    with client.writer(linger=0, max_buffer=10_000) as writer:
        writing = threading.Thread(target=write)
        writing.start()
        wait_until(lambda: len(server.log) >= 5)
        assert len(written) < 30
        server.auto = Tier.LOCAL_DISK
        server.reach(Tier.LOCAL_DISK)
        writing.join(DEADLINE_SECONDS)
        assert len(written) == 50
    assert len(server.log) == 50


def test_a_write_larger_than_the_buffer_passes_alone(server: ScriptedServer, client: Client) -> None:
    with client.writer(max_buffer=1000) as writer:
        for _ in range(3):
            writer.write({"a": "x" * 50_000})
    assert len(server.log) == 3


def test_who_waits_for_room_hears_of_the_end(server: ScriptedServer, client: Client) -> None:
    server.auto = Tier.MEMORY
    writer = client.writer(linger=0, max_buffer=1000)
    writer.write({"a": "x" * 900})
    ended = threading.Event()

    def write() -> None:
        with pytest.raises(Closed):
            list(map(writer.write, [{"a": "x" * 900}] * 10))
        ended.set()

    waiting = threading.Thread(target=write)
    waiting.start()
    wait_until(lambda: server.log)
    with pytest.raises(Exception, match="LOCAL_DISK"):
        writer.close(timeout=0.01)
    waiting.join(DEADLINE_SECONDS)
    assert ended.is_set()


def test_slices_of_a_large_batch_are_not_taken_for_large(server: ScriptedServer, client: Client) -> None:
    large = pa.RecordBatch.from_pylist([{"a": "x" * 100} for _ in range(5000)])
    with client.writer(
        linger=UNTIL_TOLD, max_buffer=400_000, on_full="raise", max_batch_bytes=400_000
    ) as writer:
        for n in range(1000):
            writer.write(large.slice(n, 1))
    assert len(server.log) == 1000


def test_a_size_that_was_guessed_is_put_right(server: ScriptedServer, client: Client) -> None:
    server.auto = Tier.MEMORY
    uneven = pa.RecordBatch.from_pylist([{"a": "x" * (10_000 if n else 10)} for n in range(16)])
    with client.writer(linger=UNTIL_TOLD, max_buffer=100_000, on_full="raise") as writer:
        for n in range(16):
            writer.write(uneven.slice(n, 1))  # the first is measured, and the others taken to be like it
        writer.flush("MEMORY")
        with pytest.raises(BufferFull):
            writer.write(ONE)
        server.reach(Tier.LOCAL_DISK)


def test_what_is_resolved_is_forgotten(server: ScriptedServer, client: Client) -> None:
    server.auto = Tier.LOCAL_DISK
    before = groups_alive()
    with client.writer(max_batch_writes=1) as writer:
        kept = [writer.write(ONE) for _ in range(200)][50]
        writer.flush()
        # That of the one receipt which is kept, and the open one.
        wait_until(lambda: groups_alive() - before <= 2, "the end of the others")
        assert kept.lsn == 1050
        server.reach(Tier.COMMITTED)
        assert kept.wait("COMMITTED").snapshot_id == 7001
        assert kept._group.message is None


def test_data_is_kept_until_the_level_that_was_asked_for(server: ScriptedServer, client: Client) -> None:
    server.auto = Tier.LOCAL_DISK
    with client.writer(retain="OBJECT_STORAGE") as writer:
        receipt = writer.write_durable(ONE)
        assert receipt._group.message is not None
        server.reach(Tier.OBJECT_STORAGE)
        receipt.wait("OBJECT_STORAGE")
        assert receipt._group.message is None


def test_flush_waits_for_the_level(server: ScriptedServer, client: Client) -> None:
    server.auto = Tier.MEMORY
    with client.writer() as writer:
        writer.write(ONE)
        writer.flush("MEMORY")
        for tier in [Tier.LOCAL_DISK, Tier.OBJECT_STORAGE, Tier.COMMITTED]:
            with pytest.raises(Exception, match=f"not all writes reached {tier.name}"):
                writer.flush(tier, timeout=0.01)
            server.reach(tier)
            writer.flush(tier)


def test_a_writer_that_never_wrote(server: ScriptedServer, client: Client) -> None:
    with client.writer() as writer:
        writer.flush()
    assert server.options == []
