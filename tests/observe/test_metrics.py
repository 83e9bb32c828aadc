"""Metrics, as Prometheus parses them."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from headrace import __version__
from headrace.errors import Unauthenticated
from headrace.ingest.access import Access
from headrace.ingest.statistics import Statistics
from headrace.model.tiers import Tier
from headrace.observe.metrics import metrics_registry
from tests.observe.scripted import ScriptedServer, ScriptedSession

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scraped(registry: CollectorRegistry) -> Samples:
    text = generate_latest(registry).decode()
    samples: Samples = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in samples, f"{key} is there twice"
            samples[key] = sample.value
    return samples


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[f"headrace_{name}", frozenset(labels.items())]


def labelled(samples: Samples, name: str, label: str) -> dict[str, float]:
    """The values of a metric of one label by that label's values."""
    return {dict(labels)[label]: value for (of, labels), value in samples.items() if of == f"headrace_{name}"}


@pytest.fixture
def server() -> ScriptedServer:
    return ScriptedServer()


def test_the_metrics_of_the_rfc(server: ScriptedServer) -> None:
    registry = metrics_registry(server)
    first = ScriptedSession(waiting={Tier.LOCAL_DISK: 1, Tier.OBJECT_STORAGE: 20, Tier.COMMITTED: 300})
    second = ScriptedSession(waiting={Tier.LOCAL_DISK: 4, Tier.COMMITTED: 5})
    server.all.write_seconds = [index / 1000 for index in range(101)]
    server.all.ack_seconds = [index / 100 for index in range(101)]
    server.live += [first, second]
    server.lsns = {"MEMORY": 1100, "LOCAL_DISK": 1090, "OBJECT_STORAGE": 1050, "COMMITTED": 900}
    samples = scraped(registry)
    # The process began at LSN 1000: what reached a tier before that is not its own.
    writes = {"memory": 100, "disk": 90, "s3": 50, "iceberg": 0}
    assert labelled(samples, "flight_writes_total", "tier") == writes
    assert labelled(samples, "durability_lag_seconds", "tier") == {"disk": 0.001, "s3": 0.2, "iceberg": 4.5}
    assert value(samples, "active_flight_clients") == 2
    assert labelled(samples, "pending_subscriptions", "tier") == {"disk": 5, "s3": 20, "iceberg": 305}
    latency = labelled(samples, "write_latency_seconds", "quantile")
    assert latency == {"0.5": 0.05, "0.9": 0.09, "0.99": 0.099, "0.999": 0.1}
    assert labelled(samples, "ack_latency_seconds", "quantile")["0.99"] == 0.99


def test_the_others(server: ScriptedServer) -> None:
    session = ScriptedSession(throttled="the disk is slower than the writers")
    server.all = Statistics(1, 2, 3, 4, 5, 6, 7, 8)
    server.live = [session, ScriptedSession()]
    server.problems = ["one", "two"]
    server.accepts_writes = False
    samples = scraped(metrics_registry(server, log_limit_bytes=1 << 34))
    expected = {
        "rows_total": 2,
        "bytes_total": 3,
        "duplicates_total": 4,
        "refused_streams_total": 5,
        "acks_total": 6,
        "throttles_total": 7,
        "disconnects_total": 8,
        "throttled_clients": 1,
        "commits_total": 3,
        "commit_failures_total": 2,
        "upload_failures_total": 1,
        "collections": 1,
        "accepts_writes": 0,
        "problems": 2,
        "term": 2,
        "epoch": 2,
        "log_bytes": 4096,
        "log_limit_bytes": 1 << 34,
        "disk_free_bytes": 1 << 40,
        "disk_needed_bytes": 1 << 28,
        "waiting_bytes": 512,
        "connections": 40,
        "connections_limit": 2048,
        "handshakes": 2,
    }
    assert {name: value(samples, name) for name in expected} == expected
    assert value(samples, "committed_lsn", collection="orders") == 900
    lsns = {"memory": 1000, "disk": 990, "s3": 950, "iceberg": 900}
    assert labelled(samples, "watermark_lsn", "tier") == lsns
    assert labelled(samples, "heartbeat_age_seconds", "task") == {"log": 0.5, "cleaner": 400.0}
    assert labelled(samples, "backlog_segments", "task") == {"cleaner": 7}
    assert labelled(samples, "connections_turned_away_total", "reason") == {
        "full": 0,
        "handshake": 5,
        "idle": 4,
    }
    assert labelled(samples, "build_info", "version") == {__version__: 1}
    assert samples["process_resident_memory_bytes", frozenset()] > 1e6


def test_a_counter_never_falls(server: ScriptedServer) -> None:
    registry = metrics_registry(server)
    server.lsns["MEMORY"] = server.lsns["COMMITTED"] = 1200
    assert value(scraped(registry), "flight_writes_total", tier="iceberg") == 200
    server.lsns["COMMITTED"] = 0  # a collection that begins has nothing in its table
    samples = scraped(registry)
    assert value(samples, "flight_writes_total", tier="iceberg") == 200
    assert value(samples, "watermark_lsn", tier="iceberg") == 0


def test_writes_before_the_metrics_were_made_count(server: ScriptedServer) -> None:
    server.all.writes = 40
    assert value(scraped(metrics_registry(server)), "flight_writes_total", tier="memory") == 40


def test_collections_are_bounded() -> None:
    server = ScriptedServer({f"c{number:03}": 1000 - number for number in range(150)})
    shown = labelled(scraped(metrics_registry(server)), "committed_lsn", "collection")
    assert len(shown) == 101
    assert shown["c099"] == 901
    assert shown["(others)"] == 851
    assert value(scraped(metrics_registry(server)), "collections") == 150


def test_writes_by_client(server: ScriptedServer) -> None:
    registry = metrics_registry(server)
    named, plain, again = (
        ScriptedSession(producer='p"\n\\'),
        ScriptedSession(),
        ScriptedSession(peer="ipv4:10.0.0.7:4243"),
    )
    ipv6 = ScriptedSession(peer="ipv6:%5B2001:db8::1%5D:99")
    socket = ScriptedSession(peer="unix:/run/x")
    silent = ScriptedSession(peer="ipv4:10.0.0.8:1")
    server.live = [named, plain, again, ipv6, socket, silent]
    for number, session in enumerate(server.live[:-1], 1):
        session.statistics.writes = 10**number
    shown = labelled(scraped(registry), "client_writes_total", "client")
    assert shown == {'p"\n\\': 10, "10.0.0.7": 1100, "2001:db8::1": 10_000, "unix:/run/x": 100_000}
    # Another stream of the same client goes on where the last one ended.
    server.live = [ScriptedSession(producer='p"\n\\')]
    server.live[0].statistics.writes = 5
    shown = labelled(scraped(registry), "client_writes_total", "client")
    assert shown['p"\n\\'] == 15
    assert shown["10.0.0.7"] == 1100


def test_clients_are_bounded(server: ScriptedServer) -> None:
    registry = metrics_registry(server)
    server.live = [ScriptedSession(producer=f"p{number}") for number in range(60)]
    for session in server.live:
        session.statistics.writes = 7
    shown = labelled(scraped(registry), "client_writes_total", "client")
    assert len(shown) == 51
    assert shown["(others)"] == 70
    assert shown == labelled(scraped(registry), "client_writes_total", "client")
    # A place that its client has left goes to the next one.
    for session in server.live[1:]:
        session.statistics.writes = 8
    server.live = server.live[1:]
    shown = labelled(scraped(registry), "client_writes_total", "client")
    assert "p0" not in shown
    assert shown["p50"] == 1  # the seven before are among the others
    assert shown["(others)"] == 79
    assert len(shown) == 51


def test_latencies_are_shown_once_there_are_any(server: ScriptedServer) -> None:
    registry = metrics_registry(server)
    assert labelled(scraped(registry), "write_latency_seconds", "quantile") == {}
    server.all.write_seconds = [0.25]
    shown = labelled(scraped(registry), "write_latency_seconds", "quantile")
    assert shown == {"0.5": 0.25, "0.9": 0.25, "0.99": 0.25, "0.999": 0.25}


def test_refused_calls_are_counted(server: ScriptedServer, tmp_path: Path) -> None:
    path = tmp_path / "tokens.yaml"
    path.write_text("[{name: a, token: aaaaaaaaaaaaaaaa, roles: {}}]")
    access = Access(path)
    registry = metrics_registry(server, access=access)
    assert value(scraped(registry), "unauthenticated_calls_total") == 0
    with pytest.raises(Unauthenticated):
        access.identify({})
    assert value(scraped(registry), "unauthenticated_calls_total") == 1


def test_openmetrics_too(server: ScriptedServer) -> None:
    server.all.write_seconds = [0.1]
    text = generate_openmetrics(metrics_registry(server)).decode()  # type: ignore[no-untyped-call]
    names = {family.name for family in parse_openmetrics(text)}  # type: ignore[no-untyped-call]
    assert {"headrace_flight_writes", "headrace_write_latency_seconds", "headrace_build"} <= names


def test_registries_do_not_know_each_other(server: ScriptedServer) -> None:
    metrics_registry(server)
    metrics_registry(server)
