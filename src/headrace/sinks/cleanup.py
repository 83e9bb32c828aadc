"""Clean-up after the step that counts: what cannot be removed is logged, and left to the next one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.errors import Fenced, HeadraceError

log = logging.getLogger(__name__)


@contextmanager
def cleaning_up(what: str) -> Iterator[None]:
    """Logs a failure in place of raising it; `what` completes the sentence "cannot ...".

    For what only removes leavings: of a committed epoch, of one that was never decided, of an attempt that
    fails for another reason. Nothing may rest on it, since whoever comes next may find them still there; what
    publishes, fences off or makes durable does not belong in here. Somebody else may remove the same at the
    same moment, and the store may refuse it, and neither is a reason to take a commit for failed. Only
    `Fenced` is raised: who was replaced stops.
    """
    try:
        yield
    except Fenced:
        raise
    except Exception as error:
        log.warning("cannot %s, which is left to the next clean-up: %s", what, _said(error))
        log.debug("cannot %s", what, exc_info=True)


def _said(error: Exception) -> str:
    if isinstance(error, HeadraceError):
        return error.message
    first_line = str(error).strip().split("\n", 1)[0]
    return f"{type(error).__name__}: {first_line}"
