"""The log in object storage, and who may write it.

    log-id                 says which log this is; never removed
    epochs/0000000003      one for each term that a server ever claimed; never removed
    low-water/0000000007   says which segments are needed: see `low_water`
    wal/00000000000000000042.wal
    side/orders/00000000000000000042-00f3a9c04be1d277.wal    writes of a collection in quarantine

A server owns the log while no later term exists. It looks *after* each put, and a new server claims its
term *before* it reads what is there. So a put that a new owner did not see is never acknowledged.
"""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson

from headrace.durable import draft_of, keep_draft
from headrace.errors import ConfigError, EndpointUnavailable, Fenced
from headrace.faults import reached
from headrace.objects import NoSuchObject, ObjectExists, ObjectStore
from headrace.wal.records import SEGMENT_HEADER_BYTES, BadRecord, SegmentHeader
from headrace.wal.segments import CorruptLog, Segment, records_of, segment_name
from headrace.wal.side_segments import SIDE_NAME

_OBJECT = "user.headrace.object"
_LOG_ID = "log-id"
_TERMS = "epochs"
_SEGMENTS = "wal"
_LOW_WATER = "low-water"
_SIDE = "side"
_TERM_NAME = re.compile(rf"{_TERMS}/(\d{{10}})")
_LOW_WATER_NAME = re.compile(rf"{_LOW_WATER}/(\d{{10}})")
_SEGMENT_NAME = re.compile(rf"{_SEGMENTS}/(\d{{20}})\.wal")
_SIDE_NAME = re.compile(rf"{_SIDE}/(\w+)/({SIDE_NAME})")

log = logging.getLogger(__name__)


class SegmentStore:
    """Segments in any store that `obstore` knows by URL."""

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        self.url = url
        self._objects = ObjectStore(url, options)
        self._foreign: set[str] = set()  # paths that were logged as ignored

    def log_id(self) -> str:
        """Returns the id that distinguishes this log from any other; the first call creates it."""
        return self._identify(uuid4().hex)

    def join(self, log_id: str, term: int) -> None:
        """Goes on with the log of a data folder. An empty store becomes that log's."""
        found = self._identify(log_id)
        if found != log_id:
            raise ConfigError(
                f"store {self.url} holds the log {found}, and the data folder is of the log {log_id}: "
                "name the store that it had, or start with a new data folder"
            )
        self._claim_all(term)

    def claim_term(self, announce: Callable[[int], None] = lambda _: None) -> int:
        """Returns a term that nobody had before; from now on the server of the one before is fenced off.
        `announce(term)` is called before each attempt."""
        while True:
            term = max(self._terms(), default=-1) + 1
            self._claim_all(term - 1)
            announce(term)
            with suppress(ObjectExists):
                reached("term claiming")
                self._objects.create(_term_path(term), _who(), "claim a term")
                reached("term claimed")
                return term

    def _terms(self) -> set[int]:
        return set(self._numbers(_TERMS, _TERM_NAME, "list terms"))

    def _claim_all(self, last: int) -> None:
        """Leaves no term absent up to this one: whoever owns an earlier one looks for the next."""
        for term in sorted(set(range(last + 1)) - self._terms()):
            with suppress(ObjectExists):
                self._objects.create(_term_path(term), _who(), "claim a term")

    def check_owner(self, term: int) -> None:
        """Refuses if a later term was claimed; of those the next is there."""
        try:
            self._objects.size(_term_path(term + 1), "look for other servers")
        except NoSuchObject:
            return
        raise Fenced(
            f"another server took over the log in {self.url}: "
            "stop this one, or start it with a new data folder",
            fence=term,
        )

    def has_later(self, newest: int, term: int) -> bool:
        """Returns whether this term has put a segment after the newest that a data folder knows of."""
        later = max(self.numbers(), default=0)
        if later <= newest:
            return False
        header = self._header(later)
        with suppress(BadRecord):
            return SegmentHeader.decode(header).term >= term
        return False

    def put(self, segment: Segment, term: int) -> None:
        """Returns when the segment is in the store and the server of this term still owns the log."""
        number = segment.header.number
        try:
            what = f"put segment {number}"
            tag = self._objects.create(_segment_path(number), _bytes_of(segment), what, file=segment.path)
            self._note_object(segment, tag)
        except ObjectExists:
            self._settle_conflict(segment)
        reached("owner checking")
        self.check_owner(term)

    def has(self, segment: Segment) -> bool:
        """Returns whether this very segment is there, byte for byte; one that another server wrote is not.

        It is not read where the object is, by its tag, still the one that was put or read before.
        """
        number = segment.header.number
        return self._is_there(_segment_path(number), segment, f"look for segment {number}")

    def _is_there(self, path: str, segment: Segment, what: str) -> bool:
        try:
            if self._objects.size(path, what) != segment.length:
                return False
            tag = self._objects.tag(path, what)
            if tag and self._noted_object(segment) == self._identity_of(segment, tag):
                return True
            ours, at = memoryview(_bytes_of(segment)), 0
            is_same_file = self._objects.is_name_of(path, segment.path)
            for chunk in () if is_same_file else self._objects.stream(path, what):
                if chunk != ours[at : at + len(chunk)]:
                    return False
                at += len(chunk)
        except NoSuchObject:
            return False
        if at != len(ours) and not is_same_file:
            return False
        self._objects.sync(path, what)
        self._note_object(segment, tag)
        return True

    def _note_object(self, segment: Segment, tag: str) -> None:
        """Notes in the attributes of a segment's file, and as long as it lasts, which object is a copy of it.
        Where that is not possible, or gets lost, the object is read once more."""
        if tag:
            with suppress(OSError):
                os.setxattr(segment.path, _OBJECT, self._identity_of(segment, tag))

    def _noted_object(self, segment: Segment) -> bytes:
        with suppress(OSError):
            return os.getxattr(segment.path, _OBJECT)
        return b""

    def _identity_of(self, segment: Segment, tag: str) -> bytes:
        return f"{self.url} {segment.mark} {tag}".encode()

    def is_there(self, number: int) -> bool:
        """Returns whether there is a segment of this number, whoever put it."""
        with suppress(NoSuchObject):
            return self._objects.size(_segment_path(number), f"look for segment {number}") > 0
        return False

    def numbers(self) -> list[int]:
        """The numbers of the segments that are there, in order."""
        return sorted(self._numbers(_SEGMENTS, _SEGMENT_NAME, "list segments"))

    def _numbers(self, folder: str, ours: re.Pattern[str], what: str) -> Iterator[int]:
        return (int(found[1]) for found in self._ours(folder, ours, what))

    def _ours(self, folder: str, ours: re.Pattern[str], what: str) -> Iterator[re.Match[str]]:
        """Yields the names that fit; other objects were put there by somebody else, and are left alone."""
        for path in self._objects.list(folder, what):
            if found := ours.fullmatch(path):
                yield found
            elif path not in self._foreign:
                self._foreign.add(path)
                log.warning("store %s has %s, which is not of the log: it is ignored", self.url, path)

    def fetch(self, number: int, folder: Path) -> None:
        """Copies a segment into a folder, synced; it is there as a whole or not at all."""
        self._fetch(_segment_path(number), folder / segment_name(number), f"get segment {number}")

    def _fetch(self, object_path: str, path: Path, what: str) -> None:
        try:
            reached("segment fetching")
            with draft_of(path).open("wb") as file:
                for chunk in self._objects.stream(object_path, what):
                    file.write(chunk)
            keep_draft(path)
            reached("segment fetched")
        except OSError as error:
            raise EndpointUnavailable(f"cannot {what}: {error}") from error

    def remove(self, number: int) -> None:
        self._objects.remove(_segment_path(number), f"remove segment {number}")

    def put_side(self, collection: str, segment: Segment, term: int) -> None:
        """Returns when a segment of a side log is in the store and the server of this term still owns the
        log. No two have the same name, so one that is there is this very one, or was damaged."""
        path, what = _side_path(collection, segment.path.name), f"put a segment of collection {collection!r}"
        try:
            self._objects.create(path, _bytes_of(segment), what, file=segment.path)
        except ObjectExists:
            if not self._is_there(path, segment, what):
                raise
        self.check_owner(term)

    def fetch_side(self, collection: str, name: str, folder: Path) -> None:
        """Copies a segment of a side log into a folder, as `fetch` does."""
        what = f"get {name} of collection {collection!r}"
        self._fetch(_side_path(collection, name), folder / name, what)

    def sides(self) -> list[tuple[str, str]]:
        """Returns the segments of side logs that are there, each as a collection and a name."""
        return [(found[1], found[2]) for found in self._ours(_SIDE, _SIDE_NAME, "list side logs")]

    def remove_side(self, collection: str, name: str) -> None:
        self._objects.remove(_side_path(collection, name), f"remove {name} of collection {collection!r}")

    def low_waters(self) -> list[int]:
        """Returns the numbers of the low-water marks that are there, in order."""
        return sorted(self._numbers(_LOW_WATER, _LOW_WATER_NAME, "list low-water marks"))

    def get_low_water(self, number: int) -> bytes:
        return self._objects.get(_low_water_path(number), "get the low-water mark")

    def put_low_water(self, number: int, data: bytes, term: int) -> None:
        """Returns when it is in the store and the server of this term still owns the log. `ObjectExists`
        says that it does, and that another mark has the number; this very one does no harm."""
        path, what = _low_water_path(number), "put the low-water mark"
        try:
            self._objects.create(path, data, what)
        except ObjectExists:
            if self._objects.get(path, what) != data:
                self.check_owner(term)  # or a server that was replaced would try a later number
                raise
        self.check_owner(term)

    def remove_low_water(self, number: int) -> None:
        self._objects.remove(_low_water_path(number), "remove a low-water mark")

    def _identify(self, wanted: str) -> str:
        what = "identify the log"
        with suppress(ObjectExists):
            self._objects.create(_LOG_ID, wanted.encode(), what)
        return self._objects.get(_LOG_ID, what).decode()

    def _settle_conflict(self, segment: Segment) -> None:
        """The name is taken: by this very segment, whose answer was lost, or by a replaced server."""
        if self.has(segment):
            return
        number = segment.header.number
        try:
            other = SegmentHeader.decode(self._header(number)).term
        except BadRecord:  # a file that was put and not yet synced when the machine stopped
            other = -1
        if other >= segment.header.term:
            raise Fenced(
                f"{self.url} already has another segment {number}: two servers write there, or the data "
                "folder is an old copy; stop this one, or start it with a new data folder. If nobody else "
                f"writes there, the object was damaged: compare it with {segment.path}, and put that in its "
                "place",
                fence=segment.header.term,
            )
        # Put by the owner of an earlier term after this one was claimed, so it was never acknowledged.
        self._objects.put(_segment_path(number), _bytes_of(segment), f"put segment {number}")

    def _header(self, number: int) -> bytes:
        """Reads the header, which identifies a segment: no two of one term and number were ever sealed."""
        return self._objects.get(_segment_path(number), f"get segment {number}", end=SEGMENT_HEADER_BYTES)


def _bytes_of(segment: Segment) -> bytes:
    """Returns the bytes that count, once all records are known to be whole: they are announced as durable.

    They are read, not mapped: a file that somebody cuts off meanwhile would end the process.
    """
    number = segment.header.number
    try:
        with segment.path.open("rb") as file:
            data = file.read(segment.length)
    except OSError as error:
        # Transient, as all that may be different when it is tried again.
        raise EndpointUnavailable(f"cannot put segment {number}: {error}") from error
    if len(data) < segment.length:
        raise CorruptLog(f"{segment.path} has {len(data)} bytes, and {segment.length} had been synced")
    try:
        for _ in records_of(memoryview(data)):
            pass
    except BadRecord as damaged:
        raise CorruptLog(f"{segment.path} is damaged at offset {damaged.offset}: {damaged.message}") from None
    if data[:SEGMENT_HEADER_BYTES] != segment.header.encode():
        raise CorruptLog(f"{segment.path} has another header than was written")
    return data


def _who() -> bytes:
    return orjson.dumps({"host": socket.gethostname(), "pid": os.getpid()})


def _term_path(term: int) -> str:
    return f"{_TERMS}/{term:010}"


def _low_water_path(number: int) -> str:
    return f"{_LOW_WATER}/{number:010}"


def _side_path(collection: str, name: str) -> str:
    return f"{_SIDE}/{collection}/{name}"


def _segment_path(number: int) -> str:
    return f"{_SEGMENTS}/{segment_name(number)}"
