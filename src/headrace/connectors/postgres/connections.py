"""Connections of one process to one database share what the driver has read of its catalog.

The driver reads all types of a database before the first connection, on one of its own, which takes ten times
as long as to connect. The types that we use are built in, so one reading remains valid.
"""

from __future__ import annotations

import os
from functools import lru_cache

import adbc_driver_postgresql
from adbc_driver_manager import AdbcConnection
from adbc_driver_manager.dbapi import Connection, _SharedDatabase

_MOST_DATABASES = 16  # of one process; the one that was used longest ago is read again


def connect(url: str, *, autocommit: bool = True) -> Connection:
    """Opens a new connection, on which each statement commits by itself by default."""
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
    """Opens the database. It is never closed while it is cached, because it holds one count of its own. A
    failure is not cached."""
    return _SharedDatabase(adbc_driver_postgresql.connect(url))
