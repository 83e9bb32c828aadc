"""The three load scenarios of the streaming write RFC, with their peers in the same run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, replace
from typing import Any, Protocol
from uuid import uuid4

from headrace.bench.children import Child, Server, bare_server, cpu_us_per_write, own_server
from headrace.bench.crowd import run_crowd
from headrace.bench.figures import Contender, Crowd, Results, Run, median_by
from headrace.bench.kafka_client import DELIVERED
from headrace.bench.settings import Settings, machine

OURS = "headrace"
CEILING = "raw Flight ceiling"
COALESCING = "headrace, coalescing client"
KAFKA_LINGERS = {"Kafka, linger 0": 0, "Kafka, linger 5 ms": 5}

_MOST_WARM_UP = 1000
_MOST_KAFKA_WARM_UP = 5000  # a Java process takes longer to get fast


class OnProgress(Protocol):
    """Hears of each step: its name, how many writes it has, and how many are done."""

    def __call__(self, step: str, total: int, done: int) -> None: ...


class Bench:
    """Runs what the settings ask for; each result is there as soon as it is measured."""

    def __init__(self, settings: Settings, on_progress: OnProgress) -> None:
        self._settings, self._on_progress = settings, on_progress
        self.results = Results(asdict(settings), machine())

    def run(self) -> Results:
        settings = self._settings
        if not settings.is_same_host:
            self.results.left_out.append(
                "notice delays: the server is on another host, whose clock is not ours; run the bench there"
            )
        with nullcontext(Server(settings.url)) if settings.url else own_server() as server:
            for number in settings.scenarios:
                {1: self._single, 2: self._crowd, 3: self._lag}[number](server)
        return self.results

    # Scenario 1.

    def _single(self, server: Server) -> None:
        settings = self._settings
        if not settings.peers:
            self.results.left_out.append("the peers: --no-peers")
        elif settings.kafka is None:
            self.results.left_out.append(
                "the peer Kafka: give a broker with --kafka HOST:PORT, or run python -m benchmarks.ingest"
            )
        with ExitStack() as stack:
            runners: dict[str, Callable[[str, float | None], Run]] = {OURS: self._stock(server, is_ours=True)}
            if settings.peers:
                ceiling = stack.enter_context(bare_server())
                runners[CEILING] = self._stock(ceiling, is_ours=False)
                if settings.kafka is not None:
                    runners |= {name: self._kafka(linger) for name, linger in KAFKA_LINGERS.items()}
            offered: dict[str, list[Run]] = {name: [] for name in runners}
            top: dict[str, list[Run]] = {name: [] for name in runners}
            # By turns, so that a machine that slows down does so for all of them.
            for _ in range(settings.runs):
                for name, runner in runners.items():
                    offered[name].append(runner(f"{name}, {settings.rate:,.0f}/s", settings.rate))
                for name, runner in runners.items():
                    top[name].append(runner(f"{name}, as fast as it goes", None))
        for name in runners:
            tier = DELIVERED if name in KAFKA_LINGERS else "MEMORY"
            middle = median_by(offered[name], tier), median_by(top[name], tier)
            self.results.single[name] = Contender(*middle)
        step, tiers = f"{COALESCING}, as fast as it goes", ["MEMORY", "LOCAL_DISK"]
        alone = self._coalescing(1, server, step, clients=1, processes=1, tiers=tiers)
        self.results.single[COALESCING] = Contender(top=alone)

    def _stock(self, server: Server, *, is_ours: bool) -> Callable[[str, float | None], Run]:
        def run(step: str, rate: float | None) -> Run:
            writes = self._settings.writes_of(1)
            return self._stock_run(server, step, writes, rate, is_ours=is_ours)

        return run

    def _stock_run(self, server: Server, step: str, writes: int, rate: float | None, *, is_ours: bool) -> Run:
        command = self._command(writes, rate) | {
            "url": server.url,
            "same_clock": is_ours and self._settings.is_same_host,
            "all_tiers": is_ours,
        }
        before = server.cpu_seconds()
        run = self._run_child("headrace.bench.stock_client", command, step, writes)
        cpu = cpu_us_per_write(before, server.cpu_seconds(), writes + command["warm_up"])
        return replace(run, server_cpu_us=cpu)

    def _kafka(self, linger_ms: int) -> Callable[[str, float | None], Run]:
        def run(step: str, rate: float | None) -> Run:
            writes = self._settings.writes_of(1)
            command = self._command(writes, rate) | {
                "bootstrap": self._settings.kafka,
                "linger_ms": linger_ms,
                "warm_up": max(min(writes // 10, _MOST_KAFKA_WARM_UP), 1),
            }
            return self._run_child("headrace.bench.kafka_client", command, step, writes)

        return run

    def _command(self, writes: int, rate: float | None) -> dict[str, Any]:
        return {
            "collection": f"bench_{uuid4().hex[:12]}",
            "writes": writes,
            "warm_up": max(min(writes // 10, _MOST_WARM_UP), 1),
            "rate": rate,
            "payload": self._settings.payload,
        }

    def _run_child(self, module: str, command: dict[str, Any], step: str, writes: int) -> Run:
        self._on_progress(step, writes, 0)
        with Child(module, command) as child:
            result = child.result(lambda done: self._on_progress(step, writes, done))
        self._on_progress(step, writes, writes)
        return Run.from_json(result)

    # Scenarios 2 and 3.

    def _crowd(self, server: Server) -> None:
        settings = self._settings
        self.results.crowd = self._coalescing(
            2,
            server,
            f"{settings.clients} clients",
            clients=settings.clients,
            processes=settings.processes,
            tiers=["MEMORY", "LOCAL_DISK"],
        )

    def _lag(self, server: Server) -> None:
        tiers = ["MEMORY", "LOCAL_DISK", "OBJECT_STORAGE", "COMMITTED"]
        writes = self._settings.writes_of(3)
        step = f"{writes:,} writes to COMMITTED"
        stock = self._stock_run(server, f"{step}, stock client", writes, None, is_ours=True)
        self.results.lag["stock client"] = stock
        coalesced = self._coalescing(
            3, server, f"{step}, coalescing client", clients=1, processes=1, tiers=tiers
        )
        self.results.lag["coalescing client"] = coalesced

    def _coalescing(
        self, scenario: int, server: Server, step: str, *, clients: int, processes: int, tiers: list[str]
    ) -> Crowd:
        writes = self._settings.writes_of(scenario)
        total = writes * clients
        self._on_progress(step, total, 0)
        crowd = run_crowd(
            server,
            f"bench_{uuid4().hex[:12]}",
            clients=clients,
            writes=writes,
            processes=min(processes, clients),
            payload=self._settings.payload,
            linger=self._settings.linger_of(scenario),
            tiers=tiers,
            on_progress=lambda done: self._on_progress(step, total, done),
        )
        self._on_progress(step, total, total)
        return crowd
