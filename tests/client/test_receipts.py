"""Receipts: each write's LSN, level, callbacks and errors, over a real stream."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from headrace.client import Client, Receipt, Tier
from headrace.errors import Closed, ConfigError, HeadraceError, WriteTimeout
from tests.client.conftest import UNTIL_TOLD
from tests.client.scripted_server import ScriptedServer
from tests.waiting import DEADLINE_SECONDS, wait_until


def test_a_write_gets_its_lsn_and_passes_every_tier(server: ScriptedServer, client: Client) -> None:
    server.auto = None
    with client.writer() as writer:
        receipt = writer.write({"a": 1})
        assert receipt.lsn == 1000
        assert receipt.level is Tier.MEMORY
        assert receipt.error is None
        for tier in [Tier.LOCAL_DISK, Tier.OBJECT_STORAGE]:
            server.reach(tier)
            assert receipt.wait(tier) is receipt
            assert receipt.level is tier
            assert receipt.snapshot_id is None
        server.reach(Tier.COMMITTED)
        assert receipt.wait("committed").snapshot_id == 7001
        assert writer.watermarks == dict.fromkeys(Tier, 1000)
        assert repr(receipt) == "<Receipt lsn=1000 level=COMMITTED>"


def test_a_tier_that_is_not_reached_is_not_claimed(server: ScriptedServer, client: Client) -> None:
    server.auto = None
    with client.writer() as writer:
        first, second = writer.write({"a": 1}), writer.write({"a": 2})
        assert second.lsn == first.lsn + 1
        server.reach(Tier.LOCAL_DISK, first.lsn)
        first.wait()
        assert second.level is Tier.MEMORY
        with pytest.raises(WriteTimeout, match="did not reach LOCAL_DISK"):
            second.wait(timeout=0.01)
        server.reach(Tier.LOCAL_DISK)


def test_each_write_of_one_message_has_its_own_lsn(server: ScriptedServer, client: Client) -> None:
    with client.writer(linger=UNTIL_TOLD) as writer:
        receipts = [writer.write([{"a": n}, {"a": -n}]) for n in range(50)]
        writer.flush()
        assert [receipt.lsn for receipt in receipts] == list(range(1000, 1050))
    assert server.message_sizes == [50]
    assert [logged.rows for logged in server.log] == [[{"a": n}, {"a": -n}] for n in range(50)]


def test_an_unknown_level_is_named(client: Client) -> None:
    with client.writer() as writer:
        receipt = writer.write({"a": 1})
        for attempt in (receipt.wait, writer.flush, lambda level: receipt.on(level, print)):
            with pytest.raises(ConfigError, match="'DISK' is not a durability level"):
                attempt("DISK")


def test_callbacks_run_when_their_tier_is_reached(server: ScriptedServer, client: Client) -> None:
    server.auto = Tier.LOCAL_DISK
    called: list[tuple[str, Receipt, str]] = []

    def note(name: str, receipt: Receipt) -> None:
        called.append((name, receipt, threading.current_thread().name))

    with client.writer() as writer:
        receipts = [writer.write({"a": n}) for n in range(3)]
        for receipt in reversed(receipts):
            receipt.on("OBJECT_STORAGE", lambda receipt: note("stored", receipt))
        receipts[2].wait("LOCAL_DISK")
        assert called == []
        server.reach(Tier.OBJECT_STORAGE, receipts[1].lsn)
        wait_until(lambda: len(called) == 2)
        assert called == [("stored", receipt, "headrace-acks") for receipt in receipts[:2]]
        receipts[0].on("LOCAL_DISK", lambda receipt: note("at once", receipt))
        assert called[2] == ("at once", receipts[0], threading.current_thread().name)
        server.reach(Tier.OBJECT_STORAGE)
    assert len(called) == 4


def test_close_waits_for_callbacks(server: ScriptedServer, client: Client) -> None:
    server.auto = Tier.LOCAL_DISK
    called = threading.Event()
    writer = client.writer()
    receipt = writer.write({"a": 1}).on("COMMITTED", lambda _: called.set())
    receipt.wait()
    with pytest.raises(WriteTimeout, match="not all callbacks"):
        writer.close(timeout=0.01)
    other = client.writer()
    other.write_durable({"a": 1}).on("COMMITTED", lambda _: called.set())
    closing = threading.Thread(target=other.close)
    closing.start()
    server.reach(Tier.COMMITTED)
    closing.join(DEADLINE_SECONDS)
    assert called.is_set()


def test_a_callback_that_fails_harms_nobody(
    server: ScriptedServer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    called = threading.Event()

    def fails(receipt: Receipt) -> None:
        raise ValueError("not today")

    with client.writer() as writer:
        writer.on_watermark(lambda tier, lsn: 1 / 0)
        writer.write({"a": 1}).on("LOCAL_DISK", fails).on("LOCAL_DISK", lambda _: called.set())
        assert called.wait(DEADLINE_SECONDS)
        writer.write_durable({"a": 2})
    assert "not today" in caplog.text
    assert "division by zero" in caplog.text


def test_a_callback_may_write_but_does_not_wait_for_room(server: ScriptedServer, client: Client) -> None:
    server.auto = Tier.MEMORY
    outcome: list[object] = []

    def write_more(receipt: Receipt) -> None:
        try:
            outcome.append(writer.write({"a": "x" * 1000}))
        except HeadraceError as error:
            outcome.append(type(error).__name__)

    writer = client.writer(max_buffer=1500, linger=0)
    writer.write({"a": "x" * 1000}).on("MEMORY", write_more)
    wait_until(lambda: outcome)
    assert outcome == ["BufferFull"]
    server.reach(Tier.LOCAL_DISK)
    writer.close()


def test_a_callback_that_waits_for_its_own_thread_is_told_so(server: ScriptedServer, client: Client) -> None:
    server.auto = Tier.LOCAL_DISK
    outcome: list[str] = []

    def wait(receipt: Receipt) -> None:
        for attempt in (lambda: receipt.wait("COMMITTED"), lambda: writer.flush("COMMITTED")):
            try:
                attempt()
            except ConfigError as error:
                outcome.append(str(error))

    with client.writer() as writer:
        receipt = writer.write({"a": 1}).on("LOCAL_DISK", wait)
        wait_until(lambda: len(outcome) == 2)
        assert "a callback cannot wait for it" in outcome[0]
        server.reach(Tier.COMMITTED)
        # At once, on this thread: here it may wait.
        receipt.on("LOCAL_DISK", lambda receipt: receipt.wait("COMMITTED"))
    assert len(outcome) == 2


def test_the_last_word_on_a_write_of_a_closed_writer(server: ScriptedServer, client: Client) -> None:
    server.auto = Tier.LOCAL_DISK
    told: list[HeadraceError] = []
    with client.writer() as writer:
        receipt = writer.write({"a": 1})
    assert receipt.wait("LOCAL_DISK").error is None
    with pytest.raises(Closed, match="before it heard more"):
        receipt.wait("COMMITTED")
    receipt.on("COMMITTED", print, on_error=lambda _, error: told.append(error))
    assert [type(error) for error in told] == [Closed]
    with pytest.raises(Closed, match="the writer is closed"):
        writer.write({"a": 2})
    writer.close()


def test_awaiting(server: ScriptedServer, client: Client) -> None:
    server.auto = Tier.LOCAL_DISK

    async def run() -> None:
        with client.writer() as writer:
            receipts = [writer.write({"a": n}) for n in range(20)]
            assert await asyncio.gather(*(receipt.reached("LOCAL_DISK") for receipt in receipts)) == receipts
            assert await receipts[0] is receipts[0]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(receipts[0].reached("COMMITTED"), 0.01)
            # Who stopped waiting is forgotten: close has nobody to wait for.
        with pytest.raises(Closed):
            await receipts[0].reached("COMMITTED")

    asyncio.run(run())


def test_an_awaiter_whose_loop_is_gone(
    server: ScriptedServer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    server.auto = Tier.LOCAL_DISK
    writer = client.writer()
    receipt = writer.write_durable({"a": 1})
    loop = asyncio.new_event_loop()
    task: Any = loop.create_task(receipt.reached("COMMITTED"))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    server.reach(Tier.COMMITTED)
    receipt.wait("COMMITTED")
    writer.close()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    task._log_destroy_pending = False
    task.get_coro().close()


def test_watermarks_for_bulk(server: ScriptedServer, client: Client) -> None:
    server.auto = Tier.LOCAL_DISK
    heard: list[tuple[Tier, int]] = []
    with client.writer() as writer:
        writer.on_watermark(lambda tier, lsn: heard.append((tier, lsn)))
        for n in range(10):
            last = writer.write({"a": n})
        assert writer.wait_watermark("LOCAL_DISK", last.lsn) == 1009
        with pytest.raises(WriteTimeout, match="watermark of COMMITTED did not reach 1009"):
            writer.wait_watermark("COMMITTED", last.lsn, timeout=0.01)
        server.reach(Tier.COMMITTED)
        assert writer.wait_watermark("COMMITTED", last.lsn) == 1009
        wait_until(lambda: (Tier.COMMITTED, 1009) in heard)


def test_throttling_is_told(server: ScriptedServer, client: Client) -> None:
    server.auto = Tier.MEMORY
    with client.writer() as writer:
        receipt = writer.write({"a": 1})
        assert receipt.lsn
        server.throttle("the disk is slow")
        wait_until(lambda: writer.throttled == "the disk is slow")
        with pytest.raises(WriteTimeout, match="holds back: the disk is slow"):
            receipt.wait(timeout=0.01)
        server.throttle(None)
        wait_until(lambda: writer.throttled is None)
        server.reach(Tier.LOCAL_DISK)
