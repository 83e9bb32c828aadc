"""A server's metrics for Prometheus, read from it when they are asked for."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from threading import Lock
from typing import Any

import pyarrow as pa
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace import __version__
from headrace.ingest.access import Access
from headrace.model.tiers import Tier
from headrace.observe.clients import OTHERS, ClientWrites
from headrace.observe.latency import quantiles
from headrace.observe.source import Observed

PREFIX = "headrace_"
TIER_LABELS = {
    Tier.MEMORY: "memory",
    Tier.LOCAL_DISK: "disk",
    Tier.OBJECT_STORAGE: "s3",
    Tier.COMMITTED: "iceberg",
}
"""The names of the tiers in the RFC's metrics; `s3` is whatever object storage there is."""
_LATER_TIERS = (Tier.LOCAL_DISK, Tier.OBJECT_STORAGE, Tier.COMMITTED)
_MOST_COLLECTIONS = 100

# By the name of the metric: the field of `Statistics`, and what it counts.
_COUNTERS = {
    "rows": ("rows", "Rows of the writes that were accepted."),
    "bytes": ("bytes", "Bytes of the writes that were accepted, as the log keeps them."),
    "acks": ("acks", "Rows of acknowledgement that were sent."),
    "duplicates": ("duplicates", "Writes that a producer had sent before, and that were not written again."),
    "refused_streams": ("refused", "Streams that ended with an error of the server's."),
    "throttles": ("throttled", "How often a stream was not read because something was full."),
    "disconnects": ("disconnects", "Streams that ended without the client having said that it is done."),
}


def metrics_registry(
    server: Observed, *, log_limit_bytes: int | None = None, access: Access | None = None
) -> CollectorRegistry:
    """Registers everything that `/metrics` shows. Call it before the server takes writes."""
    registry = CollectorRegistry()
    registry.register(ServerCollector(server, log_limit_bytes))
    if access is not None:
        registry.register(AccessCollector(access))
    ProcessCollector(registry=registry)
    return registry


class ServerCollector(Collector):
    def __init__(self, server: Observed, log_limit_bytes: int | None = None) -> None:
        self._server, self._log_limit_bytes = server, log_limit_bytes
        # A process gives away LSNs without gaps; those at or below this one are of the processes before it.
        self._base = server.watermarks()[Tier.MEMORY.name] - server.statistics().writes
        self._most_writes = dict.fromkeys(Tier, 0)
        self._clients = ClientWrites()
        self._lock = Lock()

    def describe(self) -> Iterable[Metric]:
        return []  # no look at the server when it is registered

    def collect(self) -> Iterator[Metric]:
        yield _build_info()
        yield from self._tiers()
        yield from self._sessions()
        yield from self._counts()
        yield from self._latencies()
        yield from self._state()

    def _tiers(self) -> Iterator[Metric]:
        watermarks = self._server.watermarks()
        writes = _counter("flight_writes", "Writes of this process that are at the tier.", ["tier"])
        lsns = _gauge("watermark_lsn", "Everything at or below this LSN is at the tier, or lost.", ["tier"])
        lag = _gauge(
            "durability_lag_seconds",
            "How long the oldest write that is not at the tier has waited.",
            ["tier"],
        )
        with self._lock:
            for tier, label in TIER_LABELS.items():
                lsn = watermarks[tier.name]
                # The watermark of all tables falls when a new one begins, but a counter must not fall.
                self._most_writes[tier] = max(self._most_writes[tier], lsn - self._base)
                writes.add_metric([label], self._most_writes[tier])
                lsns.add_metric([label], lsn)
        for tier in _LATER_TIERS:
            lag.add_metric([TIER_LABELS[tier]], self._server.lag_seconds(tier))
        yield from (writes, lsns, lag)
        committed = _gauge(
            "committed_lsn", "The last LSN that a commit to the collection's table included.", ["collection"]
        )
        names = self._server.collections.names()
        for name in names[:_MOST_COLLECTIONS]:
            committed.add_metric([name], self._server.progress.of(Tier.COMMITTED, name).lsn)
        rest = [self._server.progress.of(Tier.COMMITTED, name).lsn for name in names[_MOST_COLLECTIONS:]]
        if rest:
            committed.add_metric([OTHERS], min(rest))
        yield committed
        yield _gauge("collections", "Collections that there are.", value=len(names))

    def _sessions(self) -> Iterator[Metric]:
        sessions = self._server.sessions()
        yield _gauge("active_flight_clients", "Streams of writes that are open.", value=len(sessions))
        pending = _gauge("pending_subscriptions", "Writes whose tier some client waits to hear of.", ["tier"])
        for tier in _LATER_TIERS:
            pending.add_metric([TIER_LABELS[tier]], sum(session.pending(tier) for session in sessions))
        yield pending
        throttled = sum(session.throttled is not None for session in sessions)
        yield _gauge(
            "throttled_clients", "Streams that are not read now because something is full.", value=throttled
        )
        clients = _counter(
            "client_writes", "Writes by producer, or by the host of a client that is none.", ["client"]
        )
        for name, writes in self._clients.look(sessions).items():
            clients.add_metric([name], writes)
        yield clients

    def _counts(self) -> Iterator[Metric]:
        statistics = self._server.statistics()
        for name, (of, described) in _COUNTERS.items():
            yield _counter(name, described, value=getattr(statistics, of))
        server = self._server
        yield _counter("commits", "Commits to Iceberg tables.", value=server.commits)
        failed = "Commits that failed; they are tried again."
        yield _counter("commit_failures", failed, value=server.commit_failures)
        failed = "Uploads to object storage that failed; they are tried again."
        yield _counter("upload_failures", failed, value=server.upload_failures)

    def _latencies(self) -> Iterator[Metric]:
        statistics = self._server.statistics()
        yield _summary(
            "write_latency_seconds",
            "From a message's arrival to its LSN, of the latest messages.",
            quantiles(statistics.write_seconds),
        )
        yield _summary(
            "ack_latency_seconds",
            "From a message's LSN to its first acknowledgement, of the latest messages.",
            quantiles(statistics.ack_seconds),
        )

    def _state(self) -> Iterator[Metric]:
        health = self._server.health()
        for name, described, value in (
            ("accepts_writes", "1 while writes are accepted, 0 while refused.", health["accepts_writes"]),
            ("problems", "How many things do not work; /readyz names them.", len(health["problems"])),
            ("term", "Rises when a server begins with an empty disk.", health["term"]),
            ("epoch", "The same as headrace_term, by its older name.", health["term"]),
            ("log_bytes", "What is on the disk of the log, side logs included.", health["log_bytes"]),
            ("log_limit_bytes", "No stream is read while log_bytes is above this.", self._log_limit_bytes),
            ("disk_free_bytes", "Free on the disk of the log.", health["disk_free_bytes"]),
            ("disk_needed_bytes", "No write is taken while less is free.", health["disk_needed_bytes"]),
            ("waiting_bytes", "Accepted and not yet written to the disk.", health["waiting_bytes"]),
        ):
            if value is not None:
                yield _gauge(name, described, value=int(value))
        ages = _gauge("heartbeat_age_seconds", "How long ago the task showed a sign of life.", ["task"])
        for task, age in health["heartbeat_ages"].items():
            ages.add_metric([task], age)
        aside = health["quarantine"]
        yield _gauge("quarantined_collections", "Collections in quarantine.", value=len(aside))
        size = sum(one["side_log_bytes"] for one in aside)
        yield _gauge("side_log_bytes", "What collections in quarantine keep of the log.", value=size)
        backlogs = _gauge("backlog_segments", "Segments that wait for the task.", ["task"])
        for task, segments in health["backlogs"].items():
            backlogs.add_metric([task], segments)
        yield from (ages, backlogs)
        connections = health["connections"]
        if connections is not None:
            yield from _connections(connections)


def _connections(connections: dict[str, Any]) -> Iterator[Metric]:
    for name, described, of in (
        ("connections", "Connections that are open.", "open"),
        ("connections_idle", "Connections that are open and have no call.", "idle"),
        ("connections_limit", "As many connections as there may be.", "most"),
        ("handshakes", "Connections that have not finished their handshake.", "handshakes"),
    ):
        yield _gauge(name, described, value=connections[of])
    away = _counter(
        "connections_turned_away", "Connections that the server hung up on, by the reason.", ["reason"]
    )
    for reason, count in connections["turned_away"].items():
        away.add_metric([reason], count)
    yield away


class AccessCollector(Collector):
    def __init__(self, access: Access) -> None:
        self._access = access

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield _counter(
            "unauthenticated_calls", "Calls without a token that is known.", value=self._access.refused
        )


def _build_info() -> Metric:
    versions = {"version": __version__, "python": platform.python_version(), "pyarrow": pa.__version__}
    return InfoMetricFamily(f"{PREFIX}build", "What is running.", versions)


def _counter(
    name: str, described: str, labels: list[str] | None = None, value: float | None = None
) -> CounterMetricFamily:
    return CounterMetricFamily(PREFIX + name, described, value, labels)


def _gauge(
    name: str, described: str, labels: list[str] | None = None, value: float | None = None
) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, described, value, labels)


def _summary(name: str, described: str, of: dict[float, float]) -> Metric:
    """Has neither sum nor count, because only the latest samples are kept."""
    metric = Metric(PREFIX + name, described, "summary")
    for quantile, seconds in of.items():
        metric.add_sample(PREFIX + name, {"quantile": str(quantile)}, seconds)
    return metric
