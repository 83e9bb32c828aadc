"""Streams that break, servers that forget, and writes that are in the log once all the same."""

from __future__ import annotations

import random
import threading
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

import headrace
from headrace.client import Client, Receipt, Reconnect, Tier, Writer
from headrace.errors import (
    Closed,
    ConfigError,
    Fenced,
    HeadraceError,
    ServerUnavailable,
    StorageFull,
    UnknownProducer,
    WriteLost,
    WriteTimeout,
)
from tests.client.conftest import QUICK, UNTIL_TOLD, be_patient
from tests.client.proxy import Proxy
from tests.client.scripted_server import Break, LiveSession, Logged, ScriptedServer, break_at_random
from tests.waiting import DEADLINE_SECONDS, wait_until

# A port on which no service of any kind listens.
NOBODY = 1


def break_once(server: ScriptedServer, at: str) -> None:
    def maybe(point: str, session: LiveSession) -> None:
        if point == at:
            server.on_message = lambda point, session: None
            raise Break(point)

    server.on_message = maybe


@pytest.mark.parametrize("point", ["received", "logged", "acknowledged"])
def test_a_broken_stream_loses_and_repeats_nothing(
    server: ScriptedServer, client: Client, point: str
) -> None:
    with client.writer(linger=0, reconnect=QUICK) as writer:
        first = writer.write_durable({"a": 0}, "COMMITTED")
        break_once(server, point)
        receipts = [writer.write({"a": n}) for n in range(1, 20)]
        writer.flush("COMMITTED", timeout=DEADLINE_SECONDS)
        assert [row["a"] for row in server.rows()] == list(range(20))
        assert [receipt.lsn for receipt in (first, *receipts)] == [logged.lsn for logged in server.log]
        assert all(receipt.level is Tier.COMMITTED for receipt in receipts)
    assert server.duplicates == 0
    assert server.options[1]["producer"] == server.options[0]["producer"] == writer.producer
    assert server.options[1]["resume_after"] == first.lsn


def test_missed_notices_come_after_a_reconnection(server: ScriptedServer, client: Client) -> None:
    server.auto = Tier.LOCAL_DISK
    with client.writer(reconnect=QUICK) as writer:
        receipt = writer.write_durable({"a": 1})
        server.proxy.target = NOBODY  # or it is back before anybody has seen it gone
        server.break_streams()
        wait_until(lambda: not server.sessions)
        server.reach(Tier.COMMITTED)
        server.proxy.target = server.port
        receipt.wait("COMMITTED", DEADLINE_SECONDS)
        wait_until(lambda: receipt.snapshot_id == 7001)  # from the notice that follows the session
    assert len(server.log) == 1


def test_a_server_that_starts_again() -> None:
    with ScriptedServer() as before, ScriptedServer() as after:
        proxy = Proxy(before.port)
        client = headrace.connect(f"127.0.0.1:{proxy.port}")
        writer = client.writer(linger=0, reconnect=QUICK)
        first = writer.write_durable({"a": 1})
        proxy.target = NOBODY
        proxy.cut()
        second = writer.write({"a": 2})
        wait_until(lambda: writer.trouble is not None)
        with pytest.raises(WriteTimeout, match="the server is not connected: the server cannot be reached"):
            second.wait(timeout=0.01)
        after.log, after.next_lsn = before.log, 2000
        proxy.target = after.port
        assert second.wait(timeout=DEADLINE_SECONDS).lsn == 2000
        assert [row["a"] for row in after.rows()] == [1, 2]
        assert first.lsn == 1000
        client.close()
        proxy.close()
        before.kill()
        after.kill()


def test_what_died_in_memory_is_written_again(server: ScriptedServer, client: Client) -> None:
    server.auto = Tier.MEMORY
    with client.writer(linger=0, reconnect=QUICK) as writer:
        receipts = [writer.write({"a": n}) for n in range(5)]
        assert receipts[-1].lsn == 1004
        server.reach(Tier.LOCAL_DISK, receipts[1].lsn)
        receipts[1].wait()
        wait_until(lambda: server.taken == len(server.message_sizes))  # or the last would advance by itself
        server.auto = Tier.LOCAL_DISK
        server.crash()
        writer.flush(timeout=DEADLINE_SECONDS)
        assert [row["a"] for row in server.rows()] == list(range(5))
        assert [receipt.lsn for receipt in receipts] == [1000, 1001, 1105, 1106, 1107]
        assert all(receipt.error is None for receipt in receipts)


def test_part_of_a_message_may_have_survived(server: ScriptedServer, client: Client) -> None:
    server.auto = Tier.MEMORY
    with client.writer(linger=UNTIL_TOLD, reconnect=QUICK) as writer:
        receipts = [writer.write([{"a": n}, {"a": n}]) for n in range(5)]
        writer.flush("MEMORY")
        assert server.message_sizes == [5]
        server.reach(Tier.LOCAL_DISK, receipts[2].lsn)
        receipts[2].wait()
        wait_until(lambda: server.taken == 1)
        server.auto = Tier.LOCAL_DISK
        server.crash()
        writer.flush(timeout=DEADLINE_SECONDS)
        assert [row["a"] for row in server.rows()] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
        assert server.message_sizes == [5, 2]
        assert [receipt.lsn for receipt in receipts] == [logged.lsn for logged in server.log]
    assert server.duplicates == 0


@pytest.mark.parametrize("is_told", [True, False], ids=["lost ranges", "only last_seq"])
def test_a_write_that_was_let_go_can_be_lost(server: ScriptedServer, client: Client, is_told: bool) -> None:
    server.auto = Tier.LOCAL_DISK
    failed: list[HeadraceError] = []
    writer = client.writer(linger=0, reconnect=QUICK)
    safe, gone = writer.write_durable({"a": 1}), None
    server.reach(Tier.COMMITTED)
    safe.wait("COMMITTED")
    gone = writer.write_durable({"a": 2})
    gone.on("COMMITTED", print, on_error=lambda _, error: failed.append(error))
    server.watermarks[Tier.OBJECT_STORAGE] = safe.lsn
    server.lose_disk()
    if not is_told:
        server.lost.clear()
    with pytest.raises(WriteLost, match="LSN 1001 was lost") as raised:
        gone.wait("COMMITTED", DEADLINE_SECONDS)
    assert (raised.value.lsn, raised.value.level) == (1001, "LOCAL_DISK")
    assert isinstance(gone.error, WriteLost)
    assert gone.level is None
    wait_until(lambda: failed)
    assert (safe.error, safe.level) == (None, Tier.COMMITTED)
    # Nobody can be sure to have looked at every receipt, so the writer says it too; and goes on.
    with pytest.raises(WriteLost, match="lost writes up to LSN 1001"):
        writer.flush()
    if is_told:
        writer.flush("COMMITTED", DEADLINE_SECONDS)  # no other state to wait for
    assert writer.write_durable({"a": 3}).wait(timeout=DEADLINE_SECONDS).level is Tier.LOCAL_DISK
    assert [row["a"] for row in server.rows()] == [1, 3]
    server.reach(Tier.COMMITTED)
    writer.flush("COMMITTED", DEADLINE_SECONDS)
    writer.close()


def test_a_loss_that_is_told_counts_whatever_else_is_told(server: ScriptedServer, client: Client) -> None:
    server.auto = Tier.LOCAL_DISK
    with client.writer(linger=0, max_batch_writes=1, reconnect=QUICK) as writer:
        gone, kept = writer.write({"a": 1}), writer.write_durable({"a": 2})
        server.lost.append((gone.lsn, gone.lsn))
        server.break_streams()
        with pytest.raises(WriteLost, match="LSN 1000 was lost"):
            gone.wait("COMMITTED", DEADLINE_SECONDS)
        assert (kept.error, kept.level) == (None, Tier.LOCAL_DISK)


def test_retaining_until_object_storage_survives_the_loss_of_a_disk(
    server: ScriptedServer, client: Client
) -> None:
    server.auto = Tier.LOCAL_DISK
    with client.writer(linger=0, reconnect=QUICK, retain="OBJECT_STORAGE") as writer:
        receipt = writer.write_durable({"a": 1})
        server.lose_disk()
        wait_until(lambda: receipt.lsn != 1000)
        server.reach(Tier.OBJECT_STORAGE)
        receipt.wait("OBJECT_STORAGE", DEADLINE_SECONDS)
    assert server.rows() == [{"a": 1}]


def test_a_write_that_was_committed_and_forgotten_meanwhile(server: ScriptedServer, client: Client) -> None:
    def commit_and_break(point: str, session: LiveSession) -> None:
        if point == "logged":
            server.on_message = lambda point, session: None
            for tier in Tier:
                server.watermarks[tier] = server.log[-1].lsn
            server.forget_committed()
            raise Break(point)

    server.on_message = commit_and_break
    with client.writer(linger=UNTIL_TOLD, reconnect=QUICK) as writer:
        receipts = [writer.write({"a": n}) for n in range(3)]
        writer.flush(timeout=DEADLINE_SECONDS)
        assert [receipt.lsn for receipt in receipts] == [0, 0, 0]
        assert receipts[0].wait("COMMITTED").level is Tier.COMMITTED
        assert receipts[0].snapshot_id is None
        assert writer.write_durable({"a": 3}).lsn == 1003
    assert [row["a"] for row in server.rows()] == [0, 1, 2, 3]


@pytest.mark.parametrize("unsure_until", [1, 2, 3], ids=["before", "in part", "all"])
def test_a_write_is_not_taken_for_committed_that_may_have_been_given_up(
    server: ScriptedServer, client: Client, unsure_until: int
) -> None:
    def commit_and_break(point: str, session: LiveSession) -> None:
        if point == "logged":
            server.on_message = lambda point, session: None
            for tier in Tier:
                server.watermarks[tier] = server.log[-1].lsn
            server.forget_committed()
            server.unsure_until = unsure_until
            raise Break(point)

    with client.writer("orders", linger=UNTIL_TOLD, reconnect=QUICK) as writer:
        safe = writer.write_durable({"a": 0}, "COMMITTED", DEADLINE_SECONDS)
        server.on_message = commit_and_break
        receipts = [writer.write({"a": n}) for n in (1, 2)]
        if unsure_until == 1:
            writer.flush(timeout=DEADLINE_SECONDS)
            assert [receipt.lsn for receipt in receipts] == [0, 0]
        else:
            said = rf"cannot be told whether {unsure_until - 1} of the writes .* 'orders' were committed"
            with pytest.raises(ConfigError, match=said) as raised:
                writer.flush(timeout=DEADLINE_SECONDS)
            assert [receipt.error for receipt in receipts] == [raised.value] * 2
        assert safe.error is None


def test_what_is_reported_with_its_lsn_is_in_no_doubt(server: ScriptedServer, client: Client) -> None:
    server.unsure_until = 100
    with client.writer(linger=UNTIL_TOLD, reconnect=QUICK) as writer:
        break_once(server, "logged")
        receipts = [writer.write({"a": n}) for n in range(3)]
        writer.flush(timeout=DEADLINE_SECONDS)
        assert [receipt.lsn for receipt in receipts] == [1000, 1001, 1002]


def test_what_is_committed_is_not_sent_again_to_a_server_that_forgot_the_producer(
    server: ScriptedServer, client: Client
) -> None:
    server.auto = Tier.MEMORY
    with client.writer(linger=0, reconnect=QUICK) as writer:
        receipt = writer.write({"a": 1})
        assert receipt.lsn == 1000
        with server.lock:
            server.watermarks = [1000] * 4
            server.log.clear()
            server.break_streams()
        receipt.wait("COMMITTED", DEADLINE_SECONDS)
        assert server.log == []
        server.auto = Tier.LOCAL_DISK


def forget_what_was_just_logged(server: ScriptedServer) -> None:
    def forget(point: str, session: LiveSession) -> None:
        if point == "logged":
            server.on_message = lambda point, session: None
            server.forget_producers()
            raise Break(point)

    server.on_message = forget


def test_what_a_server_may_have_and_forgot_is_not_written_twice(
    server: ScriptedServer, client: Client
) -> None:
    writer = client.writer("orders", producer="till", linger=UNTIL_TOLD, reconnect=QUICK)
    safe = writer.write_durable({"a": 0}, "COMMITTED", DEADLINE_SECONDS)
    forget_what_was_just_logged(server)
    receipts = [writer.write({"a": n}) for n in (1, 2)]
    with pytest.raises(
        UnknownProducer, match=r"forgotten producer 'till', and 2 of the writes .* 'orders'"
    ) as raised:
        writer.flush(timeout=DEADLINE_SECONDS)
    assert (raised.value.producer, raised.value.collection, raised.value.first_seq) == ("till", "orders", 2)
    assert [receipt.error for receipt in receipts] == [raised.value] * 2
    assert safe.error is None
    with pytest.raises(UnknownProducer):
        writer.write({"a": 3})
    writer.close()
    assert [row["a"] for row in server.rows()] == [0, 1, 2]
    with client.writer("orders", producer="till", reconnect=QUICK) as another:
        another.write_durable({"a": 3})
    assert [row["a"] for row in server.rows()] == [0, 1, 2, 3]


def test_a_writer_that_is_told_to_sends_again_what_a_server_may_have(
    server: ScriptedServer, client: Client
) -> None:
    with client.writer(linger=0, reconnect=QUICK, on_forgotten="resend") as writer:
        forget_what_was_just_logged(server)
        writer.write_durable({"a": 1}, timeout=DEADLINE_SECONDS)
    assert [row["a"] for row in server.rows()] == [1, 1]


def test_a_writer_that_was_forgotten_goes_on_if_nothing_is_in_doubt(
    server: ScriptedServer, client: Client
) -> None:
    with client.writer(linger=0, reconnect=QUICK) as writer:
        writer.write_durable({"a": 1}, "COMMITTED")
        server.next_lsn += 100  # of others
        server.proxy.target = NOBODY
        server.forget_producers()
        wait_until(lambda: writer.trouble is not None)  # or it would send on the stream that is broken
        server.proxy.target = server.port
        assert writer.write_durable({"a": 2}, timeout=DEADLINE_SECONDS).lsn == 1101
    assert [logged.seq for logged in server.log] == [1, 2]


def test_a_server_that_cannot_tell_whom_it_forgot_is_told_nothing_that_it_does_not_know(
    server: ScriptedServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older one, which refuses options that it does not know."""
    monkeypatch.setattr(server, "forgotten_lsn", None)
    with client.writer(linger=0, reconnect=QUICK) as writer:
        writer.write_durable({"a": 1})
        server.break_streams()
        writer.write_durable({"a": 2}, timeout=DEADLINE_SECONDS)
    assert not any("first_seq" in options for options in server.options)


def test_a_server_that_is_not_there_at_first(server: ScriptedServer) -> None:
    proxy = Proxy(NOBODY)
    with headrace.connect(f"127.0.0.1:{proxy.port}") as client:
        writer = client.writer(reconnect=QUICK)
        receipt = writer.write({"a": 1})
        wait_until(lambda: writer.trouble)
        proxy.target = server.port
        receipt.wait(timeout=DEADLINE_SECONDS)
    proxy.close()


def test_giving_up() -> None:
    client = headrace.connect(f"127.0.0.1:{NOBODY}")
    writer = client.writer(reconnect=Reconnect(first_pause=0.001, longest_pause=0.01, give_up_after=0.05))
    receipt = writer.write({"a": 1})
    with pytest.raises(ServerUnavailable, match="cannot be reached"):
        receipt.wait(timeout=DEADLINE_SECONDS)
    with pytest.raises(ServerUnavailable, match="cannot be reached"):
        writer.write({"a": 2})
    writer.close()  # what was seen is not said again
    client.close()


def test_nothing_more_is_taken_while_a_writer_closes(server: ScriptedServer, client: Client) -> None:
    server.proxy.target = NOBODY
    writer = client.writer(linger=0, reconnect=QUICK)
    writer.write({"a": 1})
    wait_until(lambda: writer.trouble)
    writer.write({"a": 2})  # which waits behind the first, and could be joined by others
    closing = threading.Thread(target=writer.close)
    closing.start()
    wait_until(lambda: writer.is_closed)
    with pytest.raises(Closed, match="the writer is closed"):
        writer.write({"a": 3})
    assert closing.is_alive()
    server.proxy.target = server.port
    closing.join(DEADLINE_SECONDS)
    assert [row["a"] for row in server.rows()] == [1, 2]


def test_transient_refusals_are_waited_out(server: ScriptedServer, client: Client) -> None:
    server.refuse_open = [StorageFull("the disk is full"), ServerUnavailable("shutting down")]
    with client.writer(reconnect=QUICK) as writer:
        writer.write_durable({"a": 1}, timeout=DEADLINE_SECONDS)
        assert writer.trouble is None
    assert server.rows() == [{"a": 1}]


def test_a_silent_server_is_taken_for_dead(server: ScriptedServer, client: Client) -> None:
    server.is_mute = True
    server.auto = None
    with client.writer(linger=0, reconnect=replace(QUICK, ack_timeout=0.05)) as writer:
        receipt = writer.write({"a": 1})
        wait_until(lambda: len(server.options) > 1)
        be_patient(writer)
        server.is_mute = False
        server.auto = Tier.LOCAL_DISK
        server.reach(Tier.LOCAL_DISK)
        receipt.wait(timeout=DEADLINE_SECONDS)
    assert len(server.log) == 1


def test_a_server_that_opens_no_session(server: ScriptedServer, client: Client) -> None:
    opened, server._open = server._open, lambda session, said: None  # type: ignore[method-assign]
    with client.writer(reconnect=replace(QUICK, open_timeout=0.02)) as writer:
        receipt = writer.write({"a": 1})
        wait_until(lambda: "did not open a session" in str(writer.trouble))
        be_patient(writer)
        server._open = opened  # type: ignore[method-assign]
        receipt.wait(timeout=DEADLINE_SECONDS)
    assert len(server.log) == 1


def test_a_stream_that_ends_with_all_said_is_opened_again_with_the_next_write(
    server: ScriptedServer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with client.writer(reconnect=QUICK) as writer:
        server.end_after = 1
        writer.write_durable({"a": 1}).wait("COMMITTED")
        wait_until(lambda: not server.sessions)
        server.end_after = 0
        wait_until(lambda: writer._sender._stream is None)
        writer.write_durable({"a": 2}, timeout=DEADLINE_SECONDS)
    assert "reconnects" not in caplog.text
    assert len(server.options) == 2
    assert [row["a"] for row in server.rows()] == [1, 2]


def test_a_producer_that_somebody_else_uses_too(server: ScriptedServer, client: Client) -> None:
    mine, other = client.writer(producer="me", reconnect=QUICK), client.writer(producer="me")
    receipt = mine.write_durable({"a": 1})
    other.write_durable({"a": 2})
    with pytest.raises(Fenced):
        mine.write_durable({"a": 3}, timeout=DEADLINE_SECONDS)
    assert receipt.wait().lsn == 1000
    mine.close()
    other.close()
    assert [row["a"] for row in server.rows()] == [1, 2]


def test_writes_of_somebody_else_are_not_taken_for_ours(server: ScriptedServer, client: Client) -> None:
    writer = client.writer(producer="me", reconnect=QUICK)
    writer.write_durable({"a": 1}).wait("COMMITTED")
    with server.lock:
        server.log.extend(Logged("me", seq, 1000 + seq, [{"a": "another's"}]) for seq in range(2, 9))
        server.next_lsn += 10
        server.break_streams()
    with pytest.raises(Fenced, match="another writer uses this producer's id"):
        writer.write_durable({"a": 2}, timeout=DEADLINE_SECONDS)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_breaks_each_write_is_there_once_and_in_order(
    server: ScriptedServer, client: Client, seed: int
) -> None:
    chances = random.Random(seed)
    server.auto = chances.choice([Tier.LOCAL_DISK, Tier.OBJECT_STORAGE, Tier.COMMITTED])
    break_at_random(server, chances, times=12)
    writers = [
        client.writer(
            linger=chances.choice([0, 0.0005, 0.002]),
            max_batch_writes=chances.choice([1, 5, 50]),
            reconnect=QUICK,
        )
        for _ in range(2)
    ]
    receipts: dict[int, list[Receipt]] = {}
    called: Counter[tuple[int, int]] = Counter()

    def count(key: tuple[int, int], _: Receipt) -> None:
        called[key] += 1

    def write(number: int, writer: Writer) -> None:
        own = random.Random(seed * 10 + number)
        receipts[number] = []
        for n in range(150):
            rows: list[dict[str, Any]] = [{"w": number, "n": n}] * own.choice([1, 1, 3])
            if own.random() < 0.02:
                rows = [{**row, "x": "another schema"} for row in rows]
            receipt = writer.write(pa.RecordBatch.from_pylist(rows))
            receipt.on("LOCAL_DISK", partial(count, (number, n)))
            receipts[number].append(receipt)
            if own.random() < 0.05:
                receipt.wait(timeout=DEADLINE_SECONDS)

    threads = [threading.Thread(target=write, args=each) for each in enumerate(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    for writer in writers:
        writer.close(DEADLINE_SECONDS)
    by_lsn = {logged.lsn: logged for logged in server.log}
    assert len(by_lsn) == len(server.log) == 300
    for number, written in receipts.items():
        mine = [by_lsn[receipt.lsn] for receipt in written]
        assert [logged.rows[0]["n"] for logged in mine] == list(range(150))
        assert {logged.rows[0]["w"] for logged in mine} == {number}
        assert all(receipt.error is None for receipt in written)
    assert called == Counter({(number, n): 1 for number in range(2) for n in range(150)})
