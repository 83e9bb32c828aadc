"""The three load scenarios of the streaming write RFC, and one client in Python, next to their peers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import asdict
from typing import Any, Protocol
from uuid import uuid4

from headrace.bench.children import Child, Server, cpu_us_per_write, floor, own_server
from headrace.bench.figures import Measurement, Results, Run
from headrace.bench.ratios import FLOOR, KAFKA, OURS
from headrace.bench.settings import CROWD, LAG, PYTHON, SINGLE, Settings, machine
from headrace.errors import HeadraceError

_SILENCE_SECONDS = 120.0
_BEFORE_COMMITTED = ["MEMORY", "LOCAL_DISK", "OBJECT_STORAGE"]
_GENERATOR, _IN_PYTHON, _OF_KAFKA = (
    f"headrace.bench.{module}" for module in ("load", "python_client", "kafka_client")
)


class OnProgress(Protocol):
    """Hears of each step: its name, its number of writes if that is known, and how many are acknowledged."""

    def __call__(self, step: str, total: int | None, done: int) -> None: ...


class Bench:
    """Runs what the settings ask for; each result is there as soon as it is measured."""

    def __init__(self, settings: Settings, on_progress: OnProgress) -> None:
        self._settings, self._on_progress = settings, on_progress
        shown = {key: value for key, value in asdict(settings).items() if key not in ("token", "ca")}
        self.results = Results(shown, machine())

    def run(self) -> Results:
        settings = self._settings
        if not settings.peers:
            self.results.left_out.append("the floor and Kafka: --no-peers")
        elif settings.kafka is None:
            self.results.left_out.append(
                "Kafka: give a broker with --kafka HOST:PORT, or run python -m benchmarks.ingest"
            )
        if not settings.committer:
            self.results.left_out.append("the committer, and with it COMMITTED: --no-committer")
        with ExitStack() as stack:
            url = settings.url
            own = nullcontext(Server(url)) if url else own_server(commits=settings.committer)
            ours = stack.enter_context(own)
            servers = {OURS: ours}
            if settings.peers:
                servers[FLOOR] = stack.enter_context(floor())
            words: dict[str, Callable[[dict[str, Server]], None]] = {
                SINGLE: self._single,
                CROWD: self._crowd,
                LAG: self._lag,
                PYTHON: self._python,
            }
            for word in settings.words:
                words[word](servers)
        return self.results

    def _single(self, servers: dict[str, Server]) -> None:
        self._at_the_rate(SINGLE, servers, clients=1)
        self._as_fast_as_it_goes(SINGLE, servers, clients=1)

    def _crowd(self, servers: dict[str, Server]) -> None:
        for clients in self._settings.clients:
            self._at_the_rate(CROWD, servers, clients=clients)
        self._as_fast_as_it_goes(CROWD, servers, clients=self._settings.clients[-1])

    def _lag(self, servers: dict[str, Server]) -> None:
        """To each tier, and nothing to compare it with."""
        for coalesce in (1, self._settings.coalesce):
            writes = max(self._settings.writes // coalesce, 1) * coalesce
            load = {"clients": 1, "coalesce": coalesce, "writes": writes, "window": self._window(coalesce)}
            self._measure(LAG, OURS, servers[OURS], load)

    def _python(self, servers: dict[str, Server]) -> None:
        for name, server in servers.items():
            self._measure(PYTHON, name, server, self._timed({"clients": 1}, self._settings.rate), _IN_PYTHON)

    def _at_the_rate(self, word: str, servers: dict[str, Server], *, clients: int) -> None:
        load = self._timed({"clients": clients}, self._settings.rate)
        for name, server in servers.items():
            self._measure(word, name, server, load)
        if self._settings.kafka is not None:
            broker = Server(self._settings.kafka)
            try:
                self._measure(word, KAFKA, broker, {**load, "bootstrap": broker.url}, _OF_KAFKA)
            except HeadraceError as failure:  # a peer's, which leaves what was measured of ours as it is
                self.results.left_out.append(f"{KAFKA} in {word} with {clients} clients: {failure.message}")

    def _as_fast_as_it_goes(self, word: str, servers: dict[str, Server], *, clients: int) -> None:
        for coalesce in (1, self._settings.coalesce):
            load: dict[str, Any] = {"clients": clients, "coalesce": coalesce}
            load["window"] = self._window(coalesce)
            if coalesce > 1:
                load["levels"] = ["MEMORY", "LOCAL_DISK"]
            for name, server in servers.items():
                self._measure(word, name, server, self._timed(load, None))

    def _window(self, coalesce: int) -> int:
        return max(self._settings.window, 2 * coalesce)

    def _timed(self, load: dict[str, Any], rate: float | None) -> dict[str, Any]:
        return {
            **load,
            "rate": rate,
            "warm_up_seconds": self._settings.warm_up,
            "seconds": self._settings.seconds,
        }

    def _measure(
        self, word: str, contender: str, server: Server, load: dict[str, Any], module: str = _GENERATOR
    ) -> None:
        settings, rate = self._settings, load.get("rate")
        command: dict[str, Any] = {
            "url": server.url,
            "collection": f"bench_{uuid4().hex[:12]}",
            "payload": settings.payload,
            "silence_seconds": _SILENCE_SECONDS,
            **load,
        }
        if contender == OURS:
            command |= {"token": settings.token, "ca": settings.ca}
            if not settings.committer:
                command.setdefault("levels", _BEFORE_COMMITTED)
        elif contender == FLOOR:
            command["levels"] = ["MEMORY"]
        total = load.get("writes") or (rate and int(rate * (settings.warm_up + settings.seconds)))
        named = Measurement(word, contender, rate, load.get("coalesce", 1), Run(load["clients"], 0, {}))
        step = f"{named.load}, {contender}"
        self._on_progress(step, total, 0)
        before = server.cpu_seconds()
        with Child(module, command) as child:
            run = Run.from_json(child.result(lambda done: self._on_progress(step, total, done)))
        cpu = cpu_us_per_write(before, server.cpu_seconds(), run.sent)
        self._on_progress(step, run.sent, run.sent)
        self.results.measurements.append(
            Measurement(word, contender, rate, named.coalesce, run, server_cpu_us=cpu)
        )
