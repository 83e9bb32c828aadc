"""What a server refuses: one message, or the writer."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from headrace.client import Client, Receipt, Tier
from headrace.errors import (
    ConfigError,
    Fenced,
    HeadraceError,
    SchemaError,
    Unauthenticated,
    Unauthorized,
)
from tests.client.conftest import QUICK, UNTIL_TOLD
from tests.client.scripted_server import ScriptedServer
from tests.waiting import DEADLINE_SECONDS, wait_until


def refuse_columns(server: ScriptedServer, *names: str) -> None:
    def refuse(batch: pa.RecordBatch) -> HeadraceError | None:
        wrong = [name for name in batch.schema.names if name in names]
        return SchemaError(f"there is no column {wrong[0]}") if wrong else None

    server.refuse = refuse


def test_a_schema_error_is_the_message_s_own(server: ScriptedServer, client: Client) -> None:
    server.auto = Tier.LOCAL_DISK
    refuse_columns(server, "b")
    with client.writer(linger=UNTIL_TOLD, reconnect=QUICK) as writer:
        before = writer.write({"a": 1})
        wrong = [writer.write({"b": n}) for n in range(3)]
        after = writer.write({"a": 2})
        writer.send_now()
        for receipt in wrong:
            with pytest.raises(SchemaError, match="no column b"):
                receipt.wait(timeout=DEADLINE_SECONDS)
            with pytest.raises(SchemaError, match="no column b"):
                _ = receipt.lsn
            assert isinstance(receipt.error, SchemaError)
            assert receipt.level is None
        after.wait(timeout=DEADLINE_SECONDS)
        assert (before.lsn, after.lsn) == (1000, 1001)
        server.reach(Tier.COMMITTED)
        before.wait("COMMITTED", DEADLINE_SECONDS)
        # A receipt has told of it, so neither this nor the end of the block do.
        writer.flush("COMMITTED")
    assert server.rows() == [{"a": 1}, {"a": 2}]


def test_the_very_first_write_can_be_refused(server: ScriptedServer, client: Client) -> None:
    refuse_columns(server, "b")
    with client.writer(reconnect=QUICK) as writer:
        with pytest.raises(SchemaError):
            writer.write_durable({"b": 1}, timeout=DEADLINE_SECONDS)
        writer.write_durable({"a": 1}, timeout=DEADLINE_SECONDS)


def test_a_schema_can_be_refused_when_the_stream_opens(server: ScriptedServer, client: Client) -> None:
    with client.writer(reconnect=QUICK) as writer:
        writer.write_durable({"a": 1})
        server.refuse_open = [SchemaError("there is no column b")]
        with pytest.raises(SchemaError):
            writer.write_durable({"b": 1}, timeout=DEADLINE_SECONDS)
        assert writer.write_durable({"a": 2}, timeout=DEADLINE_SECONDS).lsn == 1001


def test_a_flush_tells_what_no_receipt_has_told(server: ScriptedServer, client: Client) -> None:
    refuse_columns(server, "b", "c")
    writer = client.writer(reconnect=QUICK)
    writer.write({"b": 1})
    with pytest.raises(SchemaError, match="no column b"):
        writer.flush(timeout=DEADLINE_SECONDS)
    writer.flush(timeout=DEADLINE_SECONDS)
    writer.write({"c": 1})
    with pytest.raises(SchemaError, match="no column c"):
        writer.close()


def test_a_callback_without_an_error_handler_is_nobody_told(server: ScriptedServer, client: Client) -> None:
    refuse_columns(server, "b")
    writer = client.writer(reconnect=QUICK)
    writer.write({"b": 1}).on("LOCAL_DISK", print)
    with pytest.raises(SchemaError):
        writer.close(DEADLINE_SECONDS)


def test_a_callback_hears_of_a_refusal(server: ScriptedServer, client: Client) -> None:
    server.auto = Tier.LOCAL_DISK
    refuse_columns(server, "b")
    heard: list[tuple[Receipt, HeadraceError]] = []
    with client.writer(reconnect=QUICK) as writer:
        good = writer.write({"a": 1}).on("COMMITTED", print)
        # It waits behind the good one, which is not committed, and is told all the same.
        bad = writer.write({"b": 1})
        bad.on("COMMITTED", print, on_error=lambda receipt, error: heard.append((receipt, error)))
        wait_until(lambda: heard)
        assert heard[0][0] is bad
        assert isinstance(heard[0][1], SchemaError)
        assert good.error is None
        server.reach(Tier.COMMITTED)


def test_a_write_that_is_too_large_for_the_server(server: ScriptedServer, client: Client) -> None:
    server.refuse = lambda batch: ConfigError("more than 2 rows") if batch.num_rows > 2 else None
    with client.writer(linger=0, max_batch_writes=1, reconnect=QUICK) as writer:
        receipts = [writer.write([{"a": n}] * (3 if n == 2 else 1)) for n in range(5)]
        with pytest.raises(ConfigError, match="more than 2 rows"):
            receipts[2].wait(timeout=DEADLINE_SECONDS)
        receipts[4].wait(timeout=DEADLINE_SECONDS)
    assert [row["a"] for row in server.rows()] == [0, 1, 3, 4]


@pytest.mark.parametrize("error", [Unauthenticated("who?"), Unauthorized("no"), ConfigError("no such thing")])
def test_a_terminal_error_ends_the_writer(
    server: ScriptedServer, client: Client, error: HeadraceError
) -> None:
    server.refuse_open = [error]
    writer = client.writer(linger=UNTIL_TOLD)
    receipts = [writer.write({"a": n}) for n in range(3)]
    failed = threading.Event()
    receipts[1].on("COMMITTED", print, on_error=lambda receipt, error: failed.set())
    writer.send_now()
    for receipt in receipts:
        with pytest.raises(type(error), match=error.message):
            receipt.wait(timeout=DEADLINE_SECONDS)
        assert type(receipt.error) is type(error)
    assert failed.wait(DEADLINE_SECONDS)
    for attempt in (lambda: writer.write({"a": 9}), writer.flush):
        with pytest.raises(type(error), match=error.message):
            attempt()
    writer.close()
    assert server.log == []


def test_what_was_accepted_before_the_end_stands(server: ScriptedServer, client: Client) -> None:
    server.auto = Tier.LOCAL_DISK
    writer = client.writer(linger=0)
    receipt = writer.write_durable({"a": 1})
    server.refuse = lambda batch: Fenced("taken over")
    with pytest.raises(Fenced):
        writer.write_durable({"a": 2}, timeout=DEADLINE_SECONDS)
    assert receipt.wait("LOCAL_DISK").lsn == 1000
    assert receipt.level is Tier.LOCAL_DISK
    with pytest.raises(Fenced):
        receipt.wait("COMMITTED")  # nobody will tell
    writer.close()


def test_a_failure_that_nobody_saw_is_raised_at_the_end(server: ScriptedServer, client: Client) -> None:
    server.refuse_open = [Unauthorized("no")]
    writer = client.writer()
    writer.write({"a": 1})
    with pytest.raises(Unauthorized):
        writer.close()
    writer.close()


def test_an_error_in_the_block_comes_first(server: ScriptedServer, client: Client) -> None:
    refuse_columns(server, "b")

    def fail() -> None:
        with client.writer(reconnect=QUICK) as writer:
            writer.write({"a": 1})
            writer.write({"b": 1})
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        fail()
    assert server.rows() == [{"a": 1}]
