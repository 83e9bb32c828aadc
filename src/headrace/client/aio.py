"""The client for asyncio. Only calls that may wait are awaited; the threads underneath are the same."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from headrace.client import client as blocking
from headrace.client.receipts import Receipt
from headrace.client.writer import EXIT_SECONDS, Writer
from headrace.errors import BufferFull, HeadraceError
from headrace.model.tiers import Tier


async def connect(
    url: str, *, token: str | None = None, tls_roots: str | Path | bytes | None = None
) -> AsyncClient:
    """Does the same as `headrace.connect`."""
    return AsyncClient(await asyncio.to_thread(blocking.connect, url, token=token, tls_roots=tls_roots))


class AsyncClient:
    """`Client` for asyncio."""

    def __init__(self, client: blocking.Client) -> None:
        self._client = client

    def writer(self, collection: str = "default", **options: Any) -> AsyncWriter:
        """Takes what `Client.writer` takes."""
        return AsyncWriter(self._client.writer(collection, **options))

    async def read(self, collection: str = "default", **options: Any) -> pa.Table:
        """Reads like `Client.read`, but returns everything at once."""
        return await asyncio.to_thread(lambda: self._client.read(collection, **options).read_all())

    async def collections(self) -> list[dict[str, Any]]:
        return await asyncio.to_thread(self._client.collections)

    async def create_collection(
        self,
        name: str,
        schema: pa.Schema | None = None,
        *,
        key: Sequence[str] | None = None,
        json_schema: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        return await asyncio.to_thread(
            self._client.create_collection, name, schema, key=key, json_schema=json_schema
        )

    async def describe(self, name: str) -> dict[str, Any]:
        return await asyncio.to_thread(self._client.describe, name)

    async def watermarks(
        self, collection: str | None = None, lsns: Sequence[int] | None = None
    ) -> dict[str, Any]:
        return await asyncio.to_thread(self._client.watermarks, collection, lsns)

    async def flush(self, level: str | Tier = Tier.COMMITTED, timeout: float | None = None) -> dict[str, Any]:
        return await asyncio.to_thread(self._client.flush, level, timeout)

    async def health(self) -> dict[str, Any]:
        return await asyncio.to_thread(self._client.health)

    async def close(self, timeout: float | None = None) -> None:
        await asyncio.to_thread(self._client.close, timeout)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _close(self.close, error)


class AsyncWriter:
    """`Writer` for asyncio. Its receipts are the same, and can be awaited."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.collection = writer.collection
        self.producer = writer.producer

    async def write(self, data: object) -> Receipt:
        """Writes like `Writer.write`; waits only for buffer space."""
        batch = self._writer.convert(data)
        while True:
            try:
                return self._writer.try_write(batch)
            except BufferFull:
                has_room = self._has_room()
            try:
                return self._writer.try_write(batch)  # there may have been space before we registered
            except BufferFull:
                await has_room.wait()

    async def write_durable(self, data: object, level: str | Tier = Tier.LOCAL_DISK) -> Receipt:
        """Writes, and returns when the write has reached the level. To limit the time, use
        `asyncio.timeout`."""
        tier = Tier.parse(level)
        receipt = await self.write(data)
        self._writer.send_now()
        return await receipt.reached(tier)

    async def flush(self, level: str | Tier = Tier.LOCAL_DISK, timeout: float | None = None) -> None:
        await asyncio.to_thread(self._writer.flush, level, timeout)

    async def wait_watermark(self, level: str | Tier, lsn: int, timeout: float | None = None) -> int:
        return await asyncio.to_thread(self._writer.wait_watermark, level, lsn, timeout)

    async def close(self, timeout: float | None = None) -> None:
        await asyncio.to_thread(self._writer.close, timeout)

    @property
    def watermarks(self) -> dict[Tier, int]:
        return self._writer.watermarks

    @property
    def throttled(self) -> str | None:
        return self._writer.throttled

    async def __aenter__(self) -> AsyncWriter:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _close(self.close, error)

    def _has_room(self) -> asyncio.Event:
        loop = asyncio.get_running_loop()
        has_room = asyncio.Event()

        def tell() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(has_room.set)

        self._writer.call_on_room(tell)
        return has_room


async def _close(close: Callable[[float | None], Any], error: BaseException | None) -> None:
    if error is None:
        await close(None)
        return
    with contextlib.suppress(HeadraceError):  # what went wrong matters more than what does because of it
        await close(EXIT_SECONDS)
