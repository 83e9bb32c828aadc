"""Translates what Spark says when a job or a query fails: an error that may pass, or one that stays."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headrace.errors import CheckpointMoved, HeadraceError, SchemaError, SparkRefused, UnexpectedFailure

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

# Java's stack, Python's, and the plan that Spark prints add nothing for who reads the message.
_FIRST_LINES = 3
_LONGEST = 600
_DEEPEST = 16
_REDUCTION = re.compile(r'at "[^"]*": [^\n]+')
_NO_JSON = re.compile(r"column '[^'\n]*': NaN and infinity are no JSON numbers")

# What a plan or a credential is refused with. The same start would meet it again.
_REFUSED = {
    "org.apache.spark.sql.AnalysisException",
    "org.apache.kafka.common.errors.AuthenticationException",
    "org.apache.kafka.common.errors.AuthorizationException",
    "org.apache.iceberg.exceptions.ForbiddenException",
    "org.apache.iceberg.exceptions.NotAuthorizedException",
}
# The same of a setting or an installation, where nothing is written: a table's format may say so of a race.
_STAYS = {
    *_REFUSED,
    "org.apache.kafka.common.config.ConfigException",
    "org.apache.kafka.common.errors.InvalidTopicException",
    "org.apache.kafka.common.errors.UnsupportedVersionException",
    "java.lang.ClassNotFoundException",
    "java.lang.IllegalArgumentException",
    "java.lang.LinkageError",
    "java.lang.UnsupportedOperationException",
}
# Whatever comes of it, it comes of a network.
_PASSES = {
    "java.net.ConnectException",
    "java.net.NoRouteToHostException",
    "java.net.SocketTimeoutException",
    "java.net.UnknownHostException",
    "java.util.concurrent.TimeoutException",
    "org.apache.kafka.common.errors.TimeoutException",
}
_UNRESOLVED = "No resolvable bootstrap urls"  # which Kafka takes for a setting, and may be the network


def failure_of(error: BaseException) -> HeadraceError:
    """The cause, if it is one of ours; else what Spark said, in short."""
    if isinstance(error, UnexpectedFailure) and error.__cause__ is not None:
        return SparkRefused(error.message) if _refusal(error.__cause__, _REFUSED) else error
    if isinstance(error, HeadraceError):
        return error
    text = _said(error)
    if "headrace.errors.Fenced" in text:
        return CheckpointMoved("the transactions of a shard were taken over by another process")
    if wrong := wrong_rows(error):
        return wrong
    if refusal := _refusal(error, _STAYS):
        return SparkRefused(f"Spark refuses this: {refusal}")
    return UnexpectedFailure(f"Spark failed: {_short(text)}")


def failure_of_query(query: StreamingQuery) -> HeadraceError | None:
    """Why a query has ended; None if nothing was wrong."""
    error: Any = query.exception()
    if error is None:
        return None
    java: Any = query._jsq.exception()
    error._origin = java.get()  # PySpark keeps its text alone
    return failure_of(error)


def wrong_rows(error: BaseException) -> SchemaError | None:
    """Returns why rows cannot be combined or stored as they are, if an expression of ours has said so."""
    text = _said(error)
    if reduction := _REDUCTION.search(text):
        return SchemaError(f"documents cannot be combined: {reduction[0]}")
    if value := _NO_JSON.search(text):
        return SchemaError(f"rows cannot be sent: {value[0]}")
    return None


def _said(error: BaseException) -> str:
    return str(getattr(error, "desc", "") or error)


def _short(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("\tat ")]
    return " ".join(lines[:_FIRST_LINES])[:_LONGEST]


def _refusal(error: BaseException, kinds: set[str]) -> str:
    """Shortens what a throwable of one of these classes says; empty if there is none, or it may pass."""
    java: Any = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    refusal = ""
    try:
        for _ in range(_DEEPEST):
            if java is None:
                break
            classes, message = _classes_of(java), java.getMessage() or ""
            if classes & _PASSES or _UNRESOLVED in message:
                return ""
            if classes & kinds and not refusal:
                refusal = _short(message) or java.getClass().getName()
            java = java.getCause()
    except Exception:  # noqa: BLE001 - Java is gone, and with it what it would have said
        return ""
    return refusal


def _classes_of(java: Any) -> set[str]:
    """Its own, and those above it."""
    found, kind = set(), java.getClass()
    while kind is not None:
        found.add(kind.getName())
        kind = kind.getSuperclass()
    return found


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


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]
