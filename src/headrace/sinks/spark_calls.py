"""Calls of Spark: what it raises, as an error of ours, and what holds for one write."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any

from headrace.errors import UnexpectedFailure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_settings: defaultdict[int, Lock] = defaultdict(Lock)  # by session


@contextmanager
def spark_failures(what: str) -> Iterator[None]:
    """`what` is said first, then the first line of what Java said; its own error is the cause of ours."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except Py4JJavaError as error:
        message = error.java_exception.getMessage() or error.java_exception.getClass().getName()
        raise UnexpectedFailure(f"{what}: {_first_line(message)}") from error
    except (PySparkException, Py4JError) as error:
        raise UnexpectedFailure(f"{what}: {_first_line(str(error))}") from error


@contextmanager
def setting(session: SparkSession, key: str, value: str) -> Iterator[None]:
    """A session has one value of it for all threads; one write at a time may have it as it wants.

    Each materialization of a file has a session to itself. But whoever calls `materialize` on several threads
    may do so with one session, and then a write must not be staged under the id of another.
    """
    java: Any = session._jsparkSession  # `session` itself is made anew by who asks a DataFrame for it
    with _settings[java.hashCode()]:
        before = session.conf.get(key, None)
        session.conf.set(key, value)
        try:
            yield
        finally:
            if before is None:
                session.conf.unset(key)
            else:
                session.conf.set(key, before)


@contextmanager
def persisted(rows: DataFrame) -> Iterator[int]:
    """Asks for rows once, however often what follows does; gives how many there are."""
    rows.persist()
    try:
        yield rows.count()
    finally:
        rows.unpersist()


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]
