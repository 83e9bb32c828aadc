"""How epochs of Parquet files are named, and what is kept beside them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headrace.errors import EndpointError, SchemaError
from headrace.model.checkpoints import JsonObject
from headrace.model.ownership import Owner, Target
from headrace.sinks.columns import Columns
from headrace.sinks.contract import Place
from headrace.sinks.roots import Root, partition_folder, root_of


@dataclass(frozen=True)
class Label:
    """What an epoch says of itself: in its folder, or in its manifest."""

    id: str
    epoch: int
    rows: int
    runtime_checkpoint: JsonObject = field(default_factory=dict)
    columns: Columns = field(default_factory=dict)
    """All that the place has had up to now; the epoch's own files may have fewer."""

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Label:
        return cls(**{name: raw[name] for name in cls.__dataclass_fields__ if name in raw})


@dataclass(frozen=True)
class Layout:
    """Of one writer's rows in a place."""

    place: Place

    @property
    def root(self) -> Root:
        """Several may write to one location; each has a partition of it."""
        root = root_of(self.place)
        return root.below(partition_folder(self.place.owned, self.place.writer)) if self.place.owned else root

    @property
    def is_epoch_in_path(self) -> bool:
        """Readers skip what begins with an underscore or a dot; then the column is in the files."""
        return bool(self.place.epoch) and not self.place.epoch.startswith(("_", "."))

    @property
    def not_written(self) -> list[str]:
        """Columns that the path tells."""
        epoch = [self.place.epoch] if self.is_epoch_in_path else []
        return [*epoch, *([self.place.owned] if self.place.owned else [])]

    def folder(self, epoch: int) -> str:
        if self.is_epoch_in_path:
            return partition_folder(self.place.epoch, f"{epoch:020}")
        return f"epoch-{epoch:020}"

    def epoch_of(self, folder: str) -> int | None:
        """None if it is no epoch's."""
        name = re.escape(self.folder(0)[:-20])
        found = re.fullmatch(rf"{name}(\d{{20}})", folder)
        return int(found[1]) if found else None

    def constants(self, epoch: int, partition: Mapping[str, str | None]) -> dict[str, str | None]:
        """Columns of a file that are not in it."""
        known: dict[str, str | None] = dict(partition)
        if self.place.epoch:
            known[self.place.epoch] = str(epoch)
        if self.place.owned:
            known[self.place.owned] = self.place.writer
        return known

    def is_taken_over(self, name: str, found: Target, owner: Owner) -> bool:
        """True if the place is another materialization's, from which `owner` adopts it.

        One that has epochs is refused, since the new owner's would have the same numbers.
        """
        if found.owner is None or found.owner.materialization == owner.materialization:
            return False
        if found.has_rows:
            raise EndpointError(
                f"sink {name}: {self.root.url} has epochs of materialization "
                f"{found.owner.materialization!r}, and those of {owner.materialization!r} would have the "
                "same numbers: move them away before it is taken over, or choose another place"
            )
        return True

    def wanted(self, columns: Sequence[str], types: Mapping[str, pa.DataType]) -> pa.Schema:
        """The columns that a reader asked for, in types that the place has for them."""
        known = {**types, self.place.epoch: pa.int64(), self.place.owned: pa.string()}
        for name in columns:
            if name not in known:
                raise SchemaError(f"{self.place.location} has no column {name!r}: ask for another one")
        return pa.schema([(name, known[name]) for name in columns])
