"""A stock Flight client: nothing of ours, and nothing hidden."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
from pyarrow import flight

from tests.waiting import DEADLINE_SECONDS, wait_until

Ack = tuple[int, str, bool]


class Stream:
    """One DoExchange. Acknowledgements are read on a thread, so that nothing waits for anything."""

    def __init__(self, url: str, collection: str | None = "orders", *, path: list[str] | None = None) -> None:
        self._client = flight.connect(url)
        descriptor = flight.FlightDescriptor.for_path(
            *(path or ["streaming_write", *filter(None, [collection])])
        )
        self.writer, self.reader = self._client.do_exchange(descriptor)
        self.schema: pa.Schema | None = None
        self.acks: list[Ack] = []
        self.messages: list[dict[str, Any]] = []
        self.error: Exception | None = None
        self._began = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def options(self, **options: Any) -> Self:
        """Alone, before the first batch."""
        self.begin(pa.schema([("id", pa.int64())]))
        self.writer.write_metadata(json.dumps(options).encode())
        return self

    def begin(self, schema: pa.Schema) -> None:
        if not self._began:
            self.writer.begin(schema)
            self._began = True

    def send(self, batch: pa.RecordBatch, **metadata: Any) -> Self:
        self.begin(batch.schema)
        if metadata:
            self.writer.write_with_metadata(batch, json.dumps(metadata).encode())
        else:
            self.writer.write_batch(batch)
        return self

    def send_ids(self, *ids: int, **metadata: Any) -> Self:
        return self.send(pa.record_batch({"id": pa.array(ids, pa.int64())}), **metadata)

    def lsns(self, level: str) -> list[int]:
        return [lsn for lsn, of, _ in list(self.acks) if of == level]

    def await_count(self, level: str, count: int) -> list[int]:
        wait_until(lambda: len(self.lsns(level)) >= count or self.error, f"{count} writes at {level}")
        if self.error:
            raise self.error
        return self.lsns(level)

    def await_assigned(self, seqs: Iterable[int]) -> dict[int, int]:
        """Returns the LSN that each of a producer's writes got, by seq; 0 if the server has forgotten it."""

        def assigned() -> dict[int, int]:
            runs = (run for message in list(self.messages) for run in message.get("assigned", ()))
            return {seq + at: lsn + at if lsn else 0 for seq, lsn, count in runs for at in range(count)}

        wanted = set(seqs)
        wait_until(lambda: wanted <= assigned().keys() or self.error, "an LSN for each write")
        if self.error:
            raise self.error
        return assigned()

    def said(self, key: str) -> Any:
        """The first thing that the server said under a key."""
        wait_until(lambda: any(key in message for message in self.messages) or self.error, f"a message {key}")
        return next(message[key] for message in self.messages if key in message)

    def done(self) -> Exception | None:
        """Done writing; what the stream ended with."""
        self.writer.done_writing()
        return self.join()

    def join(self) -> Exception | None:
        self._thread.join(DEADLINE_SECONDS)
        assert not self._thread.is_alive()
        return self.error

    def hang_up(self) -> None:
        self.reader.cancel()
        self._thread.join(DEADLINE_SECONDS)
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.hang_up()

    def _read(self) -> None:
        try:
            self.schema = self.reader.schema
            while True:
                chunk = self.reader.read_chunk()
                if chunk.app_metadata is not None:
                    self.messages.append(json.loads(chunk.app_metadata.to_pybytes()))
                if chunk.data is not None:
                    rows = chunk.data.select(range(3)).to_pydict()
                    self.acks += zip(*rows.values(), strict=True)
        except StopIteration:
            pass
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            self.error = error


def our_error(error: Exception | None) -> dict[str, Any]:
    """What the server says for programs."""
    assert isinstance(error, flight.FlightError), error
    said: dict[str, Any] = json.loads(error.extra_info)
    return said
