"""Clean-up after the decisive step: a failed removal is logged and left to the next clean-up."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.errors import Fenced, HeadraceError

log = logging.getLogger(__name__)


@contextmanager
def cleaning_up(what: str) -> Iterator[None]:
    """Logs a failure instead of raising it. `what` completes the sentence "cannot ...".

    Use it only for removing leftovers: of a committed epoch, of one that was never decided, or of an attempt
    that fails for another reason. Correctness must not depend on the removal, because the next start may
    still find them; so nothing that publishes, fences or makes data durable belongs in here. Another process
    may remove the same files at the same time, or the store may refuse the removal: neither means that a
    commit has failed. Only `Fenced` is raised, because a process that was replaced must stop.
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
