"""Epochs of Parquet files in object storage, which has no rename: an epoch is there when its manifest is.

    data/00000000000000000012-2-019c.../....parquet       of an attempt at an epoch, committed or not
    _manifests/00000000000000000012-000000.json           says which files epoch 12 has
    _staged/00000000000000000013-2-019c....json           an attempt that is not committed
    _openings/00000000000000000003.json                   who started last, and what was taken back

A manifest is created once and never changed. What was taken back is not brought back by creating its manifest
again: manifests carry a generation, which goes up whenever something is taken back.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.errors import EndpointError, HeadraceError
from headrace.model.checkpoints import JsonObject, to_json
from headrace.model.ownership import Owner, Target
from headrace.objects import NoSuchObject, ObjectExists
from headrace.sinks.cleanup import cleaning_up
from headrace.sinks.columns import Columns, arrow_type, columns_of, grown
from headrace.sinks.contract import Epoch, Sink
from headrace.sinks.file_reading import read_file
from headrace.sinks.openings import Opening, Openings
from headrace.sinks.parquet_layout import Label, Layout
from headrace.sinks.roots import Root
from headrace.sinks.staged_files import stage
from headrace.sinks.staging import Attempt, Staging

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DATA = "data"
_MANIFESTS = "_manifests"
_STAGED = "_staged"
_OPENINGS = "_openings"
_MANIFEST_NAME = re.compile(r"(\d{20})-(\d{6})\.json")


@dataclass(frozen=True)
class ManifestFile:
    """A file of a committed epoch."""

    url: str
    size: int
    rows: int
    epoch: int
    partition: Mapping[str, str | None]
    """Of each column that files are laid out by, its value as text; these columns are not in the file."""


class ObjectRows(Sink):
    """Appends each epoch's rows."""

    def __init__(self, name: str, layout: Layout, root: Root | None = None) -> None:
        """`root` is where something was prepared, if not where the layout is now."""
        self.name = name
        self._layout, self._root = layout, root or layout.root
        self._store = self._root.objects()
        self._staging = Staging(self._store, _STAGED)
        self._openings = Openings(self._store, _OPENINGS, name, layout.place.writer)
        self._opened: Opening | None = None
        self._known: Columns | None = None
        self._rewound: list[tuple[int, int]] | None = None  # manifests that do not count; None: not looked up

    def start(self, decided: int | None, handle: JsonObject | None, fence: int) -> None:
        self._opened = self._openings.start(decided, fence)
        if self._opened.number:
            self._remove_staged(fence, handle.get("staged") if handle else None)

    def inspect(self) -> Target:
        has_rows, last = bool(self._published()), self._openings.last()
        owner = last.owner_beside(self._layout.place.owner(""))
        return Target(has_rows or bool(last.number), has_rows, owner)

    def claim(self, owner: Owner, *, adopts: bool) -> None:
        is_taken_over = adopts and self._layout.is_taken_over(self.name, self.inspect(), owner)
        self._opened = self._openings.claim(self._opened or self._openings.last(), owner, adopts=adopts)
        if is_taken_over:
            self._remove_staged(sys.maxsize, None)

    def prepare(self, epoch: Epoch, rows: DataFrame | None) -> JsonObject:
        if rows is None:
            return {}
        if self._opened is not None and not self._opened.number:
            self._opened = self._openings.take(None, self._opened.fence)  # refuses what is another's
        opening = self._opened or self._openings.last()
        self._refuse_known(epoch.number, opening.generation)
        columns = self._grown(rows)
        attempt = Attempt.new(epoch.number, epoch.fence)
        self._staging.begin(attempt)
        owned = [self._layout.place.owned] if self._layout.place.owned else []
        try:
            files = stage(
                rows.drop(*owned),
                self._root,
                f"{_DATA}/{attempt.name}",
                self._layout.place.partitions,
                in_folders=True,
            )
        except HeadraceError:
            with self._cleaning_up("an attempt that failed"):
                self._remove_data(attempt.name)  # the next start finds what tasks still write
            raise
        label = Label(
            attempt.name,
            epoch.number,
            sum(file.rows for file in files),
            epoch.runtime_checkpoint,
            columns,
        )
        if not label.rows:
            with self._cleaning_up("an epoch without rows"):
                self._remove(attempt)
            return {}
        listed = [{**file.to_json(), "statistics": json.loads(file.statistics)} for file in files]
        manifest = {**vars(label), "generation": opening.generation, "files": listed}
        self._staging.finish(attempt, manifest)
        return {
            "url": self._root.url,
            "staged": attempt.name,
            "generation": opening.generation,
            "rows": label.rows,
        }

    def commit(self, epoch: int, handle: JsonObject) -> None:
        name, path = handle["staged"], _manifest(epoch, handle["generation"])
        manifest = self._staging.read(name)
        if manifest is None:
            self._check_committed(epoch, path, name)
            return
        try:
            self._store.create(path, to_json(manifest).encode(), f"publish epoch {epoch}")
        except ObjectExists:
            self._check_committed(epoch, path, name)
        with self._cleaning_up("what was staged for an epoch that is committed"):
            self._staging.remove(name)
        with self._cleaning_up("what was taken back and has come again"):
            self._release(epoch)

    def _release(self, epoch: int) -> None:
        opened = self._opened
        if opened is None or not opened.rewinds:
            return
        if self._rewound is None:
            self._rewound = [one for one in self._manifests() if not opened.counts(one[1], one[0])]
        if all(number <= epoch for number, _ in self._rewound):
            for number, generation in self._rewound:
                self._store.remove(_manifest(number, generation), "remove a manifest that does not count")
            self._rewound = []

    def abort(self, epoch: int, handle: JsonObject) -> None:  # noqa: ARG002
        attempt = Attempt.named(handle["staged"])
        assert attempt is not None
        self._remove(attempt)

    def rewind(self, epoch: int) -> None:
        """One record takes all of it back at once. Manifests go when as many epochs have come again, and
        their files when those are old enough."""
        self._opened = self._openings.rewind(self._opened, epoch)
        self._rewound = None

    def read(self, columns: Sequence[str], epoch: int | None) -> Iterator[pa.RecordBatch]:
        published = self._published()
        types: dict[str, pa.DataType] = {}
        if published:
            known = Label.of(self._read(*published[-1])).columns
            types = {name: arrow_type(kind) for name, kind in known.items()}
        for number, generation in published:
            if epoch not in (None, number):
                continue
            wanted = self._layout.wanted(columns, types)
            for file in self._read(number, generation)["files"]:
                constants = self._layout.constants(number, file["partition"])
                yield from read_file(self._root, file["path"], constants, wanted)

    def committed(self) -> JsonObject | None:
        published = self._published()
        return Label.of(self._read(*published[-1])).runtime_checkpoint if published else None

    def undone(self, epoch: int, handle: JsonObject) -> str:
        """As in `RowSink.undone`. What was prepared in a folder has no generation."""
        path = _manifest(epoch, handle.get("generation", 0))
        try:
            manifest = json.loads(self._store.get(path, f"read the manifest of epoch {epoch}"))
        except NoSuchObject:
            return f"has no epoch {epoch} any more: {path} is not there"
        if manifest["id"] != handle["staged"]:
            return f"has other rows of epoch {epoch} than were committed, in {path}"
        expected = {file["path"] for file in manifest["files"]}
        missing = expected.difference(self._store.list(f"{_DATA}/{handle['staged']}", "look for files"))
        return f"has no {min(missing)} of epoch {epoch} any more" if missing else ""

    def files(self) -> Iterator[ManifestFile]:
        for number, generation in self._published():
            for file in self._read(number, generation)["files"]:
                yield ManifestFile(
                    f"{self._root.url}/{file['path']}", file["size"], file["rows"], number, file["partition"]
                )

    def audit(self) -> Iterator[str]:
        """Whether all files are there that manifests name, and none is named twice."""
        named: set[str] = set()
        for number, generation in self._published():
            for file in self._read(number, generation)["files"]:
                path = file["path"]
                if path in named:
                    yield f"{path} is in two manifests, the second of epoch {number}"
                named.add(path)
                try:
                    size = self._store.size(path, "look for a file")
                except NoSuchObject:
                    yield f"the manifest of epoch {number} names {path}, which is not there"
                    continue
                if size != file["size"]:
                    yield f"{path} has {size} bytes, and {file['size']} by the manifest of epoch {number}"

    def maintain(self, age: timedelta, kept: JsonObject | None) -> Iterator[str]:
        """Removes files that no manifest names: of attempts that failed, and of what was taken back and has
        come again."""
        before = datetime.now(UTC) - age
        staged = {attempt.name for attempt in self._staging.attempts()}
        needed = {kept["staged"]} if kept else set()
        # Listed before the manifests are: what is committed meanwhile has its manifest by then.
        stored = self._store.list(_DATA, "look for files that nothing refers to")
        named = {file["path"] for one in self._manifests() for file in self._read(*one)["files"]}
        for path in stored:
            attempt = Attempt.named(path.split("/")[1])
            if attempt is None or attempt.began_at >= before or path in named:
                continue
            if attempt.name not in needed | staged:
                self._store.remove(path, "remove files that nothing refers to")
                yield f"removed {path}, which no manifest names"

    def _remove_staged(self, fence: int, kept: str | None) -> None:
        """Removes what was staged under fences before this one."""
        with self._cleaning_up("what was never decided"):
            for attempt in list(self._staging.attempts()):
                # Attempts with a later fence belong to a successor that took over while we were frozen.
                if attempt.fence < fence and attempt.name != kept:
                    self._remove(attempt)

    def _published(self) -> list[tuple[int, int]]:
        """Epoch and generation of each manifest that counts, in order."""
        manifests = self._manifests()  # before what was taken back is read, or it could be missed
        opening = self._openings.last()
        return sorted(one for one in manifests if opening.counts(one[1], one[0]))

    def _manifests(self) -> list[tuple[int, int]]:
        names = [path.rpartition("/")[2] for path in self._store.list(_MANIFESTS, "list manifests")]
        found = [_MANIFEST_NAME.fullmatch(name) for name in names]
        return [(int(name[1]), int(name[2])) for name in found if name]

    def _read(self, epoch: int, generation: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            self._store.get(_manifest(epoch, generation), f"read the manifest of epoch {epoch}")
        )
        return found

    def _grown(self, rows: DataFrame) -> Columns:
        if self._known is None:
            published = self._published()
            self._known = Label.of(self._read(*published[-1])).columns if published else {}
        return grown(self._known, columns_of(rows), self._root.url)

    def _refuse_known(self, epoch: int, generation: int) -> None:
        with suppress(NoSuchObject):
            self._store.size(_manifest(epoch, generation), "look for a manifest")
            raise EndpointError(
                f"{self._root.url} has epoch {epoch} already, which was never decided here: another pipeline "
                "writes to this place, or the state of this one was removed; choose another place"
            )

    def _check_committed(self, epoch: int, path: str, name: str) -> None:
        """What is staged goes when it is committed, or when it was never decided."""
        try:
            manifest = json.loads(self._store.get(path, f"read the manifest of epoch {epoch}"))
        except NoSuchObject:
            raise EndpointError(
                f"epoch {epoch} was prepared in {self._root.url} as {name}, and neither that nor its "
                "manifest is there: it was taken back, or restore it from a backup"
            ) from None
        if manifest["id"] != name:
            raise EndpointError(
                f"{self._root.url} has other rows of epoch {epoch} than were decided here: another pipeline "
                "writes to this place; choose another one for it"
            )

    def _remove(self, attempt: Attempt) -> None:
        """The data of an attempt that was never decided; of one that was, only what is left to do."""
        for epoch, generation in self._manifests():
            if epoch == attempt.epoch and self._read(epoch, generation)["id"] == attempt.name:
                self._staging.remove(attempt.name)
                return
        self._remove_data(attempt.name)
        self._staging.remove(attempt.name)

    def _cleaning_up(self, what: str) -> AbstractContextManager[None]:
        return cleaning_up(f"remove {what} of sink {self.name} from {self._root.url}")

    def _remove_data(self, name: str) -> None:
        what = "remove what was never decided"
        for path in self._store.list(f"{_DATA}/{name}", what):
            self._store.remove(path, what)


def _manifest(epoch: int, generation: int) -> str:
    return f"{_MANIFESTS}/{epoch:020}-{generation:06}.json"
