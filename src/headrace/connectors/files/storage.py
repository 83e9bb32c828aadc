"""What the connector needs of a store, whatever kind it is."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from headrace.protocol.messages import Durability


@dataclass(frozen=True)
class StoredObject:
    name: str
    """The last part of its path."""
    modified: datetime


class Sink(io.RawIOBase):
    """An object while it is written; it is complete, and outlives the machine, once `close` has returned."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size


class Storage(ABC):
    """A store of objects by path. What it fails with are `headrace.errors`, but for what methods name.

    What a method has done outlives the machine when it returns.
    """

    durability: Durability
    """Says what its objects survive."""

    def prepare(self, folders: Iterable[str]) -> None:  # noqa: B027 - most stores have no folders
        """Makes folders, where a store has such."""

    @abstractmethod
    def write(self, path: str) -> Sink:
        """A new object, of any size, in bounded memory; its name must be new."""

    @abstractmethod
    def create(self, path: str, data: bytes) -> bool:
        """Puts a small object, unless there is one: then False."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """A small object that is there."""

    @abstractmethod
    def size(self, path: str) -> int | None:
        """How many bytes an object has; None if it is not there."""

    @abstractmethod
    def publish(self, source: str, target: str, size: int) -> bool:
        """Copies an object of this size so that readers find all of it or nothing, also if it is done twice.

        False if the source is not there.
        """

    @abstractmethod
    def objects(self, folder: str) -> Iterator[StoredObject]:
        """The objects right under a folder, in any order; none if the folder is not there."""

    @abstractmethod
    def delete(self, paths: Iterable[str]) -> None:
        """Removes those of the objects that are there."""

    def holds_any(self, folder: str) -> bool:
        return next(self.objects(folder), None) is not None
