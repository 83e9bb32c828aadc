"""Connections of one process to one database share what the driver has read of its catalog.

The driver reads all types of a database before the first connection, on one of its own, which takes ten
times as long as to connect. Those that we use are built in, so what was read once stays true.
"""

from __future__ import annotations

import os
from functools import lru_cache

import adbc_driver_postgresql
from adbc_driver_manager import AdbcConnection
from adbc_driver_manager.dbapi import Connection, _SharedDatabase

_MOST_DATABASES = 16  # of one process; the one that was used longest ago is read again


def connect(url: str, *, autocommit: bool = True) -> Connection:
    """A new connection, on which a statement commits by itself unless it is told not to."""
    # A process that was forked off begins anew, with nothing of the driver's from the one before.
    shared = _database(url, os.getpid())
    connection = AdbcConnection(shared._db)
    try:
        return Connection(shared, connection, autocommit=autocommit)
    except BaseException:
        connection.close()
        raise


@lru_cache(maxsize=_MOST_DATABASES)
def _database(url: str, process: int) -> _SharedDatabase:  # noqa: ARG001 - only to tell processes apart
    """Never closed as long as it is here: it holds one count of its own. What fails is not kept."""
    return _SharedDatabase(adbc_driver_postgresql.connect(url))
