"""`headrace connector`, as a person would call it."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import grpc
import jsonschema
import pytest
import trustme

from headrace.cli import main
from headrace.cli.connector import is_local
from headrace.errors import ConfigError
from headrace.model.key_range import FULL_RANGE
from headrace.protocol.messages import Apply, Open, Spec, ValidateBinding
from headrace.testing import ConnectorProcess, GrpcConnector, materialization_of, samples
from tests.connectors.sqlite_endpoint import SqliteEndpointUnderTest
from tests.waiting import DEADLINE_SECONDS

HEADRACE = [sys.executable, "-m", "headrace"]
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Returns a function that calls the command in this process: its exit code, standard output and error."""

    def call_main(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["headrace", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        assert isinstance(code, int)
        return code, *capsys.readouterr()

    return call_main


@pytest.mark.processes
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--version"], 0, "headrace, version"),
        (["connector", "sqlite"], 1, "headrace: say where to listen with --grpc HOST:PORT"),
    ],
)
def test_as_a_process(arguments: list[str], code: int, said: str) -> None:
    """Runs the command as a process; other tests call it in their own process if it ends by itself."""
    done = subprocess.run([*HEADRACE, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert said in done.stdout + done.stderr


@pytest.mark.parametrize("command", [[], ["connector"], ["demo"]])
def test_help(call: Call, command: list[str]) -> None:
    code, shown, _ = call(*command, "--help")
    assert code == 0
    assert "Usage: " in shown


def test_help_of_connector_has_examples_and_the_names(call: Call) -> None:
    _, shown, _ = call("connector", "--help")
    assert "headrace connector sqlite --grpc 127.0.0.1:9000" in shown
    assert "NAME is one of: files, postgres, redis, sqlite, webhook." in shown


@pytest.mark.parametrize("name", ["files", "postgres", "redis", "sqlite", "webhook"])
def test_spec_prints_json_schemas(call: Call, name: str) -> None:
    _, shown, _ = call("connector", name, "--spec")
    answer = json.loads(shown)
    for schema in (answer["endpoint_schema"], answer["resource_schema"]):
        jsonschema.Draft202012Validator.check_schema(schema)
    assert f"docs/connectors/{name}.md" in answer["documentation_url"]
    assert (Path(__file__).parents[2] / "docs" / "connectors" / f"{name}.md").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["nosuch", "--spec"],
            "there is no connector 'nosuch'; there are files, postgres, redis, sqlite, webhook",
        ),
        (["sqlite"], "say where to listen with --grpc HOST:PORT"),
        (["sqlite", "--grpc", "0.0.0.0:0"], "can be reached by others"),
        (["sqlite", "--grpc", "example.com:0"], "can be reached by others"),
        (["sqlite", "--grpc", "9000"], "expected HOST:PORT"),
        (["sqlite", "--grpc", "127.0.0.1:0", "--tls-cert", __file__], "--tls-cert and --tls-key go together"),
        (["sqlite", "--grpc", "unix:/no/such/folder/socket"], "cannot listen on unix:/no/such/folder/socket"),
    ],
)
def test_bad_input_is_one_sentence_and_a_failure(call: Call, arguments: list[str], sentence: str) -> None:
    code, _, shown = call("connector", *arguments)
    assert code == 1
    (line,) = [line for line in shown.splitlines() if line.startswith("headrace: ")]
    assert sentence in line
    assert "Traceback" not in shown


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("127.0.0.1:1", True),
        ("127.1.2.3:1", True),
        ("localhost:1", True),
        ("[::1]:1", True),
        ("unix:/tmp/x", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.1:1", False),
        ("localhost.example.com:1", False),
    ],
)
def test_what_is_local(address: str, local: bool) -> None:
    assert is_local(address) is local


def test_a_port_is_needed() -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        is_local("127.0.0.1")


@pytest.mark.processes
@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_serves_until_it_is_told_to_stop(stop: signal.Signals) -> None:
    with subprocess.Popen(
        [*HEADRACE, "connector", "sqlite", "--grpc", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("connector sqlite listens on 127.0.0.1:")
        with GrpcConnector(line.split()[-1]) as client:
            assert client.spec(Spec()).endpoint_schema["title"] == "SqliteEndpoint"
        process.send_signal(stop)
        try:
            assert process.wait(DEADLINE_SECONDS) == 0
        finally:
            process.kill()


@pytest.mark.processes
def test_tls_with_client_certificates(tmp_path: Path) -> None:
    authority = trustme.CA()
    server, client = authority.issue_cert("localhost"), authority.issue_cert("client@example.com")
    server.private_key_pem.write_to_path(tmp_path / "key.pem")
    server.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    files = [
        argument
        for option, name in (("cert", "cert"), ("key", "key"), ("client-ca", "ca"))
        for argument in (f"--tls-{option}", str(tmp_path / f"{name}.pem"))
    ]
    with subprocess.Popen(
        [*HEADRACE, "connector", "sqlite", "--grpc", "localhost:0", *files], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        credentials = grpc.ssl_channel_credentials(
            authority.cert_pem.bytes(), client.private_key_pem.bytes(), client.cert_chain_pems[0].bytes()
        )
        with GrpcConnector(address, credentials) as known:
            assert known.spec(Spec()).endpoint_schema["title"] == "SqliteEndpoint"
        stranger = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
        with GrpcConnector(address, stranger) as unknown, pytest.raises(Exception, match="UNAVAILABLE"):
            unknown.spec(Spec())
        process.terminate()


@pytest.mark.processes
def test_stops_though_a_stream_waits_in_its_endpoint(tmp_path: Path) -> None:
    endpoint = SqliteEndpointUnderTest(tmp_path)
    with ConnectorProcess("sqlite") as connector:
        binding = ValidateBinding(samples.LAST_SEEN, endpoint.resource("seen"))
        view = materialization_of(connector.client, "view", "sqlite", endpoint.config, [binding])
        connector.client.apply(Apply(view, "1"))
        with closing(sqlite3.connect(endpoint.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            stream = connector.client.transactions()
            stream.send(Open(view, "1", FULL_RANGE))
            connector.terminate()
            assert connector.wait(DEADLINE_SECONDS) == 0
