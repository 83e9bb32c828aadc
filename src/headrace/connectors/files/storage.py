"""The interface of a store, of whatever kind."""

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
    """The last part of the object's path."""
    modified: datetime


class Sink(io.RawIOBase):
    """An object that is being written. It is complete, and survives a crash of the machine, once `close` has
    returned."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size


class Storage(ABC):
    """A store of objects by path. It raises `headrace.errors`, except for errors that methods name.

    The effect of a method survives a crash of the machine when it returns.
    """

    durability: Durability
    """States what the store's objects survive."""

    def prepare(self, folders: Iterable[str]) -> None:  # noqa: B027 - most stores have no folders
        """Creates folders, if the store has folders."""

    @abstractmethod
    def write(self, path: str) -> Sink:
        """Opens a new object of any size, written in bounded memory; its name must be new."""

    @abstractmethod
    def create(self, path: str, data: bytes) -> bool:
        """Puts a small object, or returns False if one exists."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """Reads a small object that exists."""

    @abstractmethod
    def size(self, path: str) -> int | None:
        """Returns the object's size in bytes, or None if it does not exist."""

    @abstractmethod
    def publish(self, source: str, target: str, size: int) -> bool:
        """Copies an object of this size so that readers find all of it or nothing, even if it is copied
        twice.

        Returns False if the source does not exist.
        """

    @abstractmethod
    def objects(self, folder: str) -> Iterator[StoredObject]:
        """Yields the objects directly under a folder, in any order; none if the folder does not exist."""

    @abstractmethod
    def delete(self, paths: Iterable[str]) -> None:
        """Removes those of the objects that exist."""

    def holds_any(self, folder: str) -> bool:
        return next(self.objects(folder), None) is not None
