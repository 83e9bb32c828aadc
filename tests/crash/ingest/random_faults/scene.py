"""A server under load, and what is known of what it has promised."""

from __future__ import annotations

import logging
import random
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from sqlalchemy.exc import OperationalError

from headrace.certify.ingest import clock, store_manners
from headrace.certify.ingest.journal import Broken, Journal, Write
from headrace.certify.ingest.oracle import Ranges, some
from headrace.certify.ingest.power import RECORDER
from headrace.certify.ingest.writers import Loader, ProducerLoader, StockLoader
from headrace.client import connect
from headrace.errors import HeadraceError, UnexpectedFailure, WriteLost
from headrace.faults import Faults
from headrace.model.lsn import RESERVED_AT_ONCE
from headrace.model.tiers import Tier
from tests.crash.ingest.random_faults.copies import Copies, Promise
from tests.crash.ingest.random_faults.outside import Outside
from tests.waiting import DEADLINE_SECONDS, wait_until

log = logging.getLogger(__name__)

# What never heals by itself, so that it need not be waited for.
_FINAL = re.compile("took over|already has another segment|ahead of this log|old copy|damaged|--accept-loss")
_REFUSING_SECONDS = 15.0
_LOOK_EVERY = 0.05
_ENDED_SECONDS = 60.0


class Scene:
    """One run: a server that is killed and started again, its clients, and the oracle."""

    def __init__(self, outside: Outside, seed: int, modules: Sequence[str] = ()) -> None:
        self.outside = outside
        self.journal = Journal()
        self.faults = Faults(outside.surroundings.folder / "faults")
        self.faults.load(RECORDER, clock.MODULE, store_manners.MODULE, *modules)
        self._began = time.monotonic()
        self.history: list[str] = []
        """What happened, to be shown if the run fails."""
        self.kills = self.starts = 0
        self._block_before = -1
        self.released: set[Promise] = set()
        self.copies = Copies(outside.surroundings.folder)
        self.lied_through: int | None = None
        """The store may lack segments up to this one, though it said that it has them."""
        self._checked: set[str] = set()
        draw = random.Random(seed)
        # Some runs have many small segments and commits, some few.
        self.server = outside.surroundings.server(
            environment=self.faults.environment,
            segment_seconds=draw.choice([0.05, 0.3]),
            commit_interval=draw.choice([0.2, 0.6]),
            commit_timeout=20,
        )
        self.writers: list[Loader] = []
        self.before_start: Callable[[], None] = lambda: None
        """What trouble that lasts does to a server that starts."""

    @contextmanager
    def playing(self) -> Iterator[None]:
        """Starts server and clients; at the end every client has heard everything, and all is checked."""
        try:
            with self.server:
                self.starts += 1
                self._begin_to_write()
                yield
                self.faults.clear()
                for writer in self.writers:
                    writer.finish()
                self._check_the_end()
        finally:
            for writer in self.writers:
                writer.stop()

    def note(self, text: str) -> None:
        line = f"{time.monotonic() - self._began:6.1f} s {self.kills:3} kills: {text}"
        self.history.append(line)
        log.info("%s", line)

    # The server.

    @property
    def segments(self) -> Path:
        return self.server.data / "wal"

    def kill(self) -> None:
        if self.server.is_running:
            self.server.kill()
        else:
            self.await_death()
        self.kills += 1

    def await_death(self) -> None:
        """Of a server that kills itself at a point."""
        code = self.server.process.wait(_ENDED_SECONDS)
        if code != -signal.SIGKILL:
            raise Broken(f"the server ended with {code} while it was at work:\n{self.server.log_tail()}")

    def begin(self) -> None:
        self._block_before = self._last_block()
        self.starts += 1
        self.server.begin()

    @property
    def life(self) -> int:
        """The last start after which a write is known to be on the disk."""
        return self.starts if self._last_block() > self._block_before else self.starts - 1

    def _last_block(self) -> int:
        """Which of the blocks in which LSNs are reserved was begun last: a server that starts begins one."""
        told = (dict(write.told).get(Tier.LOCAL_DISK, 0) for write in self.journal.so_far().values())
        return max(told, default=0) // RESERVED_AT_ONCE

    def is_ready(self, seconds: float = DEADLINE_SECONDS) -> bool:
        """False if the server has ended, or has not come so far in time."""
        try:
            self.server.wait_until_ready(seconds)
        except UnexpectedFailure:
            return False
        return True

    def last_words(self) -> str:
        return self.server.log_tail(3).replace("\n", " | ")[-600:]

    # The clients.

    def _begin_to_write(self) -> None:
        url, journal = self.server.url, self.journal
        self.writers = [
            ProducerLoader("careful", url, "events", journal, pause=0.05, retain=Tier.OBJECT_STORAGE),
            ProducerLoader("trusting", url, "others", journal, pause=0.05, retain=Tier.LOCAL_DISK),
            StockLoader("stock", url, "events", journal, pause=0.03),
            StockLoader("stranger", url, "others", journal, pause=0.03),
        ]
        for writer in self.writers:
            writer.start()
        journal.await_news(Tier.COMMITTED, is_over=lambda: not self.server.is_running)

    def silence(self) -> None:
        """Returns when everything that a dead server has said is heard."""
        last = -1

        def is_silent() -> bool:
            nonlocal last
            heard = sum(map(self.journal.notices, Tier))
            if heard != last or not all(writer.is_cut_off for writer in self.writers):
                last = heard
                time.sleep(_LOOK_EVERY)
                return False
            return True

        wait_until(is_silent, "clients that have heard everything of a dead server")

    # What was promised.

    def on_the_disk_only(self) -> set[Promise]:
        """What was told to be at LOCAL_DISK and no further."""
        told = ((name, dict(write.told)) for name, write in self.journal.so_far().items())
        return {(name, at[Tier.LOCAL_DISK]) for name, at in told if max(at, default=None) is Tier.LOCAL_DISK}

    def comes_back(self, tier: Tier = Tier.COMMITTED) -> bool:
        """True once something that is written from now on is at the tier; False if the server refuses to."""
        before, deadline = self.journal.so_far(), time.monotonic() + DEADLINE_SECONDS
        bad_since: float | None = None
        while not self._has_told_since(before, tier):
            now = time.monotonic()
            problems = self._problems()
            if problems is None:
                bad_since = None
            else:
                bad_since = bad_since or now
                if _FINAL.search(problems) or now > bad_since + _REFUSING_SECONDS:
                    self.note(f"refused: {problems[:300]}")
                    return False
            if now > deadline:
                raise Broken(f"nothing reaches {tier.name} any more, and the server says {problems!r}")
            time.sleep(_LOOK_EVERY)
        return True

    def _has_told_since(self, before: Mapping[str, Write], tier: Tier) -> bool:
        new = (write for name, write in self.journal.so_far().items() if name not in before)
        return any(tier in dict(write.told) for write in new)

    def _problems(self) -> str | None:
        """What the server says is wrong with it, in one text; None if nothing is."""
        if not self.server.is_running:
            return f"ended: damaged or refused: {self.last_words()}"
        try:
            with connect(self.server.url) as client:
                health = client.health()
        except HeadraceError as error:
            return error.message
        return None if health["status"] == "ok" else f"{health['status']}: {'; '.join(health['problems'])}"

    def check(self) -> None:
        """That nothing was told too early so far, and that nothing is called lost that was promised."""
        self.check_committed()
        if reused := self.journal.given_twice():
            raise Broken(f"LSNs of several writes: {some(reused)}")
        # Before the server is asked: what it says then has to be so already.
        promised = {lsn: name for name, lsn in self._promises() if lsn}
        lost = self._lost()
        broken = [
            f"{lsn} ({name})"
            for lsn, name in promised.items()
            if any(first <= lsn <= last for first, last in lost)
        ]
        if broken:
            raise Broken(f"LSNs that are lost, as the server says, and had been promised: {some(broken)}")

    def _lost(self) -> Ranges:
        """As the server says, if it does: it may have been slow, and is asked again after the next kill."""
        try:
            with connect(self.server.url) as client:
                ranges: Ranges = client.watermarks()["lost"]
        except HeadraceError:
            return []
        return ranges

    def _promises(self) -> Iterator[Promise]:
        for name, write in self.journal.so_far().items():
            for tier, lsn in dict(write.told).items():
                if tier > Tier.LOCAL_DISK or (tier is Tier.LOCAL_DISK and (name, lsn) not in self.released):
                    yield name, lsn

    def check_committed(self) -> None:
        """What was told to be committed since the last time is in the tables, as somebody else reads them."""
        if self.outside.blocked:
            return
        told: dict[str, dict[str, int]] = {}
        for name, write in self.journal.so_far().items():
            lsn = dict(write.told).get(Tier.COMMITTED)
            if lsn and name not in self._checked:
                told.setdefault(write.collection, {})[name] = lsn
        try:
            catalog = self.outside.surroundings.catalog()
            for collection, lsns in told.items():
                there = self._ids(catalog, collection, min(lsns.values()))
                early = [f"{name} as {lsn}" for name, lsn in lsns.items() if name not in there]
                if early:
                    raise Broken(f"writes that were told to be committed too early: {some(early)}")
                self._checked |= lsns.keys()
        except OperationalError:  # somebody holds SQLite's lock: looked at the next time
            return

    def _ids(self, catalog: Catalog, collection: str, from_lsn: int) -> set[str]:
        try:
            table = catalog.load_table((self.outside.surroundings.namespace, collection))
        except NoSuchTableError:
            return set()
        scan = table.scan(f"_lsn >= {from_lsn}", selected_fields=("id",))
        return set(scan.to_arrow().column("id").to_pylist())

    def forget_commits(self) -> None:
        """The tables are those of an older day, which has other snapshots: rows count, not their names."""
        self._checked.clear()
        for write in self.journal.so_far().values():
            write.snapshot_id = None

    def _check_the_end(self) -> None:
        state = self.outside.surroundings.end_state(self.journal, self.server)
        for finding in state.findings(Tier.LOCAL_DISK, self.released):
            raise Broken(finding.text)
        lost = [
            write
            for write in self.journal.writes.values()
            if write.name.startswith("careful") and isinstance(write.error, WriteLost)
        ]
        if lost:
            raise Broken(f"lost, though its client keeps it until it is in object storage: {some(lost)}")
