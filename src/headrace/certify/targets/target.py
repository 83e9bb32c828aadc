"""What a certification needs to know of a kind of endpoint."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar

from headrace.certify.documents import Document
from headrace.certify.proxy import Proxy

VIEW, APPEND = "view", "append"


SAVED, LATER, ANEW = COPIES = ("saved", "later", "anew")
"""Copies of what a lane has: of its first epochs, of before it was restored, and of what came of it then."""


@dataclass(frozen=True)
class Place:
    """Where a lane goes, as a materialization and its one binding say it in `headrace.yaml`."""

    materialization: Mapping[str, Any]
    """connector and config, or sinks."""
    binding: Mapping[str, Any]
    """resource, or sinks."""


@dataclass(frozen=True)
class Rows:
    """What an independent reader sees now."""

    documents: list[Document] = field(default_factory=list)
    is_view: bool = True
    """One for each key; else what each epoch appended, in the order of epochs."""


class Target(ABC):
    """An endpoint in which each lane has a table, folder or topic of its own.

    A lane is one materialization of a certification; its name has lower-case letters, digits and hyphens.
    """

    name: str
    """As in the matrix, and in the names of lanes."""
    is_atomic: ClassVar[bool] = True
    """Whether readers see an epoch whole or not at all, as documented."""
    is_read_beside: ClassVar[bool] = True
    """Whether it can be read while a pipeline writes to it."""
    commits_in_tasks: ClassVar[bool] = False
    """Whether it commits an epoch with its checkpoint, before that is decided; known of our own."""
    is_loaded: ClassVar[bool] = True
    """Whether a connector is asked for what it has, so that rows are reduced with it."""
    can_restore: bool = False
    """Whether `save` and `restore` work."""
    can_roll_back: bool = False
    """Whether `roll_back` works."""
    says_owner: ClassVar[bool] = True
    """Whether it refuses a second materialization by name."""

    proxy: Proxy | None = None
    """Through which a pipeline reaches it, while it runs; None if it is not reached by a network."""

    def check(self) -> None:  # noqa: B027 - most need nobody who answers
        """Raises what is wrong with how it is reached, before anything is begun."""

    def versions(self) -> Mapping[str, str]:
        """Of servers, as they tell it."""
        return {}

    def running(self) -> AbstractContextManager[None]:
        """Has what belongs to it up while the certification runs."""
        return nullcontext()

    @abstractmethod
    def place(self, lane: str) -> Place: ...

    @abstractmethod
    def read(self, lane: str) -> Mapping[str, Rows]:
        """By `view` or `append`; not through what wrote it. Empty rows before anything is there."""

    def left_over(self, lane: str) -> list[str]:  # noqa: ARG002
        """What was staged and is neither published nor removed, once everything has ended well."""
        return []

    def save(self, lane: str, copy: str = SAVED) -> None:
        """Keeps a copy of the lane as it is, for `restore`."""
        raise NotImplementedError(f"{lane}: {self.name} keeps no copies")

    def restore(self, lane: str, copy: str = SAVED) -> None:
        """Puts the copy in the place of what is there, as if from a backup."""
        raise NotImplementedError(f"{lane}: {self.name} keeps no copies")

    def roll_back(self, lane: str) -> Callable[[], None]:
        """Takes the last epoch back as a person would who knows the format; what it returns undoes that."""
        raise NotImplementedError(f"{lane}: {self.name} cannot be rolled back")

    def remove(self, lane: str) -> None:  # noqa: B027 - what is in a folder goes with it
        """Takes away everything that the lane has left in an endpoint that others use too."""
