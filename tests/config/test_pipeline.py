"""The pipelines' part of `headrace.yaml`: what each key means to a pipeline."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from headrace.config import HeadraceConfig, Part, config_schema, load_config
from headrace.errors import ConfigError
from headrace.ingest.iceberg.settings import embedded_catalog
from headrace.model.collections import Collection
from headrace.pipeline.settings import (
    Action,
    BindingSettings,
    CollectionSource,
    ConnectorTls,
    DeadLetterSettings,
    FormatSource,
    Guarantee,
    KafkaSource,
    Limits,
    MaterializationSettings,
    PipelineSettings,
    Profile,
    Rule,
    Trigger,
)
from headrace.spark.session import SparkSettings
from tests.config.files import written

EVERYTHING = """
data: ./data
state: {url: s3://bucket/state, options: {region: eu-central-1}}
profile: distributed-durable
spark: {master: "spark://host:7077", conf: {spark.executor.cores: 2, spark.speculation: true, spark.x: y}}
collections:
  orders:
    key: [/id, /line]
    schema:
      type: object
      properties:
        id: {type: integer}
        line: {type: integer}
        customer: {type: string}
        amount: {type: number}
        total: {type: string, format: "decimal(18,2)"}
        day: {type: string, format: date, default: 2026-11-15}
        at: {type: string, format: date-time}
        paid: {type: boolean}
        lines: {type: array}
      required: [id, line]
    invalid: drop
    quality:
      - {name: has_customer, not_null: customer}
      - {name: has_both, not_null: [customer, amount], action: fail}
      - {name: sane, range: {field: amount, minimum: 0, maximum: 1000.5}, action: warn}
      - {name: recent, range: {field: day, minimum: 2026-01-01}}
      - {name: known, regex: {field: customer, pattern: '\\p{Lu}[a-z]++(?<rest>.*)'}}
      - {name: some, in_set: {field: customer, values: [ann, bob]}}
      - {name: either, in_set: {field: paid, values: [true, false]}}
      - {name: one_each, unique: [id, line]}
      - {name: adds_up, expression: "total = amount"}
      - {name: small, range: {field: total, maximum: "99.50"}}
  people:
    key: /name
    schema: schemas/people.json
materializations:
  sales:
    connector: {name: postgres, grpc: "127.0.0.1:9000"}
    config: {url: "postgresql://${USER_NAME}@db/x", since: 2026-11-15}
    shards: 4
    trigger: 500ms
    limits: {rows: 100000, files: 100}
    guarantee: effectively-once
    dead_letters: {format: iceberg, location: quality.dead_orders}
    bindings:
      - collection: orders
        resource: {table: orders}
        fields: {include: [lines, _document], exclude: amount}
        source:
          kafka: {bootstrap: "a:9092, b:9092", topic: shop.orders, starting_offsets: latest, group: g,
                  options: {security.protocol: SASL_SSL, fetch.min.bytes: 1}}
      - collection: people
        resource: {table: people}
        source: {format: rate, options: {rowsPerSecond: 10}, order_by: [timestamp], schema: "a INT"}
      - collection: people
        resource: {table: people_too}
  archive:
    connector: sqlite
    config: {path: archive.db}
    trigger: once
    dead_letters: {location: s3://bucket/dead}
    bindings: [{collection: orders, resource: {table: orders}}]
"""
PEOPLE = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}

SMALL = """
collections:
  people:
    key: [/name]
    schema: {type: object, properties: {name: {type: string}}, required: [name]}
    quality: [{name: named, not_null: name}]
materializations:
  names:
    connector: sqlite
    config: {path: names.db, password: hunter2}
    bindings: [{collection: people, resource: {table: people}}]
  more:
    connector: sqlite
    bindings: [{collection: people}]
"""


@pytest.fixture
def everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PipelineSettings:
    monkeypatch.setenv("USER_NAME", "ann")
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas/people.json").write_text(json.dumps(PEOPLE))
    return load_config(written(tmp_path, EVERYTHING)).pipeline_settings()


def test_what_is_said_once_for_all(everything: PipelineSettings) -> None:
    assert everything.state_url == "s3://bucket/state"
    assert everything.state_options == {"region": "eu-central-1"}
    assert everything.profile is Profile.DISTRIBUTED_DURABLE
    assert everything.spark == SparkSettings(
        "spark://host:7077", {"spark.executor.cores": "2", "spark.speculation": "true", "spark.x": "y"}
    )
    assert [one.name for one in everything.materializations] == ["sales", "archive"]


def test_a_materialization(everything: PipelineSettings) -> None:
    sales, archive = everything.materializations
    assert (sales.connector, sales.connector_address) == ("postgres", "127.0.0.1:9000")
    assert sales.endpoint == {"url": "postgresql://ann@db/x", "since": "2026-11-15"}
    assert (sales.shards, sales.trigger, sales.limits) == (4, Trigger(0.5), Limits(100_000, 100))
    assert sales.guarantee is Guarantee.EFFECTIVELY_ONCE
    assert sales.dead_letters == DeadLetterSettings("iceberg", "quality.dead_orders")
    assert archive == MaterializationSettings(
        name="archive",
        connector="sqlite",
        endpoint={"path": "archive.db"},
        bindings=archive.bindings,
        trigger=Trigger(once=True),
        dead_letters=DeadLetterSettings("parquet", "s3://bucket/dead"),
    )


def test_bindings_and_their_sources(everything: PipelineSettings) -> None:
    orders, rated, people = everything.materializations[0].bindings
    assert orders.resource == {"table": "orders"}
    assert (orders.include, orders.exclude) == (("lines", "_document"), ("amount",))
    assert orders.source == KafkaSource(
        "a:9092,b:9092",
        "shop.orders",
        "latest",
        "g",
        {"security.protocol": "SASL_SSL", "fetch.min.bytes": "1"},
    )
    assert rated.source == FormatSource("rate", {"rowsPerSecond": "10"}, ("timestamp",), "a INT")
    assert people == BindingSettings(
        Collection("people", ("/name",), PEOPLE), CollectionSource("people"), {"table": "people_too"}
    )


def test_rules(everything: PipelineSettings) -> None:
    orders = everything.materializations[0].bindings[0]
    assert orders.invalid is Action.DROP
    assert orders.collection.schema["properties"]["day"]["default"] == "2026-11-15"
    assert orders.rules == (
        Rule("has_customer", not_null=("customer",)),
        Rule("has_both", Action.FAIL, not_null=("customer", "amount")),
        Rule("sane", Action.WARN, field="amount", minimum=0, maximum=1000.5),
        Rule("recent", field="day", minimum="2026-01-01"),
        Rule("known", field="customer", regex=r"\p{Lu}[a-z]++(?<rest>.*)"),
        Rule("some", field="customer", in_set=("ann", "bob")),
        Rule("either", field="paid", in_set=(True, False)),
        Rule("one_each", unique=("id", "line")),
        Rule("adds_up", expression="total = amount"),
        Rule("small", field="total", maximum="99.50"),
    )


def test_without_a_word_all_is_in_the_data_folder(tmp_path: Path) -> None:
    pipeline = load_config(written(tmp_path, SMALL)).pipeline_settings()
    assert pipeline.state_url == f"file://{tmp_path}/data/state"
    assert pipeline.catalog == embedded_catalog(tmp_path / "data")
    assert pipeline.profile is Profile.SINGLE_NODE_DURABLE
    assert pipeline.spark == SparkSettings()
    names, more = pipeline.materializations
    assert names.dead_letters == DeadLetterSettings(
        "parquet", f"file://{tmp_path}/data/state/dead-letters/names"
    )
    assert (names.shards, names.trigger, names.limits, names.guarantee) == (1, Trigger(), Limits(), None)
    assert (more.endpoint, more.bindings[0].resource) == ({}, {})


def test_the_data_folder_of_the_command_line(tmp_path: Path) -> None:
    pipeline = load_config(written(tmp_path, SMALL)).pipeline_settings(tmp_path / "elsewhere")
    assert pipeline.state_url == f"file://{tmp_path}/elsewhere/state"
    assert pipeline.catalog == embedded_catalog(tmp_path / "elsewhere")


def test_a_folder_of_state_is_beside_the_file_and_may_have_spaces(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, f"state: ./my state\n{SMALL}"))
    pipeline = config.pipeline_settings(tmp_path / "elsewhere")
    assert pipeline.state_url == f"file://{tmp_path}/my%20state"
    dead = pipeline.materializations[0].dead_letters
    assert dead is not None
    assert dead.location == f"file://{tmp_path}/my%20state/dead-letters/names"


@pytest.mark.parametrize("state", ["s3://bucket", "./state"])
def test_where_nothing_is_dropped_there_are_no_dead_letters(tmp_path: Path, state: str) -> None:
    text = SMALL.replace("not_null: name}", "not_null: name, action: warn}")
    pipeline = load_config(written(tmp_path, f"state: {state}\n{text}")).pipeline_settings()
    assert [one.dead_letters for one in pipeline.materializations] == [None, None]


def test_a_file_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, f"state: ./state\n{SMALL}")
    pipeline = load_config(Path("headrace.yaml")).pipeline_settings()
    assert pipeline.state_url == f"file://{tmp_path}/state"
    written(tmp_path, SMALL)
    pipeline = load_config(Path("headrace.yaml")).pipeline_settings()
    assert pipeline.state_url == f"file://{tmp_path}/data/state"


def test_a_connector_elsewhere_need_not_be_installed_here(tmp_path: Path) -> None:
    text = SMALL.replace("connector: sqlite", "connector: {name: theirs, grpc: 'unix:/run/theirs.sock'}", 1)
    names, _ = load_config(written(tmp_path, text)).pipeline_settings().materializations
    assert (names.connector, names.connector_address) == ("theirs", "unix:/run/theirs.sock")


def test_a_connector_elsewhere_may_be_reached_with_tls(tmp_path: Path) -> None:
    for name in ("ca", "own", "key"):
        (tmp_path / f"{name}.pem").write_text(name)
    far = "connector: {name: theirs, grpc: 'far:1', tls: {%s}}"
    for tls, expected in (
        ("ca: ca.pem, certificate: own.pem, key: key.pem", ConnectorTls(b"ca", b"own", b"key")),
        ("", ConnectorTls()),
    ):
        text = SMALL.replace("connector: sqlite", far % tls, 1)
        names, more = load_config(written(tmp_path, text)).pipeline_settings().materializations
        assert (names.connector_tls, more.connector_tls) == (expected, None)
    for tls, said in (
        ("key: key.pem", "materializations.names.connector.tls: certificate and key go together"),
        ("ca: nosuch.pem", "nosuch.pem cannot be read: No such file or directory"),
    ):
        text = SMALL.replace("connector: sqlite", far % tls, 1)
        with pytest.raises(ConfigError, match=re.escape(said)):
            load_config(written(tmp_path, text)).pipeline_settings()
    text = SMALL.replace("connector: sqlite", "connector: {name: sqlite, tls: {}}", 1)
    with pytest.raises(ConfigError, match=r"names.connector: tls goes with grpc"):
        load_config(written(tmp_path, text))


def test_a_command_needs_the_variables_of_its_own_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_DATA", "shared")
    secret = SMALL.replace("connector: sqlite", "connector: sqlite\n    shards: ${HEADRACE_UNSET}", 1)
    server = "data: ${HEADRACE_DATA}\nstore: {url: '${HEADRACE_UNSET_TOO}'}\n"
    file = written(tmp_path, server + SMALL)
    pipelines = load_config(file, Part.PIPELINE)
    assert (pipelines.data, len(pipelines.materializations)) == (tmp_path / "shared", 2)
    with pytest.raises(ConfigError, match=r"store.url: the environment variable 'HEADRACE_UNSET_TOO'"):
        load_config(file, Part.SERVER)
    file = written(tmp_path, "data: ${HEADRACE_DATA}\nserve: {port: 99}\n" + secret)
    served = load_config(file, Part.SERVER)
    assert (served.serve.port, served.materializations) == (99, {})
    for part in (Part.PIPELINE, None):
        with pytest.raises(ConfigError, match="shards: the environment variable 'HEADRACE_UNSET'"):
            load_config(file, part)
    with pytest.raises(ConfigError, match="line 1: materialisations: this key is not known"):
        load_config(written(tmp_path, "materialisations: {}\n"), Part.SERVER)


def test_every_key_is_of_a_part_or_of_all() -> None:
    of_parts = [key for part in Part for key in part.value]
    assert sorted([*of_parts, "data", "catalog"]) == sorted(HeadraceConfig.model_fields)


def test_a_folder_of_dead_letters_is_beside_the_file(tmp_path: Path) -> None:
    text = f"{SMALL}    dead_letters: {{location: dead}}\n"
    (more,) = load_config(written(tmp_path, text)).pipeline_settings(names=["more"]).materializations
    assert more.dead_letters == DeadLetterSettings("parquet", f"file://{tmp_path}/dead")


@pytest.mark.parametrize(
    ("written_as", "trigger"),
    [
        ("continuous", Trigger()),
        ("once", Trigger(once=True)),
        ("5s", Trigger(5.0)),
        ("2", Trigger(2.0)),
        ("0", Trigger()),
    ],
)
def test_triggers(tmp_path: Path, written_as: str, trigger: Trigger) -> None:
    config = load_config(written(tmp_path, f"{SMALL}    trigger: {written_as}\n"))
    (more,) = config.pipeline_settings(names=["more"]).materializations
    assert more.trigger == trigger


def test_some_of_the_materializations(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, SMALL))
    for names, found in [(["more"], ["more"]), (["more", "names", "more"], ["more", "names"])]:
        chosen = config.pipeline_settings(names=names).materializations
        assert [one.name for one in chosen] == found
    with pytest.raises(ConfigError) as refused:
        config.pipeline_settings(names=["names", "mroe"])
    assert refused.value.message == (
        f"configuration {tmp_path}/headrace.yaml, line 7: materializations: "
        "there is no 'mroe'; there are names, more"
    )


def test_a_file_without_materializations_runs_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"headrace\.yaml: materializations: there are none: add one"):
        load_config(written(tmp_path, "data: x")).pipeline_settings()


def test_secrets_are_in_no_repr(tmp_path: Path) -> None:
    text = f"""
state: {{url: s3://bucket, options: {{secret_access_key: hunter2}}}}
spark: {{conf: {{spark.hadoop.fs.s3a.secret.key: hunter2}}}}
catalog: {{properties: {{type: rest, uri: http://x, token: hunter2}}}}
{
        SMALL.replace("not_null: name}", "not_null: name, action: fail}").replace(
            "[{collection: people}]",
            "[{collection: people, source: {kafka: {bootstrap: 'a:1', topic: t, options: {x: hunter2}}}}]",
        )
    }"""
    config = load_config(written(tmp_path, text))
    assert config.materializations["names"].config["password"] == "hunter2"
    assert "hunter2" not in repr(config)


def test_the_schema_takes_what_the_code_takes() -> None:
    validator = jsonschema.Draft202012Validator(config_schema())
    raw = json.loads(json.dumps(yaml.safe_load(EVERYTHING), default=str))
    validator.validate(raw)
    validator.validate({"state": "./state"})
    mistakes: list[dict[str, Any]] = [
        {"materializations": {"sales": {"bindings": []}}},
        {"collections": {"orders": {"key": ["/id"]}}},
        {"profile": "fast"},
        {"state": 7},
    ]
    for broken in mistakes:
        assert not validator.is_valid(broken), broken
    assert "JSON pointers" in json.dumps(config_schema())


@pytest.mark.processes
def test_a_configuration_is_read_without_spark() -> None:
    """`headrace serve` and `schema` run where there is none."""
    program = "import sys, headrace.config; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_folder_that_hosts_share(tmp_path: Path) -> None:
    text = SMALL.replace(
        "    bindings: [{collection: people, resource: {table: people}}]",
        "    sinks: {files: {format: parquet, shared: true}, more: {format: delta}}\n"
        "    dead_letters: {location: ./dead, shared: true}\n"
        "    bindings: [{collection: people, resource: {table: people}, sinks: {files: ./a, more: ./b}}]",
    )
    names, _ = load_config(written(tmp_path, text)).pipeline_settings().materializations
    assert [sink.shared for sink in names.sinks] == [True, False]
    assert names.dead_letters is not None
    assert names.dead_letters.shared
