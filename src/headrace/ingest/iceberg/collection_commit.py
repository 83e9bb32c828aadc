"""Brings one table to an LSN, exactly once, whoever else commits and wherever it ends.

The rows of a commit and the watermark that covers them are added to the table together, and only on top of
the snapshot at which the watermark was read. If two committers have the same rows, one of them fails, reads
the table again, and finds the rows there. The outcome of a commit whose response was lost is found the same
way.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyiceberg.exceptions import BadRequestError, CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from headrace.ingest.iceberg.append import Try, refers_to, remove_files
from headrace.ingest.iceberg.errors import CommitConflict, TableMoved
from headrace.ingest.iceberg.tables import LOG_ID, Tables, committed_of, position_properties, reaching
from headrace.ingest.schemas import Adapter
from headrace.wal.batches import LSN, Located, read_batches
from headrace.wal.position import LogPosition
from headrace.wal.state import CollectionState, Committed

Observer = Callable[[str], None]

FIRST_LSN = "headrace.first-lsn"
LAST_LSN = "headrace.last-lsn"

MOST_TRIES = 10
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
# In memory; as Parquet it is a fraction of it.
FILE_BYTES = 128 << 20

_log = logging.getLogger(__name__)


@dataclass
class _Written:
    """Rows in data files, and what must still be so when they are put into the table."""

    after: int
    schema: Schema
    spec_id: int
    io: FileIO
    files: list[DataFile] = field(default_factory=list)
    first_lsn: int = 0
    last_lsn: int = 0

    def fits(self, after: int, attempt: Try) -> bool:
        same_layout = self.schema == attempt.schema and self.spec_id == attempt.table_metadata.default_spec_id
        return self.after == after and same_layout


class CollectionCommit:
    """Tells the observer of its steps: created, evolved, written, committing, committed."""

    def __init__(
        self,
        tables: Tables,
        collection: CollectionState,
        writes: list[Located],
        after: LogPosition | None,
        target: LogPosition,
        log_id: str,
        observe: Observer,
        pause: Callable[[float], None],
        dropped: int = 0,
    ) -> None:
        """Leaves out writes up to the LSN `dropped`."""
        self._tables = tables
        self._collection = collection
        self._name = collection.name
        self._schema = pa.ipc.read_schema(pa.py_buffer(collection.schema))
        self._writes = writes
        self._after = after
        self._target = target
        self._through = target.lsn
        self._log_id = log_id
        self._observe = observe
        self._pause = pause
        self._dropped = dropped
        self._written: _Written | None = None
        self._superseded: list[_Written] = []  # no longer fit, but an undecided try may still land with them
        self._undecided: list[Try] = []
        self._is_refused = False  # perhaps because our clock is ahead of the catalog's
        self._why = ""

    def run(self) -> Committed:
        try:
            return self._run()
        finally:
            self._drop_files()

    def _run(self) -> Committed:
        for number in range(MOST_TRIES + 1):
            if number:
                self._pause(random.uniform(0.5, 1) * min(FIRST_PAUSE * 2**number, LONGEST_PAUSE))  # noqa: S311
            table = self._tables.load(self._name)
            committed = Committed(0) if table is None else committed_of(table, self._log_id)
            if table is not None:
                self._settle(table, committed.lsn)
            self._refuse_moved(committed.position)
            if committed.lsn >= self._through:
                return committed
            wanted_after = max(committed.lsn, self._dropped)
            if not self._has_writes_after(wanted_after):
                return replace(committed, lsn=self._through)
            if number == MOST_TRIES:
                break
            if table is None:
                table = self._tables.create(self._name, self._schema, self._collection.key, self._log_id)
                self._observe("created")
                if committed_of(table, self._log_id) != committed:
                    continue  # somebody else made it, and was faster with its rows as well
            attempt = self._prepare(table, wanted_after)
            if attempt is None:
                return replace(committed, lsn=self._through)
            if self._lands(attempt):
                self._observe("committed")
                return Committed(self._through, attempt.snapshot_id, self._target)
        raise CommitConflict(
            f"the table of collection {self._name!r} was not committed in {MOST_TRIES} tries: {self._why}",
            collection=self._name,
        )

    def _refuse_moved(self, found: LogPosition) -> None:
        """Goes on from where the server saw the table, or finds the commit done, and nothing else."""
        if self._after is not None and found not in (self._after, self._target):
            raise TableMoved(
                f"the table of collection {self._name!r} is at {found} and was at {self._after}",
                collection=self._name,
            )

    def _has_writes_after(self, after: int) -> bool:
        return any(
            one.writes.last_lsn > after and one.writes.first_lsn <= self._through for one in self._writes
        )

    def _prepare(self, table: Table, after: int) -> Try | None:
        """A try with its files, those of an earlier one if they still fit; nothing if no write has rows."""
        attempt = Try(table, by_clock=not self._is_refused)
        with reaching(self._name):
            schema = attempt.widen(self._name, self._schema)
            self._observe("evolved")
            if self._written is None or not self._written.fits(after, attempt):
                self._drop_files()
                spec_id = attempt.table_metadata.default_spec_id
                self._written = _Written(after, attempt.schema, spec_id, attempt.io)
                self._write(attempt, schema, self._written)
            written = self._written
            self._observe("written")
            if not written.files:
                return None
            summary = {FIRST_LSN: str(written.first_lsn), LAST_LSN: str(written.last_lsn)}
            properties = position_properties(self._target)
            if self._log_id:
                properties[LOG_ID] = self._log_id
            attempt.append_files(written.files, summary, properties)
        return attempt

    def _write(self, attempt: Try, schema: pa.Schema, written: _Written) -> None:
        for table in self._tables_of_rows(schema, written.after):
            written.files += attempt.write(table)
            lsns = table.column(LSN)
            written.first_lsn = written.first_lsn or lsns[0].as_py()
            written.last_lsn = lsns[-1].as_py()

    def _tables_of_rows(self, schema: pa.Schema, after: int) -> Iterator[pa.Table]:
        """The rows that are not in the table yet, each part as large as a file is to be."""
        batches: list[pa.RecordBatch] = []
        size = 0
        for batch in read_batches(self._writes, after, self._through):
            batches.append(Adapter(self._name, batch.schema, schema, may_drop=False)(batch))
            size += batches[-1].nbytes
            if size >= FILE_BYTES:
                yield pa.Table.from_batches(batches)
                batches, size = [], 0
        if batches:
            yield pa.Table.from_batches(batches)

    def _lands(self, attempt: Try) -> bool:
        """Whether the try is known to have landed. If not, it is undecided, even when it was refused: a proxy
        that sends a request twice may return one copy's refusal although the other has landed or will."""
        self._undecided.append(attempt)
        self._observe("committing")
        try:
            attempt.commit_once()
        except CommitFailedException as refusal:
            _log.info("the table of collection %r has changed, trying again: %s", self._name, refusal)
            self._why = str(refusal)
            return False
        except Exception as error:  # noqa: BLE001 - whatever it was, the commit may have landed before it
            self._why = f"{type(error).__name__}: {error}"
            self._is_refused = isinstance(error, BadRequestError)
            _log.warning("looking whether a commit of collection %r landed", self._name, exc_info=True)
            return False
        self._undecided.remove(attempt)
        for earlier in self._undecided:  # main has moved, so none of these can land any more
            earlier.clean_up()
        for written in self._superseded:  # nor has any, or the watermark would have said so
            remove_files(written.io, written.files)
        self._superseded.clear()
        self._forget()
        return True

    def _settle(self, table: Table, committed: int) -> None:
        """Finds out about tries that are undecided: in the table, or never to be."""
        if self._undecided and committed >= self._through and self._has_landed(table):
            self._forget()  # the files are the table's now
        for attempt in list(self._undecided):
            # While main is where the try wants it, a request that got stuck on its way can still land.
            if table.metadata.current_snapshot_id != attempt.base_snapshot:
                attempt.clean_up()
                self._undecided.remove(attempt)

    def _has_landed(self, table: Table) -> bool:
        if any(attempt.is_in(table) for attempt in self._undecided):
            return True
        # Somebody may have committed on top of it, and expired its snapshot, before we came to look.
        with reaching(self._name):
            written = [*self._superseded, *([self._written] if self._written else [])]
            return any(refers_to(table, one.files) for one in written)

    def _forget(self) -> None:
        self._undecided.clear()
        self._written = None

    def _drop_files(self) -> None:
        """Removes data files that no longer fit, or sets them aside if a try may still land with them."""
        if self._written is not None and self._undecided:
            self._superseded.append(self._written)
        elif self._written is not None:
            remove_files(self._written.io, self._written.files)
        self._written = None
