"""`headrace bench ingest`, with few writes against real servers. Nothing here depends on how fast it is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from devtools.kafka_broker import KafkaBroker
from headrace.bench.children import own_server
from headrace.cli import cli, main
from tests.waiting import DEADLINE_SECONDS, wait_until

COMMAND = [sys.executable, "-m", "headrace", "bench", "ingest"]
TIERS = ["MEMORY", "LOCAL_DISK", "OBJECT_STORAGE", "COMMITTED"]


def run_bench(*arguments: str, folder: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    answer = subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(folder), "COLUMNS": "120"},
    )
    assert answer.returncode == code, answer.stdout + answer.stderr
    assert list(folder.iterdir()) == [], "something was left behind"
    return answer


def measured(*arguments: str, folder: Path) -> dict[str, Any]:
    answer = run_bench(*arguments, "--json", folder=folder)
    assert answer.stderr == ""
    results: dict[str, Any] = json.loads(answer.stdout)
    return results


def counts(run: dict[str, Any]) -> dict[str, int]:
    return {tier: at["count"] for tier, at in run["tiers"].items()}


@pytest.mark.full
@pytest.mark.processes
def test_one_client_next_to_the_ceiling(tmp_path: Path) -> None:
    results = measured("--scenario", "1", "--writes", "300", "--rate", "1000", folder=tmp_path)
    single = results["single"]
    assert set(single) == {"headrace", "raw Flight ceiling", "headrace, coalescing client"}
    for run in single["headrace"].values():
        assert counts(run) == dict.fromkeys(TIERS, 300)
    for run in single["raw Flight ceiling"].values():
        assert counts(run) == {"MEMORY": 300}
    assert counts(single["headrace, coalescing client"]["top"]) == {"MEMORY": 300, "LOCAL_DISK": 300}
    offered = single["headrace"]["offered"]
    assert offered["rate"] == 1000
    assert offered["late"]["count"] == 300
    latencies = [offered["tiers"][tier]["latency"] for tier in TIERS]
    assert all(0 < latency["p50"] <= latency["p99"] <= latency["max"] for latency in latencies)
    assert [latency["p50"] for latency in latencies] == sorted(latency["p50"] for latency in latencies)
    assert offered["tiers"]["LOCAL_DISK"]["notice"]["count"] == 300
    assert "latency" not in single["headrace"]["top"]["tiers"]["MEMORY"]
    assert {verdict["what"] for verdict in results["verdicts"]} >= {"p99 of MEMORY", "top rate"}
    assert {ratio["peer"] for ratio in results["ratios"]} == {"raw Flight ceiling"}
    assert any("--kafka" in left_out for left_out in results["left_out"])


@pytest.mark.full
@pytest.mark.processes
def test_kafka_as_a_peer(tmp_path: Path, kafka_broker: KafkaBroker) -> None:
    arguments = ("--scenario", "1", "--writes", "200", "--rate", "500", "--kafka", kafka_broker.bootstrap)
    results = measured(*arguments, folder=tmp_path)
    for name in ("Kafka, linger 0", "Kafka, linger 5 ms"):
        assert counts(results["single"][name]["offered"]) == {"DELIVERED": 200}
        assert counts(results["single"][name]["top"]) == {"DELIVERED": 200}
    assert {ratio["peer"] for ratio in results["ratios"]} >= {"Kafka, linger 0", "Kafka, linger 5 ms"}
    assert results["left_out"] == []


@pytest.mark.processes
def test_many_clients_in_two_processes(tmp_path: Path) -> None:
    arguments = ("--scenario", "2", "--clients", "5", "--writes", "60", "--processes", "2")
    crowd = measured(*arguments, folder=tmp_path)["crowd"]
    assert (crowd["clients"], crowd["processes"], crowd["writes"]) == (5, 2, 300)
    assert counts(crowd) == {"MEMORY": 300, "LOCAL_DISK": 300}
    assert len(crowd["rates"]) == 5
    assert 0 < crowd["fairness"]["slowest"] <= crowd["fairness"]["fastest"]
    assert 0.2 <= crowd["fairness"]["jain"] <= 1.0


@pytest.mark.full
@pytest.mark.processes
def test_a_server_of_somebodys(tmp_path: Path) -> None:
    with own_server() as server:
        results = measured("--scenario", "3", "--writes", "400", "--url", server.url, folder=tmp_path)
    assert set(results["lag"]) == {"stock client", "coalescing client"}
    for run in results["lag"].values():
        assert counts(run) == dict.fromkeys(TIERS, 400)
        seconds = [run["tiers"][tier]["seconds"] for tier in TIERS]
        assert seconds == sorted(seconds)


@pytest.mark.full
@pytest.mark.processes
def test_tables_and_a_plot(tmp_path: Path) -> None:
    drawing, folder = tmp_path / "latency.svg", tmp_path / "temporary"
    folder.mkdir()
    arguments = ("--scenario", "1", "--writes", "200", "--rate", "1000", "--no-peers", "--plot", str(drawing))
    said = run_bench(*arguments, folder=folder).stdout
    assert "p99 of MEMORY" in said
    assert "by a fixed schedule" in said
    assert "█" in said
    assert "Left out: the peers: --no-peers" in said
    assert "raw Flight ceiling" not in said
    assert "<polyline" in drawing.read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--kafka", "nowhere"), "expected HOST:PORT"),
        (("--kafka", "127.0.0.1:1", "--no-peers"), "give one of them"),
        (("--plot", "latency.png"), "only SVG is drawn"),
        (("--plot", "no/such/folder.svg"), "there is no folder"),
        (("--plot", "x.svg", "--scenario", "2"), "not asked for"),
        (("--url", "http://127.0.0.1"), "is not a server's address"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    arguments: tuple[str, ...],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["headrace", "bench", "ingest", *arguments, "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (1, "")
    assert_is_one_sentence(said.err, sentence)


@pytest.mark.processes
def test_a_server_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    arguments = ("--url", "grpc://127.0.0.1:1", "--scenario", "1", "--writes", "5", "--json")
    answer = run_bench(*arguments, folder=tmp_path, code=1)
    assert answer.stdout == ""
    assert_is_one_sentence(answer.stderr, "127.0.0.1:1")


def assert_is_one_sentence(said: str, part: str) -> None:
    assert said.startswith("headrace: ")
    assert part in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("arguments", [("--writes", "0"), ("--scenario", "4"), ("--rate", "fast")])
def test_options_that_cannot_be(arguments: tuple[str, ...]) -> None:
    answer = CliRunner().invoke(cli, ["bench", "ingest", *arguments])
    assert answer.exit_code == 2
    assert "Invalid value" in answer.output


@pytest.mark.full  # tests/bench/test_children.py kills the bench, which is harder
@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_when_it_is_interrupted(tmp_path: Path, number: signal.Signals) -> None:
    bench = subprocess.Popen(
        [*COMMAND, "--scenario", "1", "--rate", "100", "--json"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    started: dict[int, str] = {}

    def is_measuring() -> bool:
        assert bench.poll() is None
        started.update(descendants(bench.pid))
        return "headrace.bench.stock_client" in started.values()

    wait_until(is_measuring, "a client of the bench")
    bench.send_signal(number)
    assert bench.wait(DEADLINE_SECONDS) != 0
    assert list(tmp_path.iterdir()) == []
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started), "the end of all processes")


def descendants(pid: int) -> dict[int, str]:
    """The processes below one, each with its last argument."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
    found: dict[int, str] = {}
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        for child in [child for child, its in parents.items() if its == parent]:
            with suppress(OSError):
                command = Path(f"/proc/{child}/cmdline").read_bytes()
                found[child] = command.rstrip(b"\0").rpartition(b"\0")[2].decode()
            waiting.append(child)
    return found
