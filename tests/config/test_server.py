"""The server's part of `headrace.yaml`: what it means, and what is said when it is wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import yaml

from headrace.config import (
    HeadraceConfig,
    ServeSettings,
    check_exposure,
    config_schema,
    is_loopback,
    load_config,
)
from headrace.errors import ConfigError
from headrace.ingest.engine_settings import EngineSettings, LogLimits, SessionLimits
from headrace.ingest.server import TlsFiles
from tests.config.files import refusal_of, written

EVERYTHING = """
data: ./data
serve:
  host: 0.0.0.0
  port: 18815
  metrics_host: 10.0.0.1
  metrics_port: null
  tls: {certificate: cert.pem, key: /etc/key.pem}
  tokens: secret/tokens.yaml
  insecure: true
  limits: {message_bytes: 1MiB, unsynced_bytes: 2097152, ranges: 7}
store:
  url: s3://bucket/prefix
  options: {region: eu-central-1, client_options: {allow_http: true}}
catalog:
  name: prod
  namespace: shop.raw
  properties: {type: rest, uri: "https://catalog"}
  table_properties: {write.parquet.compression-codec: zstd}
ingest:
  commit_interval: 500ms
  commit_timeout: 2m
  log_bytes: 1.5GiB
  free_bytes: 2GiB
  segment_bytes: 32MB
  segment_seconds: 0.25
  group_bytes: 1kB
  gather_seconds: 0
  waiting_bytes: 3 KiB
"""


def test_without_a_file_everything_is_as_the_code_has_it() -> None:
    config = load_config(None)
    assert config.engine_settings() == EngineSettings(Path("data"))
    assert config.serve_settings() == ServeSettings()


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}"])
def test_an_empty_file_has_the_defaults_beside_it(tmp_path: Path, text: str) -> None:
    config = load_config(written(tmp_path, text))
    assert config.engine_settings() == EngineSettings(tmp_path / "data")


def test_every_key_arrives(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, EVERYTHING))
    engine = config.engine_settings()
    assert engine.data == tmp_path / "data"
    assert engine.store_url == "s3://bucket/prefix"
    assert engine.store_options == {"region": "eu-central-1", "client_options": {"allow_http": True}}
    assert engine.catalog is not None
    assert engine.catalog.identifier("orders") == ("shop", "raw", "orders")
    assert engine.catalog.properties == {"type": "rest", "uri": "https://catalog"}
    assert engine.catalog.table_properties == {"write.parquet.compression-codec": "zstd"}
    assert (engine.commit_interval, engine.commit_timeout) == (0.5, 120.0)
    assert (engine.most_log_bytes, engine.free_bytes) == (3 << 29, 2 << 30)
    assert engine.log == LogLimits(
        segment_bytes=32_000_000,
        segment_seconds=0.25,
        group_bytes=1000,
        gather_seconds=0.0,
        waiting_bytes=3072,
    )
    assert engine.session == SessionLimits(1 << 20, 2 << 20, 7)
    assert config.serve_settings() == ServeSettings(
        host="0.0.0.0",
        port=18815,
        metrics_host="10.0.0.1",
        metrics_port=None,
        tls=TlsFiles(tmp_path / "cert.pem", Path("/etc/key.pem")),
        tokens=tmp_path / "secret/tokens.yaml",
        insecure=True,
    )


def test_the_command_line_outranks_the_data_folder(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, "catalog: {namespace: shop}"))
    engine = config.engine_settings(tmp_path / "elsewhere")
    assert engine.data == tmp_path / "elsewhere"
    # The embedded catalog goes with the folder, and keeps the namespace that was asked for.
    assert engine.catalog is not None
    assert engine.catalog.namespace == "shop"
    assert engine.catalog.properties["uri"] == f"sqlite:///{tmp_path}/elsewhere/catalog.db"


def test_the_environment_is_put_into_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "p: ${NOT_LOOKED_AT} #")
    monkeypatch.setenv("PORT", "9000")
    text = """
    serve: {port: "${PORT}"}
    store: {url: "s3://bucket/${PORT}/x", options: {secret_access_key: "${SECRET}", list: ["$${PORT}", "$5"]}}
    """
    config = load_config(written(tmp_path, text))
    assert config.serve.port == 9000
    assert config.store is not None
    assert config.store.url == "s3://bucket/9000/x"
    assert config.store.options == {"secret_access_key": "p: ${NOT_LOOKED_AT} #", "list": ["${PORT}", "$5"]}


WRONG = {
    "serve: {prot: 1}": ["serve.prot: this key is not known", "the keys here are host, port, metrics_host"],
    "colections: []": ["colections: this key is not known; the keys here are data, serve, store"],
    "catalog: {uri: x}": ["catalog.uri: this key is not known", "name, namespace, properties"],
    "serve: {limits: {x: 1}}": ["serve.limits.x", "the keys here are message_bytes"],
    "serve: {port: 70000}": ["serve.port", "65535"],
    "serve: {port: http}": ["serve.port: write a whole number"],
    "serve: {host: 7}": ["serve.host: write it as text, in quotes"],
    "serve: {host: ''}": ["serve.host"],
    "serve:": ["serve: write keys and values below it"],
    "serve: {tls: {certificate: c.pem}}": ["serve.tls.key: this key is missing"],
    "serve: {insecure: perhaps}": ["serve.insecure: write true or false"],
    "serve: {limits: {message_bytes: 64 MiBs}}": ["serve.limits.message_bytes", "64MiB"],
    "serve: {limits: {message_bytes: 3GiB}}": ["serve.limits.message_bytes", "2147483647"],
    "serve: {limits: {message_bytes: 0}}": ["serve.limits.message_bytes", "greater than 0"],
    "serve: {limits: {message_bytes: true}}": ["serve.limits.message_bytes", "write a number"],
    "ingest: {log_bytes: 0.5}": ["ingest.log_bytes: write a whole number of bytes"],
    "ingest: {commit_interval: -1}": ["ingest.commit_interval", "greater than 0"],
    "ingest: {commit_interval: 5 days}": ["ingest.commit_interval", "one of ms, s, m, h, as in 500ms"],
    "ingest: {commit_interval: .inf}": ["ingest.commit_interval: write a number"],
    "store: {}": ["store.url: this key is missing"],
    "store: {url: bucket}": ["store.url: write a URL, such as s3://bucket/prefix"],
    "catalog: {properties: {port: 5}}": ["catalog.properties.port: write it as text, in quotes"],
    "- a list": ["write keys and values, such as 'data: ./data'"],
    "serve: {port: [}": ["line 1"],
    "\n\nserve: {port: 1}\nserve: {port: 2}": ["line 4: the key 'serve' is there twice"],
    "data: ${HEADRACE_UNSET}": ["data: the environment variable 'HEADRACE_UNSET' is not set"],
    "store: {url: s3://b, options: {a: ['${HEADRACE_UNSET}']}}": ["store.options.a.0", "HEADRACE_UNSET"],
    "data: &a [*a]": ["line 1: data.0: this is an alias of what it is itself in"],
    "data: ${}": ["data: the environment variable ''"],
    "data: !!python/tuple [a]": ["line 1", "python/tuple"],
    "a: \x01": ["not YAML"],
    "{[]: 1}": ["line 1"],
}


@pytest.mark.parametrize(("text", "parts"), WRONG.items(), ids=WRONG.keys())
def test_what_is_wrong_is_said_in_one_sentence(tmp_path: Path, text: str, parts: list[str]) -> None:
    message = refusal_of(written(tmp_path, text))
    assert message.startswith(f"configuration {tmp_path}/headrace.yaml")
    assert [part for part in parts if part not in message] == [], message


def test_a_secret_is_in_no_message(tmp_path: Path) -> None:
    text = "store: {url: 's3//hunter2'}\n"
    assert "hunter2" not in refusal_of(written(tmp_path, text))
    config = load_config(written(tmp_path, "store: {url: 's3://x', options: {key: hunter2}}"))
    assert "hunter2" not in repr(config)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert refusal_of(tmp_path / "nosuch.yaml").endswith(
        "nosuch.yaml cannot be read: No such file or directory"
    )


def test_merge_keys_are_no_duplicates(tmp_path: Path) -> None:
    merged = "store: {url: 's3://x', options: {a: &a {x: 1, y: 2}, b: {<<: *a, x: 3}}}"
    store = load_config(written(tmp_path, merged)).store
    assert store is not None
    assert store.options["b"] == {"x": 3, "y": 2}


def test_the_schema_takes_what_the_code_takes() -> None:
    schema = config_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(yaml.safe_load(EVERYTHING))
    assert not validator.is_valid({"serve": {"prot": 1}})
    assert not validator.is_valid({"ingest": {"commit_interval": "5 days"}})
    assert "Iceberg" in schema["properties"]["catalog"]["description"]


TLS = TlsFiles(Path("c"), Path("k"))
TOKENS = Path("tokens.yaml")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (ServeSettings(), None),
        (ServeSettings(host="localhost", metrics_host="::1"), None),
        (ServeSettings(host="[::1]", metrics_host="127.9.9.9"), None),
        (ServeSettings(host="0.0.0.0"), "set serve.tls and serve.tokens"),
        (ServeSettings(host="::"), "set serve.tls and serve.tokens"),
        (ServeSettings(host="db.example"), "db.example can be reached by others"),
        (ServeSettings(host="localhost.example"), "localhost.example can be reached"),
        (ServeSettings(host="0.0.0.0", tls=TLS), "set serve.tokens in"),
        (ServeSettings(host="0.0.0.0", tokens=TOKENS), "set serve.tls in"),
        (ServeSettings(host="0.0.0.0", tls=TLS, tokens=TOKENS), None),
        (ServeSettings(host="0.0.0.0", insecure=True), None),
        (ServeSettings(metrics_host="0.0.0.0"), "0.0.0.0 can be reached by others"),
        (ServeSettings(metrics_host="0.0.0.0", metrics_port=None), None),
        (ServeSettings(metrics_host="0.0.0.0", tls=TLS, tokens=TOKENS), None),
    ],
)
def test_nobody_else_gets_in_unless_that_is_spelled_out(settings: ServeSettings, said: str | None) -> None:
    if said is None:
        check_exposure(settings)
        return
    with pytest.raises(ConfigError, match=said) as refused:
        check_exposure(settings)
    assert "--insecure" in refused.value.message
    check_exposure(replace(settings, insecure=True))


def test_loopback() -> None:
    assert is_loopback("127.0.0.1")
    assert not is_loopback("127.0.0.1.example")
    assert not is_loopback("")


def test_a_configuration_cannot_be_changed() -> None:
    config = HeadraceConfig()
    with pytest.raises(ValueError, match="frozen"):
        config.data = Path("x")
