"""`headrace serve`, `headrace schema` and `headrace token`, as a person would call them."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner
from pyarrow import flight

import headrace
from headrace.cli import cli, main
from headrace.config import load_config
from headrace.ingest.tokens import read_tokens
from tests.ingest_process.serving import (
    HEADRACE,
    SCHEMA,
    Serving,
    exchange,
    hang_up,
    read_back,
    rows,
    write_all,
)
from tests.waiting import DEADLINE_SECONDS, wait_until


def call(*arguments: str) -> str:
    """Runs a command that does not serve in this process, and returns what it prints."""
    answer = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def in_full(*values: Any) -> Any:
    """Leaves parameters to the full tier, because they are refused in the same way as others."""
    return pytest.param(*values, marks=pytest.mark.full)


def refusal(folder: Path, *arguments: str, config: str | None = None) -> str:
    """The sentence with which `serve` ends; it must be one, and the only thing that is said."""
    files = []
    if config is not None:
        (folder / "headrace.yaml").write_text(config)
        files = ["--config", str(folder / "headrace.yaml")]
    ports = ["--port", "0", "--metrics-port", "0"]
    command = [*HEADRACE, "serve", *files, "--data", str(folder / "data"), *ports, *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_SECONDS)
    assert answer.returncode == 1, answer.stderr
    assert "listens on" not in answer.stdout
    assert "Traceback" not in answer.stderr
    (line,) = [line for line in answer.stderr.splitlines() if line.startswith("headrace: ")]
    return line.removeprefix("headrace: ")


def test_help_has_examples() -> None:
    shown = call("serve", "--help")
    assert "headrace serve --config headrace.yaml" in shown
    assert "--insecure" in shown


def test_the_commands_are_listed() -> None:
    shown = call("--help")
    assert all(
        re.search(rf"^  {name} ", shown, re.MULTILINE) for name in ("serve", "schema", "token", "demo")
    )


@pytest.mark.processes
def test_only_the_called_command_is_loaded() -> None:
    slow = ("pandas", "pyiceberg", "grpc")
    loaded = f"import sys, headrace.cli.serve; print([name for name in {slow} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"  # each of them takes longer than all the rest


@pytest.mark.processes
@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ("sreve: {}\n", "sreve"),
        in_full("serve: {port: eight}\n", "serve.port"),
        in_full("serve: [\n", "line 2: expected the node content"),
        in_full(
            "data: ${NO_SUCH_VARIABLE}\n", "the environment variable 'NO_SUCH_VARIABLE' is not set: set it"
        ),
        ("serve: {tokens: nosuch.yaml}\n", "tokens file"),
        in_full("serve: {tls: {certificate: nosuch.pem, key: nosuch.pem}}\n", "nosuch.pem"),
        ("serve: {tls: {certificate: headrace.yaml, key: headrace.yaml}}\n", "TLS"),
        in_full("store: {url: 'ftp://nowhere/x'}\n", "store 'ftp://nowhere/x'"),
    ],
)
def test_a_bad_configuration(config: str, sentence: str, tmp_path: Path) -> None:
    assert sentence in refusal(tmp_path, config=config)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--host", "0.0.0.0"], "0.0.0.0 can be reached by others: set serve.tls and serve.tokens"),
        (
            ["--data", "/dev/null/data"],
            "data folder /dev/null/data: Not a directory: choose another with --data",
        ),
        in_full(["--data", "/proc/headrace"], "data folder /proc/headrace: "),
        (["--host", "203.0.113.7", "--insecure"], "cannot listen on 203.0.113.7:0: Cannot assign requested"),
        in_full(
            ["--host", "no.such.host.invalid", "--insecure"], "cannot listen on no.such.host.invalid:0: "
        ),
    ],
)
def test_bad_options(arguments: list[str], sentence: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, *arguments).startswith(sentence)


@pytest.mark.processes
def test_a_store_that_is_not_there(tmp_path: Path) -> None:
    options = {
        "endpoint": "http://127.0.0.1:9",
        "access_key_id": "x",
        "secret_access_key": "y",
        "region": "z",
    }
    config = {
        "store": {"url": "s3://bucket/x", "options": {**options, "client_options": {"allow_http": True}}}
    }
    assert refusal(tmp_path, config=yaml.safe_dump(config)).startswith("store s3://bucket/x cannot ")


@pytest.mark.processes
def test_ports_that_are_taken_and_nothing_is_half_done(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        sentence = refusal(tmp_path, "--port", port)
        assert sentence == f"cannot listen on 127.0.0.1:{port}: Address already in use"
        sentence = refusal(tmp_path, "--metrics-port", port)
        assert sentence.startswith(f"cannot serve metrics on 127.0.0.1:{port}: Address already in use")
    with Serving(tmp_path / "data", "--no-metrics") as server, server.client() as client:
        assert write_all(client, "orders", [rows(1)])


@pytest.mark.processes
def test_a_data_folder_that_is_in_use(tmp_path: Path) -> None:
    with Serving(tmp_path / "data", "--no-metrics") as server, server.client() as client:
        assert "data folder" in (sentence := refusal(tmp_path))
        assert "is in use by another server" in sentence
        assert write_all(client, "orders", [rows(1)])


@pytest.mark.processes
def test_writes_that_are_gone_are_given_up_by_the_words_of_the_error(tmp_path: Path) -> None:
    config = {"catalog": {"properties": {"type": "rest", "uri": "http://no.such.host.invalid:1"}}}
    for number in (1, 2):  # a run begins with the whole state, so the first run is not needed for it
        with Serving(tmp_path / "data", "--no-metrics", config=config) as server, server.client() as client:
            write_all(client, "orders", [rows(number)], until="OBJECT_STORAGE")
    data = tmp_path / "data"
    for path in (data / "wal", data / "objects/wal"):
        sorted(path.iterdir())[0].unlink()
    sentence = refusal(tmp_path, config=yaml.safe_dump(config))
    assert "segments 1 to 1 (1 missing) are needed" in sentence
    option = sentence[sentence.index("--accept-loss") :].split()
    with Serving(data, "--no-metrics", *option, config=config) as server, server.client() as client:
        assert write_all(client, "orders", [rows(3)], until="OBJECT_STORAGE")
    with Serving(data, "--no-metrics", config=config) as server:
        assert server.action("health")["accepts_writes"]


@pytest.mark.processes
def test_a_catalog_that_is_not_there_does_not_keep_writes_out(tmp_path: Path) -> None:
    catalog = {"properties": {"type": "rest", "uri": "http://no.such.host.invalid:1"}}
    config = {"catalog": catalog, "ingest": {"commit_interval": "100ms"}}
    with Serving(tmp_path / "data", config=config) as server, server.client() as client:
        assert write_all(client, "orders", [rows(1)], until="OBJECT_STORAGE")
        wait_until(
            lambda: "no.such.host.invalid" in str(server.action("health")["problems"]), "the complaint"
        )
        assert server.action("health")["status"] == "degraded"
        assert server.stop() == 0


@pytest.mark.processes
def test_the_environment_and_paths_in_a_configuration(tmp_path: Path) -> None:
    folder = tmp_path / "etc"
    folder.mkdir()
    (folder / "headrace.yaml").write_text("data: ${WHERE}/data\nserve: {port: 0, metrics_port: null}\n")
    with subprocess.Popen(
        [*HEADRACE, "serve", "--config", str(folder / "headrace.yaml")],
        env={**os.environ, "WHERE": "../var"},
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith("headrace listens on grpc://127.0.0.1:")
            store = process.stdout.readline()
            process.terminate()
            rest, _ = process.communicate(timeout=DEADLINE_SECONDS)
            assert process.returncode == 0
        finally:
            process.kill()
    assert "metrics" not in rest
    assert "/data/objects, a folder: what is there survives the process, not this machine" in store
    assert (tmp_path / "var" / "data" / "wal").is_dir()


@pytest.mark.processes
def test_everybody_may_be_let_in(tmp_path: Path) -> None:
    with Serving(tmp_path / "data", "--host", "0.0.0.0", "--insecure") as server:
        assert server.url == f"grpc://0.0.0.0:{server.port}"
        with flight.FlightClient(f"grpc://127.0.0.1:{server.port}") as client:
            assert write_all(client, "orders", [rows(1)])


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGTERM, in_full(signal.SIGINT)])
def test_stops_though_a_client_is_connected(number: signal.Signals, tmp_path: Path) -> None:
    with Serving(tmp_path / "data") as server, server.client() as client:
        writer, reader = exchange(client, "orders")
        writer.begin(SCHEMA)
        for first in range(3):
            writer.write_batch(rows(first))
        lsns: list[int] = []
        while len(lsns) < 3:
            lsns += _first_acks(reader)
        assert server.stop(number) == 0
        said = server.output()
        assert "stopping: taking no more writes" in said
        assert f"stopped: everything up to LSN {lsns[-1]} is on the disk" in said
        assert "Traceback" not in said
        hang_up(writer, reader)
    with Serving(tmp_path / "data") as server, server.client() as client:
        assert read_back(client, "orders")["_lsn"].to_pylist() == lsns


def _first_acks(reader: Any) -> list[int]:
    batch = reader.read_chunk().data
    levels = batch.column("durability_level").to_pylist()
    return [
        lsn for lsn, level in zip(batch.column("lsn").to_pylist(), levels, strict=True) if level == "MEMORY"
    ]


@pytest.mark.processes
def test_a_client_is_told_when_the_server_stops(tmp_path: Path) -> None:
    with Serving(tmp_path / "data", "--no-metrics") as server, headrace.connect(server.url) as client:
        client.create_collection("orders", SCHEMA)
        server.process.send_signal(signal.SIGTERM)
        with server.client() as stock, pytest.raises(flight.FlightUnavailableError):
            _write_for_ever(stock)
        assert server.process.wait(DEADLINE_SECONDS) == 0


def _write_for_ever(client: flight.FlightClient) -> None:
    while True:
        write_all(client, "orders", [rows(1)])


def test_schema_describes_the_configuration(tmp_path: Path) -> None:
    schema = json.loads(call("schema"))
    jsonschema.Draft202012Validator.check_schema(schema)
    good = {
        "data": "x",
        "serve": {"port": 0, "limits": {"message_bytes": "1MiB"}},
        "ingest": {"commit_interval": "1s"},
    }
    jsonschema.validate(good, schema)
    (tmp_path / "headrace.yaml").write_text(yaml.safe_dump(good))
    assert load_config(tmp_path / "headrace.yaml").ingest.commit_interval == 1
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"sreve": {}}, schema)


def test_a_token_and_its_entry(tmp_path: Path) -> None:
    shown = call("token", "shop", "--write", "orders", "--write", "items", "--read", "*")
    (token,) = re.findall(r"^hr_\S+$", shown, re.MULTILINE)
    path = tmp_path / "tokens.yaml"
    path.write_text(shown[shown.index("- name:") :])
    path.chmod(0o600)
    (identity,) = read_tokens(path)
    assert identity.name == "shop"
    assert (identity.roles.write, identity.roles.read) == (("orders", "items"), ("*",))
    assert token not in path.read_text()


def test_a_token_for_a_program(tmp_path: Path) -> None:
    made = json.loads(call("token", "ops", "--admin", "--json"))
    path = tmp_path / "tokens.yaml"
    path.write_text(yaml.safe_dump([made["entry"]]))
    path.chmod(0o600)
    (identity,) = read_tokens(path)
    assert identity.is_admin
    assert made["token"].startswith("hr_")
    assert json.loads(call("token", "ops", "--admin", "--json"))["token"] != made["token"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["shop"], "a token without a role is of no use"),
        (["shop", "--write", "no-name"], "'no-name' is not a name of a collection"),
        (["", "--admin"], "name"),
    ],
)
def test_a_token_that_makes_no_sense(
    arguments: list[str],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["headrace", "token", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (1, "")
    assert sentence in said.err
    assert len(said.err.splitlines()) == 1
