"""What Spark says when a job or a query fails, as an error of ours."""

from __future__ import annotations

import re

from headrace.errors import CheckpointMoved, HeadraceError, SchemaError, UnexpectedFailure

# Java's stack, Python's, and the plan that Spark prints add nothing for who reads the message.
_FIRST_LINES = 3
_REDUCTION = re.compile(r'at "[^"]*": [^\n]+')
_NO_JSON = re.compile(r"column '[^'\n]*': NaN and infinity are no JSON numbers")


def failure_of(error: BaseException) -> HeadraceError:
    """The cause, if it is one of ours; else what Spark said, in short."""
    if isinstance(error, HeadraceError):
        return error
    text = _said(error)
    if "headrace.errors.Fenced" in text:
        return CheckpointMoved("the transactions of a shard were taken over by another process")
    if wrong := wrong_rows(error):
        return wrong
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("\tat ")]
    return UnexpectedFailure(f"Spark failed: {' '.join(lines[:_FIRST_LINES])[:600]}")


def wrong_rows(error: BaseException) -> SchemaError | None:
    """That rows cannot be combined or stored as they are, if that is what an expression of ours has said."""
    text = _said(error)
    if reduction := _REDUCTION.search(text):
        return SchemaError(f"documents cannot be combined: {reduction[0]}")
    if value := _NO_JSON.search(text):
        return SchemaError(f"rows cannot be sent: {value[0]}")
    return None


def _said(error: BaseException) -> str:
    return str(getattr(error, "desc", "") or error)
