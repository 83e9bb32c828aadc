"""The native load generator against real servers: what it counts, and what it refuses to count."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import trustme
from pyarrow import flight

from headrace._native import Load, serve_floor
from headrace.bench.children import Server, own_server
from headrace.ingest.tokens import Roles, new_token
from tests.ingest_process.serving import Serving

pytestmark = pytest.mark.processes

TIERS = ["COMMITTED", "LOCAL_DISK", "MEMORY", "OBJECT_STORAGE"]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with own_server() as server:
        yield server


@pytest.fixture(scope="module")
def floor() -> str:
    return f"grpc://127.0.0.1:{serve_floor()}"


def run_load(url: str, **settings: Any) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(
        Load(json.dumps({"url": url, "collection": "bench", **settings})).run()
    )
    return report


def counts(report: dict[str, Any]) -> dict[str, int]:
    return {name: tier["count"] for name, tier in report["tiers"].items()}


def test_every_write_on_schedule_is_counted_at_every_tier(server: Server) -> None:
    report = run_load(server.url, clients=3, rate=90, warm_up_seconds=0.2, seconds=1.0)
    assert report["errors"] == []
    assert report["sent"] == 108  # 1.2 s, the warm-up included
    assert counts(report) == dict.fromkeys(TIERS, 108)
    # 18 were due during the warm-up, give or take the one at its end.
    assert all(89 <= tier["latency"]["count"] <= 91 for tier in report["tiers"].values())
    assert 89 <= report["late"]["count"] <= 91
    assert len(report["rates"]) == 3
    p50s = [report["tiers"][name]["latency"]["p50"] for name in ("MEMORY", "LOCAL_DISK", "COMMITTED")]
    assert p50s == sorted(p50s)


def test_a_number_of_writes_in_a_window(server: Server) -> None:
    report = run_load(server.url, clients=2, writes=300, window=16, payload=20)
    assert (report["errors"], report["sent"]) == ([], 600)
    assert counts(report) == dict.fromkeys(TIERS, 600)
    assert report["late"] is None


def test_coalesced_writes_each_have_an_acknowledgement(server: Server) -> None:
    report = run_load(server.url, writes=500, coalesce=50, levels=["MEMORY", "LOCAL_DISK"])
    assert report["errors"] == []
    assert counts(report) == {"MEMORY": 500, "LOCAL_DISK": 500}


@pytest.mark.parametrize("coalesce", [1, 20])
def test_the_floor_acknowledges_every_write_once(floor: str, coalesce: int) -> None:
    report = run_load(floor, clients=4, writes=200, coalesce=coalesce, levels=["MEMORY"])
    assert report["errors"] == []
    assert counts(report) == {"MEMORY": 800}


def test_a_client_of_another_language_understands_the_floor(floor: str) -> None:
    with flight.connect(floor) as client:
        writer, reader = client.do_exchange(flight.FlightDescriptor.for_path("streaming_write"))
        schema = pa.schema([("x", pa.int64())])
        writer.begin(schema)
        writer.write_batch(pa.record_batch([[1]], schema=schema))
        writer.done_writing()
        batch = reader.read_chunk().data
        writer.close()
    assert batch.column(0).to_pylist() == [1]
    assert batch.column(1).to_pylist() == ["MEMORY"]


def test_tiers_that_never_come_are_an_error(floor: str) -> None:
    report = run_load(floor, clients=2, writes=10)
    assert [error["kind"] for error in report["errors"]] == ["unacknowledged"] * 2
    assert "LOCAL_DISK" in report["errors"][0]["message"]


def test_a_refusal_of_the_server_is_an_error(server: Server) -> None:
    report = run_load(server.url, writes=10, collection="not/a/name")
    assert [error["kind"] for error in report["errors"]] == ["status"]


def test_a_server_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(OSError, match=r"cannot connect to grpc://127\.0\.0\.1:1: "):
        run_load("grpc://127.0.0.1:1", writes=1)


@pytest.mark.parametrize("settings", [{}, {"writes": 1, "clients": 0}, {"writes": 1, "speed": 1}])
def test_what_is_no_load_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="the load cannot be run as described"):
        run_load("grpc://127.0.0.1:1", **settings)


def test_a_token_over_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "certificate.pem")
    token, entry = new_token("writer", Roles(write=("*",)))
    (tmp_path / "tokens.yaml").write_text(entry)
    (tmp_path / "tokens.yaml").chmod(0o600)
    tls = {"certificate": "certificate.pem", "key": "key.pem"}
    config = {"serve": {"host": "127.0.0.1", "tls": tls, "tokens": "tokens.yaml"}}
    ca = authority.cert_pem.bytes().decode()
    with Serving(tmp_path / "data", config=config) as serving:
        report = run_load(serving.url, writes=20, token=token, ca=ca, levels=["MEMORY"])
        assert (report["errors"], counts(report)) == ([], {"MEMORY": 20})
        [refused] = run_load(serving.url, writes=20, token="other", ca=ca)["errors"]
        assert "Unauthenticated" in refused["message"]
        with pytest.raises(OSError, match="cannot connect"):
            run_load(serving.url, writes=20, token=token)
