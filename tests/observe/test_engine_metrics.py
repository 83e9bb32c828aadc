"""The metrics of a real server while it takes writes over its port, and the dashboards that show them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pyarrow as pa
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from pyarrow import flight

from headrace.ingest.access import Access
from headrace.ingest.engine_settings import EngineSettings
from headrace.ingest.server import IngestServer, Listen
from headrace.observe.http import ObserveServer
from headrace.observe.metrics import metrics_registry
from tests.waiting import DEADLINE_SECONDS, wait_until

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
DASHBOARDS = sorted((ROOT / "deploy/grafana").glob("*.json"))
RULES = sorted((ROOT / "deploy/prometheus").glob("*.yml"))
BATCH = pa.record_batch({"id": pa.array([1, 2, 3])})
WRITES = 20


@pytest.fixture(scope="module")
def metrics_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a server that has taken writes of one stream to Iceberg, and holds it open."""
    settings = EngineSettings(tmp_path_factory.mktemp("data"), commit_interval=0.2)
    access = Access()
    server = IngestServer(settings, Listen(port=0), access)
    registry = metrics_registry(server.engine, log_limit_bytes=settings.most_log_bytes, access=access)
    observe = ObserveServer(server.engine, registry)
    server.start()
    observe.start()
    try:
        with flight.connect(server.url) as client:
            descriptor = flight.FlightDescriptor.for_path("streaming_write", "orders")
            writer, reader = client.do_exchange(descriptor)
            with writer:
                writer.begin(BATCH.schema)
                for _ in range(WRITES):
                    writer.write_batch(BATCH)
                levels: list[str] = []
                while levels.count("COMMITTED") < WRITES:
                    levels += reader.read_chunk().data["durability_level"].to_pylist()
                yield f"http://127.0.0.1:{observe.port}"
    finally:
        observe.stop()
        server.stop()


def families(url: str) -> dict[str, Any]:
    with urlopen(f"{url}/metrics", timeout=DEADLINE_SECONDS) as response:
        text = response.read().decode()
    return {
        sample.name: family for family in text_string_to_metric_families(text) for sample in family.samples
    }


def by_label(family: Any, label: str) -> dict[str, float]:
    return {sample.labels[label]: sample.value for sample in family.samples}


def is_all_counted(url: str) -> bool:
    found = families(url)
    writes = by_label(found["headrace_flight_writes_total"], "tier")
    (notices,) = found["headrace_acks_total"].samples
    return writes["iceberg"] == WRITES and notices.value == WRITES * 4


def test_a_server_counts_what_it_took(metrics_url: str) -> None:
    # A write is counted when it reaches its tier, a notice after it was sent; the order is not guaranteed.
    wait_until(lambda: is_all_counted(metrics_url), "all writes and notices counted")
    found = families(metrics_url)
    writes = by_label(found["headrace_flight_writes_total"], "tier")
    values = {name: family.samples[0].value for name, family in found.items() if len(family.samples) == 1}
    assert writes == {"memory": WRITES, "disk": WRITES, "s3": WRITES, "iceberg": WRITES}
    assert values["headrace_rows_total"] == WRITES * BATCH.num_rows
    assert values["headrace_acks_total"] == WRITES * 4
    assert values["headrace_active_flight_clients"] == 1
    assert values["headrace_commits_total"] >= 1
    assert values["headrace_commit_failures_total"] == 0
    assert values["headrace_upload_failures_total"] == 0
    assert values["headrace_accepts_writes"] == 1
    assert by_label(found["headrace_client_writes_total"], "client") == {"127.0.0.1": WRITES}
    assert by_label(found["headrace_pending_subscriptions"], "tier") == {"disk": 0, "s3": 0, "iceberg": 0}
    assert by_label(found["headrace_write_latency_seconds"], "quantile")["0.5"] > 0
    assert by_label(found["headrace_committed_lsn"], "collection")["orders"] >= WRITES


def test_a_server_is_alive_and_ready(metrics_url: str) -> None:
    for path in ("/healthz", "/readyz"):
        with urlopen(metrics_url + path, timeout=DEADLINE_SECONDS) as response:
            assert json.load(response)["status"] == "ok"


def metrics_in(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:headrace|process)_\w+", expression))


def expressions_of(dashboard: Path) -> list[str]:
    panels = json.loads(dashboard.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", [])]


def test_there_are_the_three_dashboards_of_the_rfc() -> None:
    assert [path.stem for path in DASHBOARDS] == ["client-health", "durability", "write-performance"]
    raw = [json.loads(path.read_text()) for path in DASHBOARDS]
    assert len({dashboard["uid"] for dashboard in raw}) == 3
    for dashboard in raw:
        ids = [panel["id"] for panel in dashboard["panels"]]
        assert len(set(ids)) == len(ids)
        spots = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]]
        assert len(set(spots)) == len(spots)


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda path: path.stem)
def test_every_metric_of_a_dashboard_exists(metrics_url: str, dashboard: Path) -> None:
    expressions = expressions_of(dashboard)
    assert expressions
    assert all(metrics_in(expression) for expression in expressions)
    shown = set().union(*map(metrics_in, expressions))
    assert shown - families(metrics_url).keys() == set()


@pytest.mark.parametrize("rules", RULES, ids=lambda path: path.stem)
def test_every_metric_of_an_alert_exists(metrics_url: str, rules: Path) -> None:
    found = [rule for group in yaml.safe_load(rules.read_text())["groups"] for rule in group["rules"]]
    assert found
    for rule in found:
        assert {"alert", "expr", "labels", "annotations"} <= rule.keys()
        assert {"summary", "description"} <= rule["annotations"].keys()
        assert metrics_in(rule["expr"]) - families(metrics_url).keys() == set()
    documented = (ROOT / "docs/operations.md").read_text()
    assert [rule["alert"] for rule in found if f"`{rule['alert']}`" not in documented] == []


def test_every_metric_is_documented(metrics_url: str) -> None:
    documented = set(re.findall(r"`(headrace_\w+)", (ROOT / "docs/operations.md").read_text()))
    served = {name for name in families(metrics_url) if name.startswith("headrace_")}
    assert served - documented == set()
    assert documented - served == set()
