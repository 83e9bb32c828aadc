"""Answers what the log and the port have to say and to ask; nothing of it is of a single write."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Thread

import orjson
import pyarrow as pa

from headrace._native import (
    AdmitQuestion,
    GreetQuestion,
    LogFailed,
    LogFailing,
    SealedSegment,
    TokensQuestion,
)
from headrace.errors import ConfigError, HeadraceError, InternalError, SchemaError
from headrace.ingest.collections import Collections, read_schema
from headrace.ingest.heartbeats import IDLE_SECONDS
from headrace.ingest.log import Log
from headrace.ingest.tokens import TokenRow
from headrace.wal.segments import Segment
from headrace.wal.state import Range

log = logging.getLogger(__name__)

LONGEST_SILENCE_SECONDS = 30.0
"""Between two beats there is one answer from what is in memory, or a segment to note."""


@dataclass(frozen=True)
class Facts:
    """The facts about a collection that a client gets when its stream begins."""

    committed_lsn: int
    lost: list[Range]
    survives: dict[str, str]


class Control:
    """One thread, and another for what may wait for the disk: a new schema.

    `on_sealed(segment)`, `facts(collection, resume_after)`, `on_turn()` and `beat()` are called on the first.
    """

    def __init__(
        self,
        log: Log,
        collections: Collections,
        *,
        on_sealed: Callable[[Segment], None],
        facts: Callable[[str, int | None], Facts],
        on_turn: Callable[[], None],
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._log, self._collections = log, collections
        self._on_sealed, self._facts, self._on_turn, self._beat = on_sealed, facts, on_turn, beat
        self.tokens: Callable[[], list[TokenRow] | None] = lambda: None
        """Those that are good now, while there is a port that asks."""
        self._closing = False
        self._admissions = ThreadPoolExecutor(1, "admissions")
        self._thread = Thread(target=self._run, name="control", daemon=True)

    def start(self) -> None:
        self._beat()
        self._thread.start()

    def close(self, timeout: float) -> None:
        self._closing = True
        if self._thread.ident is not None:
            self._thread.join(timeout)
        self._admissions.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        while not self._closing:
            event = self._log.native.next_event(IDLE_SECONDS / 4)
            self._beat()
            try:
                self._take(event)
                self._on_turn()
            except Exception:
                log.exception("an answer of the server failed")

    def _take(self, event: object) -> None:
        match event:
            case SealedSegment():
                self._on_sealed(self._log.sealed(event))
                self._log.native.segment_taken(event.number)
            case LogFailing(reason=None):
                log.warning("the disk of the log takes writes again")
            case LogFailing() | LogFailed():
                log.error("%s", event.reason)
            case AdmitQuestion():
                self._admissions.submit(self._admit, event)
            case GreetQuestion():
                facts = self._facts(event.collection, event.resume_after)
                event.greet(facts.committed_lsn, facts.lost, orjson.dumps(facts.survives).decode())
            case TokensQuestion():
                event.answer(self.tokens())

    def _admit(self, question: AdmitQuestion) -> None:
        try:
            try:
                schema = read_schema(question.schema)
            except (pa.ArrowException, OSError, MemoryError) as error:
                raise ConfigError(f"a message cannot be read as Arrow: {error}") from None
            admission = self._collections.admit(question.collection, schema)
            question.admit(admission.kept, admission.required)
        except UnicodeDecodeError:
            problem = f"collection {question.collection!r}: a column's name is not UTF-8"
            question.refuse(SchemaError(problem).to_json())
        except HeadraceError as error:
            question.refuse(error.to_json())
        except Exception as error:
            log.exception("a schema of %s", question.collection)
            failed = (
                f"a bug of the server broke this stream off, and would again: {type(error).__name__}: {error}"
            )
            question.refuse(InternalError(failed).to_json())
