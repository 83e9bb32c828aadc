"""The client for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pyarrow as pa
import pytest

import headrace
from headrace.client import Tier
from headrace.errors import Closed, ConfigError, WriteTimeout
from tests.client.scripted_server import ScriptedServer
from tests.waiting import DEADLINE_SECONDS


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, DEADLINE_SECONDS))


def test_writing(server: ScriptedServer) -> None:
    async def work() -> None:
        async with await headrace.aio.connect(server.url) as client, client.writer("orders") as writer:
            receipts = [await writer.write({"a": n}) for n in range(10)]
            assert (await receipts[-1].reached("COMMITTED")).level is Tier.COMMITTED
            durable = await writer.write_durable({"a": 10})
            assert durable.level is not None
            assert durable.level >= Tier.LOCAL_DISK
            await writer.flush("COMMITTED")
            assert await writer.wait_watermark("COMMITTED", durable.lsn) >= durable.lsn
            assert writer.watermarks[Tier.COMMITTED] == durable.lsn
            assert (writer.throttled, writer.collection) == (None, "orders")

    run(work())
    assert [row["a"] for row in server.rows()] == list(range(11))


def test_a_full_buffer_lets_others_run(server: ScriptedServer) -> None:
    server.auto = Tier.MEMORY

    async def work() -> None:
        client = await headrace.aio.connect(server.url)
        async with client, client.writer(linger=0, max_buffer=5000) as writer:

            async def write() -> None:
                for _ in range(30):
                    await writer.write({"a": "x" * 1000})

            writing = asyncio.create_task(write())
            while len(server.log) < 4:
                await asyncio.sleep(0.001)
            assert not writing.done()
            server.auto = Tier.LOCAL_DISK
            server.reach(Tier.LOCAL_DISK)
            await writing

    run(work())
    assert len(server.log) == 30


def test_who_waits_for_room_hears_of_the_end(server: ScriptedServer) -> None:
    server.auto = Tier.MEMORY

    async def work() -> None:
        client = await headrace.aio.connect(server.url)
        writer = client.writer(linger=0, max_buffer=1000)
        await writer.write({"a": "x" * 900})
        waiting = asyncio.create_task(writer.write({"b": "x" * 900}))
        while not writer._writer._buffer.on_room:
            await asyncio.sleep(0)
        with pytest.raises(WriteTimeout):
            await writer.close(timeout=0.01)
        with pytest.raises(Closed):
            await waiting
        await client.close()

    run(work())


def test_the_other_calls(server: ScriptedServer) -> None:
    server.answers["list_collections"] = {"collections": []}

    async def work() -> None:
        async with await headrace.aio.connect(server.url) as client:
            assert (await client.health())["status"] == "ok"
            assert await client.collections() == []
            assert (await client.read("x")).num_rows == 1
            await client.create_collection("x", pa.schema([("a", pa.int64())]))
            await client.describe("x")
            await client.watermarks("x", [1])
            await client.flush("LOCAL_DISK", 1)

    run(work())
    assert [name for name, _ in server.actions][-2:] == ["watermarks", "flush"]


def test_errors(server: ScriptedServer) -> None:
    async def work() -> None:
        with pytest.raises(ConfigError):
            await headrace.aio.connect("http://x")
        async with await headrace.aio.connect(server.url) as client, client.writer() as writer:
            with pytest.raises(ConfigError):
                await writer.write([])
            await writer.write({"a": 1})
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        run(work())
    assert server.rows() == [{"a": 1}]
