"""The server's folder: who uses it, and which part of the log's life it belongs to."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import ConfigError, EndpointUnavailable
from headrace.faults import reached
from headrace.ingest.store import SegmentStore
from headrace.model.lsn import RESERVED_AT_ONCE, last_lsn_of
from headrace.wal.recovery import OnWrites, Recovered, recover
from headrace.wal.segments import number_of, segment_files

log = logging.getLogger(__name__)

_LOCK = "lock"
_IDENTITY = "identity.json"
_LOG = "wal"


@dataclass(frozen=True)
class Identity:
    """Which log the folder holds, and in which of its terms."""

    log_id: str
    term: int
    """In the file it is called `epoch`, as it was before pipelines had epochs too."""


class DataFolder:
    """Held by one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = path / _LOG
        try:
            self.log.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o640)
        except OSError as error:
            raise ConfigError(f"data folder {path}: {error.strerror}: choose another with --data") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise ConfigError(
                f"data folder {path} is in use by another server: stop it, or choose another with --data"
            ) from None

    def close(self) -> None:
        """Once or more: the number of a descriptor that is closed may already be another's."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def open_log(self, store: SegmentStore, on_writes: OnWrites) -> tuple[Identity, Recovered]:
        """The log as it is here, or, where nothing is, as it is in object storage."""
        reached("log opening")
        identity = self._identity()
        if identity is None or not segment_files(self.log):
            return self._take_over(store, on_writes)
        try:
            store.join(identity.log_id, identity.term)
            store.check_owner(identity.term)
            store.refuse_old_copy(number_of(segment_files(self.log)[-1]), identity.term)
        except EndpointUnavailable as error:
            # The owner is looked at again with each upload; until then writes are taken to the disk.
            log.warning("%s", error.message)
        recovered = recover(self.log, on_writes)
        if recovered.state.reserved_until + 2 * RESERVED_AT_ONCE > last_lsn_of(identity.term):
            identity = Identity(identity.log_id, store.claim_term())
            self._write(identity)
        recovered.start_term(identity.term)
        return identity, recovered

    def _take_over(self, store: SegmentStore, on_writes: OnWrites) -> tuple[Identity, Recovered]:
        identity = Identity(store.log_id(), store.claim_term())
        self._put_aside()
        # Until all is here nothing says so: a process that ends on the way has to begin again.
        (self.path / _IDENTITY).unlink(missing_ok=True)
        numbers = store.numbers()
        if numbers:
            log.warning("recovering %d segments from %s", len(numbers), store.url)
        for number in numbers:
            store.fetch(number, self.log)
        recovered = recover(self.log, on_writes)
        recovered.start_term(identity.term)
        self._write(identity)
        return identity, recovered

    def _put_aside(self) -> None:
        """Segments of which nothing says to which log they belong are kept, out of the way."""
        if segment_files(self.log):
            aside = Path(tempfile.mkdtemp(prefix="wal-of-unknown-origin-", dir=self.path))
            log.warning("moved segments without an %s to %s", _IDENTITY, aside)
            self.log.rename(aside / _LOG)
            self.log.mkdir()

    def _identity(self) -> Identity | None:
        try:
            raw = json.loads((self.path / _IDENTITY).read_text())
            return Identity(str(raw["log_id"]), int(raw["epoch"]))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError):
            raise ConfigError(
                f"{self.path / _IDENTITY} is damaged: move the data folder away, and what reached object "
                "storage is recovered from there"
            ) from None

    def _write(self, identity: Identity) -> None:
        reached("identity writing")
        temporary = self.path / f"{_IDENTITY}.new"
        with temporary.open("w") as file:
            json.dump({"log_id": identity.log_id, "epoch": identity.term}, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(self.path / _IDENTITY)
        folder = os.open(self.path, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        reached("identity written")
