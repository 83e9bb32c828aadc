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


SHORT = ("--seconds", "0.5", "--warm-up", "0.1", "--rate", "200", "--window", "10", "--coalesce", "20")


def by_load(results: dict[str, Any]) -> dict[tuple[str, str, float | None, int], dict[str, Any]]:
    return {
        (one["word"], one["contender"], one["rate"], one["coalesce"]): one["run"]
        for one in results["measurements"]
    }


@pytest.mark.full
@pytest.mark.processes
def test_one_client_next_to_the_floor(tmp_path: Path) -> None:
    results = measured("single", *SHORT, folder=tmp_path)
    found = by_load(results)
    loads = [(200.0, 1), (None, 1), (None, 20)]
    assert set(found) == {("single", name, *load) for name in ("headrace", "bare tonic") for load in loads}
    offered = found["single", "headrace", 200.0, 1]
    assert counts(offered) == dict.fromkeys(TIERS, 120)
    assert counts(found["single", "bare tonic", 200.0, 1]) == {"MEMORY": 120}
    for run in found.values():
        assert all(tier["count"] == run["sent"] > 0 for tier in run["tiers"].values())
    assert {ratio["what"] for ratio in results["ratios"]} == {
        "p50 of MEMORY",
        "p99 of MEMORY",
        "rate to MEMORY",
    }
    assert any("--kafka" in left_out for left_out in results["left_out"])


@pytest.mark.full
@pytest.mark.processes
def test_kafka_as_a_peer(tmp_path: Path, kafka_broker: KafkaBroker) -> None:
    arguments = ("crowd", *SHORT, "--clients", "3", "--kafka", kafka_broker.bootstrap)
    results = measured(*arguments, folder=tmp_path)
    kafka = by_load(results)["crowd", "Kafka", 200.0, 1]
    assert (kafka["clients"], counts(kafka)) == (3, {"DELIVERED": 120})
    assert {ratio["peer"] for ratio in results["ratios"]} == {"bare tonic", "Kafka"}
    assert results["left_out"] == []


@pytest.mark.processes
def test_many_clients_of_somebodys_server(tmp_path: Path) -> None:
    with own_server() as server:
        arguments = ("crowd", "lag", "--clients", "5", "--writes", "60", "--no-peers", "--url", server.url)
        results = measured(*arguments, *SHORT, folder=tmp_path)
    found = by_load(results)
    offered = found["crowd", "headrace", 200.0, 1]
    assert (offered["clients"], len(offered["rates"])) == (5, 5)
    assert counts(offered) == dict.fromkeys(TIERS, 120)
    for coalesce in (1, 20):
        lag = found["lag", "headrace", None, coalesce]
        assert counts(lag) == dict.fromkeys(TIERS, 60)
        seconds = [lag["tiers"][tier]["seconds"] for tier in TIERS]
        assert seconds == sorted(seconds)
    assert results["ratios"] == []


@pytest.mark.full
@pytest.mark.processes
def test_without_the_committer_nothing_is_committed(tmp_path: Path) -> None:
    arguments = ("single", "lag", "--writes", "60", "--no-peers", "--no-committer", *SHORT)
    results = measured(*arguments, folder=tmp_path)
    found = by_load(results)
    assert counts(found["single", "headrace", 200.0, 1]) == dict.fromkeys(TIERS[:3], 120)
    assert counts(found["lag", "headrace", None, 20]) == dict.fromkeys(TIERS[:3], 60)
    assert any("--no-committer" in left_out for left_out in results["left_out"])


@pytest.mark.full
@pytest.mark.processes
def test_one_client_in_python_and_tables(tmp_path: Path) -> None:
    said = run_bench("python", *SHORT, folder=tmp_path).stdout
    assert "python: 1 client, 200/s, one write a message, bare tonic" in said
    assert "p99 of MEMORY" in said
    assert "by a fixed schedule" in said


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--kafka", "nowhere"), "expected HOST:PORT"),
        (("--kafka", "127.0.0.1:1", "--no-peers"), "give one of them"),
        (("--no-committer", "--url", "grpc://127.0.0.1:1"), "leave out --url"),
        (("--ca", __file__), "with a --url that begins with grpc+tls"),
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
    arguments = ("--url", "grpc://127.0.0.1:1", "single", "--json")
    answer = run_bench(*arguments, folder=tmp_path, code=1)
    assert answer.stdout == ""
    assert_is_one_sentence(answer.stderr, "127.0.0.1:1")


def assert_is_one_sentence(said: str, part: str) -> None:
    assert said.startswith("headrace: ")
    assert part in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("arguments", [("--writes", "0"), ("quick",), ("--rate", "fast")])
def test_options_that_cannot_be(arguments: tuple[str, ...]) -> None:
    answer = CliRunner().invoke(cli, ["bench", "ingest", *arguments])
    assert answer.exit_code == 2
    assert "Invalid value" in answer.output


@pytest.mark.full  # tests/bench/test_children.py kills the bench, which is harder
@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_when_it_is_interrupted(tmp_path: Path, number: signal.Signals) -> None:
    bench = subprocess.Popen(
        [*COMMAND, "single", "--rate", "100", "--seconds", "600", "--json"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    started: dict[int, str] = {}

    def is_measuring() -> bool:
        assert bench.poll() is None
        started.update(descendants(bench.pid))
        return "headrace.bench.load" in started.values()

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
