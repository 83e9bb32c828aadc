"""What goes wrong between the server and its Iceberg tables, apart from schemas and configuration."""

from __future__ import annotations

from headrace.errors import Transient


class CatalogUnavailable(Transient):
    """The catalog or the warehouse cannot be reached, refused a request or gave up in the middle."""

    collection: str = ""


class CommitConflict(Transient):
    """A commit was tried many times; each time others changed the table, or the catalog did not answer."""

    collection: str = ""


class TableMoved(Transient):
    """A table is not where the server last saw it, so where to go on from has to be found out again."""

    collection: str = ""


class CommitterDied(Transient):
    """The process that commits ended or did not answer in time; what it was doing may have been done."""


class CommitterSilent(CommitterDied):
    """The process that commits did not answer in time, and was ended for it: a catalog or a warehouse that
    hangs makes it so with any collection."""


class CommitterKilled(CommitterDied):
    """The process that commits was ended by a signal as an operator sends it, or the kernel when any process
    has used up the memory."""


class ScanFailed(Transient):
    """The process that reads a table ended, did not answer in time, or could not read a file."""
