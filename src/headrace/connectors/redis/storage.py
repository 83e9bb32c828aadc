"""Converts rows to commands: as documents in JSON, as hashes, or as entries of a stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import pyarrow as pa

from headrace.connectors.redis.config import RedisResource
from headrace.connectors.redis.session import Command
from headrace.connectors.redis.texts import redis_keys, texts
from headrace.model.collections import DOCUMENT_FIELD
from headrace.model.materializations import Binding


class Storage(ABC):
    """A binding's representation in Redis."""

    def __init__(self, binding: Binding, resource: RedisResource) -> None:
        self.binding = binding
        self.resource = resource

    @abstractmethod
    def stores(self, rows: pa.RecordBatch) -> Iterator[list[Command]]:
        """Returns for each row, of keys, values and the document, the commands that store it."""

    def keys(self, rows: pa.RecordBatch) -> list[str]:
        """Returns the keys in Redis for rows, which may have more columns than the key's."""
        names = [field.name for field in self.binding.keys]
        return redis_keys(self.resource.prefix, rows.select(names))

    def _entries(self, rows: pa.RecordBatch) -> Iterator[list[str]]:
        """Yields for each row the names and values of its non-null columns, one after the other."""
        names = rows.schema.names
        columns = [texts(column).to_pylist() for column in rows.columns]
        for values in zip(*columns, strict=True):
            yield [part for pair in zip(names, values, strict=True) if pair[1] is not None for part in pair]


class DocumentStorage(Storage):
    """Stores one document per key, which can be loaded again."""

    @abstractmethod
    def size(self, key: str) -> Command:
        """Returns the command that asks for the bytes of a document, which are none if it does not exist."""

    @abstractmethod
    def loads(self, keys: Sequence[str]) -> list[Command]:
        """Returns the commands that ask for documents."""

    @abstractmethod
    def documents(self, answers: Sequence[list[bytes | None] | bytes | None]) -> list[bytes | None]:
        """Returns the documents in the responses to `loads`, one for each key."""


class JsonStorage(DocumentStorage):
    def stores(self, rows: pa.RecordBatch) -> Iterator[list[Command]]:
        expiry = () if self.resource.ttl is None else ("EX", self.resource.ttl)
        for key, document in zip(self.keys(rows), rows[DOCUMENT_FIELD].to_pylist(), strict=True):
            yield [("SET", key, document, *expiry)]

    def size(self, key: str) -> Command:
        return ("STRLEN", key)

    def loads(self, keys: Sequence[str]) -> list[Command]:
        return [("MGET", *keys)]

    def documents(self, answers: Sequence[list[bytes | None] | bytes | None]) -> list[bytes | None]:
        (documents,) = answers
        assert isinstance(documents, list)
        return documents


class HashStorage(DocumentStorage):
    def stores(self, rows: pa.RecordBatch) -> Iterator[list[Command]]:
        for key, entry in zip(self.keys(rows), self._entries(rows), strict=True):
            # Removed first, or a field that is null now would keep its value.
            commands: list[Command] = [("DEL", key), ("HSET", key, *entry)]
            if self.resource.ttl is not None:
                commands.append(("EXPIRE", key, self.resource.ttl))
            yield commands

    def size(self, key: str) -> Command:
        return ("HSTRLEN", key, DOCUMENT_FIELD)

    def loads(self, keys: Sequence[str]) -> list[Command]:
        return [("HGET", key, DOCUMENT_FIELD) for key in keys]

    def documents(self, answers: Sequence[list[bytes | None] | bytes | None]) -> list[bytes | None]:
        return [answer for answer in answers if not isinstance(answer, list)]


class StreamStorage(Storage):
    """Stores every delta update as a separate entry."""

    def stores(self, rows: pa.RecordBatch) -> Iterator[list[Command]]:
        chosen = rows.select([DOCUMENT_FIELD]) if self.resource.format == "json" else rows
        for entry in self._entries(chosen):
            yield [("XADD", self.resource.prefix, "*", *entry)]


def storage_of(binding: Binding, resource: RedisResource) -> Storage:
    if binding.delta_updates:
        return StreamStorage(binding, resource)
    return JsonStorage(binding, resource) if resource.format == "json" else HashStorage(binding, resource)
