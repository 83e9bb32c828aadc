"""What a scenario has at hand: a server, clients that write, and the means to make things go wrong."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from headrace.certify.ingest.journal import WAIT_SECONDS, Broken, Journal
from headrace.certify.ingest.oracle import EndState
from headrace.certify.ingest.power import lose_power
from headrace.certify.ingest.surroundings import Surroundings
from headrace.certify.ingest.writers import Loader, ProducerLoader, StockLoader
from headrace.client import connect
from headrace.errors import UnexpectedFailure
from headrace.faults import Action, Faults
from headrace.model.tiers import Tier
from headrace.testing.ingest_process import IngestProcess

COLLECTION = "events"
_FIRE_SECONDS = 60.0
_LOOK_EVERY = 0.01
# For what is due to be told, and for what a defect tells too early.
_NEWS_SECONDS = 0.1
_STAND_STILL = 2.0
_NEWS = 5


class Stage:
    """One run. `points` are those of the scenario, or some of them; `modules` are loaded into its servers."""

    def __init__(
        self, folder: Path, seed: int, points: Sequence[str] = (), modules: Sequence[str] = ()
    ) -> None:
        self.points = points
        self.draw = random.Random(seed)  # noqa: S311
        self.journal = Journal()
        self.surroundings = Surroundings.in_folder(folder)
        self.faults = Faults(folder / "faults")
        self._modules = list(modules)
        self.writers: list[Loader] = []
        self.end: EndState | None = None

    @contextmanager
    def serving(self, data: str = "data", *, load: str = "") -> Iterator[IngestProcess]:
        """A server with its own data folder, and with a module of ours before those of the run."""
        self.faults.load(*filter(None, [load, *self._modules]))
        try:
            with self.surroundings.server(data, environment=self.faults.environment) as server:
                yield server
        finally:
            for writer in self.writers:
                writer.stop()

    def write(self, url: str, retain: Tier = Tier.OBJECT_STORAGE) -> None:
        """Begins to, with our client and with one that knows nothing of us, until something is committed."""
        self.writers += [
            ProducerLoader("producer", url, COLLECTION, self.journal, retain=retain),
            StockLoader("stock", url, COLLECTION, self.journal),
        ]
        for writer in self.writers:
            writer.start()
        self.journal.await_news(Tier.OBJECT_STORAGE)

    def finish(self, server: IngestProcess) -> None:
        """Lets the clients hear the rest, and looks at the end state."""
        self.faults.disarm()
        self.journal.await_news(Tier.LOCAL_DISK, is_over=lambda: not server.is_running)
        for writer in self.writers:
            writer.finish()
        self.end = self.surroundings.end_state(self.journal, server)

    def reach(self, point: str, below: Tier, occurrence: int | None = None) -> None:
        """Has the server stand still at a point, while writes go on up to the tier below it."""
        self.faults.arm(point, Action.PARK, occurrence or self.draw.randint(1, 3))
        self.await_point(point)
        self.journal.hears(below, _NEWS, _STAND_STILL)
        time.sleep(_NEWS_SECONDS)

    def await_point(self, point: str) -> None:
        """Until what is armed there has happened."""
        deadline = time.monotonic() + _FIRE_SECONDS
        while point not in self.faults.fired:
            if time.monotonic() > deadline:
                raise UnexpectedFailure(f"nothing came to {point!r} in {_FIRE_SECONDS:.0f} s")
            time.sleep(_LOOK_EVERY)
        # A process is listed as parked shortly after the point has fired; once it is listed, it has stopped.
        while self.faults.happened(point) is Action.PARK and point not in self.faults.parked:
            time.sleep(_LOOK_EVERY)

    def hold(self, point: str) -> None:
        """Nothing gets past a point from now on."""
        self.faults.arm(point, Action.PARK)
        self.await_point(point)

    def kill(self, server: IngestProcess, *, power: bool = False, disk: bool = False) -> None:
        """With what the machine's power or its disk take with them; then looks at what is told."""
        server.kill()
        if power:
            lose_power(server.data / "wal", self.faults)
        if disk:
            shutil.rmtree(server.data)
        self.faults.clear()
        self.surroundings.check_committed(self.journal)

    def copy_folder(self, server: IngestProcess) -> None:
        """Of a server that does not run."""
        shutil.copytree(server.data, self._copy_of(server))

    def put_copy_back(self, server: IngestProcess) -> None:
        self._copy_of(server).rename(server.data)

    def _copy_of(self, server: IngestProcess) -> Path:
        return server.data.with_name(f"{server.data.name} of before")

    def restart(self, server: IngestProcess) -> None:
        server.start()
        self.journal.await_news(Tier.LOCAL_DISK, is_over=lambda: not server.is_running)

    def await_committed(self, collection: str) -> None:
        """Until one more write of a collection is committed."""

        def committed() -> int:
            writes = self.journal.so_far().values()
            return sum(one.collection == collection and Tier.COMMITTED in dict(one.told) for one in writes)

        before, deadline = committed(), time.monotonic() + WAIT_SECONDS
        while committed() <= before:
            if time.monotonic() > deadline:
                raise Broken(f"no write of {collection!r} was committed in {WAIT_SECONDS:.0f} s")
            time.sleep(_LOOK_EVERY)

    def await_commits(self, server: IngestProcess) -> None:
        """Until something more is committed; it is over if the server takes nothing more."""
        with connect(server.url) as client:
            self.journal.await_news(
                Tier.COMMITTED, 20, is_over=lambda: client.health()["status"] == "refusing"
            )

    def lose_at_start(self, server: IngestProcess, point: str, occurrence: int = 1) -> None:
        """Starts a server that is killed on the way."""
        self.faults.arm(point, Action.LOSE, occurrence)
        try:
            server.start()
        except UnexpectedFailure:
            if point in self.faults.fired:
                self.faults.clear()
                return
            raise
        raise Broken(f"the server started without coming to {point!r}")

    def await_refusal(self, server: IngestProcess, look: Callable[[], None]) -> None:
        """Until the server takes nothing more; looks at something meanwhile."""
        deadline = time.monotonic() + _FIRE_SECONDS
        with connect(server.url) as client:
            while (health := client.health())["status"] != "refusing":
                look()
                if time.monotonic() > deadline:
                    raise Broken(f"a server that was replaced goes on: {health['problems']}")
                time.sleep(_LOOK_EVERY)
