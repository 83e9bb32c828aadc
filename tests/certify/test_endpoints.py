"""What is certified, as the command line and a file say it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.certify.endpoints import QUICK, Brokers, Bucket, Endpoints
from headrace.certify.endpoints_given import endpoints_given
from headrace.certify.endpoints_of_file import endpoints_of_file
from headrace.config import load_config
from headrace.errors import ConfigError
from headrace.pipeline.settings import Profile

SCHEMA = {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}}


def named(endpoints: Endpoints, folder: Path, profile: Profile = Profile.SINGLE_NODE_DURABLE) -> list[str]:
    catalog = endpoints.catalog(profile, folder)
    return [target.name for target in endpoints.targets(profile, folder, catalog)]


def test_what_needs_no_server_is_there_unless_told(tmp_path: Path) -> None:
    assert named(endpoints_given([], embedded=True), tmp_path) == [
        "sqlite",
        "sqlite-grpc",
        "webhook",
        "files",
        "parquet",
        "iceberg",
        "delta",
        "hudi",
    ]
    given = ["postgres=postgresql://me@db/test", 'redis={"url": "redis://host"}', "kafka=broker:9092"]
    assert named(endpoints_given(given, embedded=False), tmp_path) == [
        "postgres",
        "redis",
        "redis-latest",
        "kafka",
    ]


def test_brokers_are_a_source_too(tmp_path: Path) -> None:
    endpoints = endpoints_given(["kafka=broker:9092"], embedded=False)
    feeds = endpoints.feeds(endpoints.catalog(Profile.SINGLE_NODE_DURABLE, tmp_path))
    assert [feed.name for feed in feeds] == ["collection", "kafka"]


def test_a_bucket_makes_another_profile_if_rows_come_from_elsewhere(tmp_path: Path) -> None:
    bucket = 's3={"url": "s3://bucket/x/"}'
    assert Profile.DISTRIBUTED_DURABLE not in endpoints_given([bucket], embedded=True).profiles()
    assert Profile.DISTRIBUTED_DURABLE not in Endpoints().profiles()
    endpoints = endpoints_given([bucket, "kafka=broker:9092"], embedded=True)
    assert Profile.DISTRIBUTED_DURABLE in endpoints.profiles()
    assert endpoints.catalog(Profile.DISTRIBUTED_DURABLE, tmp_path) is None
    found = named(endpoints, tmp_path, Profile.DISTRIBUTED_DURABLE)
    assert not {"sqlite", "iceberg"} & set(found)  # what they have is on the host's disk
    (feed,) = endpoints.feeds(None)
    assert (feed.name, feed.is_first) == ("kafka", True)


@pytest.mark.parametrize(
    ("catalog", "warehouse"),
    [
        ({"type": "sql", "uri": "postgresql://db/x"}, "s3://bucket/x/warehouse"),
        ({"type": "sql", "uri": "postgresql://db/x", "warehouse": "s3://other"}, "s3://other"),
        ({"type": "rest", "uri": "https://catalog"}, None),
    ],
)
def test_a_catalog_elsewhere_has_a_namespace_of_its_own(
    tmp_path: Path, catalog: dict[str, str], warehouse: str | None
) -> None:
    given = json.dumps({"url": "s3://bucket/x", "catalog": catalog})
    endpoints = endpoints_given([f"s3={given}"], embedded=True)
    assert Profile.DISTRIBUTED_DURABLE in endpoints.profiles()
    assert "iceberg" in named(endpoints, tmp_path, Profile.DISTRIBUTED_DURABLE)
    settings = endpoints.catalog(Profile.DISTRIBUTED_DURABLE, tmp_path)
    assert settings is not None
    assert settings.properties.get("warehouse") == warehouse
    assert settings.namespace.startswith("headrace_certify_")


def test_options_of_a_bucket_are_texts_for_sinks() -> None:
    bucket = Bucket("s3://b", {"region": "x", "n": 1, "client_options": {"allow_http": True}})
    assert bucket.texts == {"region": "x", "n": "1", "allow_http": "true"}


def test_a_connector_of_anybody_is_named_with_its_resource(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text('{"name": "mine", "grpc": "h:1", "resource": {"table": "t_{lane}"}}')
    endpoints = endpoints_given([f"connector=@{tmp_path}/mine.json"], embedded=False)
    assert named(endpoints, tmp_path) == ["connector-mine"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("mysql=x", "write KIND=VALUE, where KIND is one of postgres, redis, kafka, s3, connector"),
        ("postgres", "write KIND=VALUE"),
        ("connector=mine", "write a JSON object, or @FILE with one"),
        ("connector=@nowhere.json", "No such file"),
        ('connector={"name": "mine"}', "give name and resource"),
        ('connector={"name": "m", "resource": {}, "x": 1}', "there is no 'x'"),
        ('s3={"url": "file:///x"}', "give url, such as"),
    ],
)
def test_what_is_wrong_is_said(given: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        endpoints_given([given], embedded=True)


def test_values_may_be_in_files(tmp_path: Path) -> None:
    (tmp_path / "redis.json").write_text('{"url": "redis://host", "timeout": 5}')
    (tmp_path / "kafka.json").write_text(
        '{"bootstrap": "b:1", "options": {"security.protocol": "SSL"}, "source_options": {"a": "b"}}'
    )
    given = [f"redis=@{tmp_path}/redis.json", f"kafka=@{tmp_path}/kafka.json"]
    endpoints = endpoints_given(given, embedded=False)
    assert endpoints.redis == {"url": "redis://host", "timeout": 5}
    assert endpoints.kafka == Brokers("b:1", {"security.protocol": "SSL"}, {"a": "b"})


def test_a_quick_one_has_all_that_is_named(tmp_path: Path) -> None:
    endpoints = endpoints_given(["postgres=postgresql://me@db/test"], embedded=True)
    catalog = endpoints.catalog(Profile.SINGLE_NODE_DURABLE, tmp_path)
    found = endpoints.targets(Profile.SINGLE_NODE_DURABLE, tmp_path, catalog, quick=True)
    assert [target.name for target in found] == [*QUICK, "postgres"]


def of_file(tmp_path: Path, *materializations: dict[str, Any]) -> Endpoints:
    config = {
        "collections": {"orders": {"key": ["/id"], "schema": SCHEMA}},
        "materializations": {f"m{number}": one for number, one in enumerate(materializations)},
    }
    file = tmp_path / "headrace.yaml"
    file.write_text(yaml.safe_dump(config))
    return endpoints_of_file(load_config(file))


def connecting(connector: Any, config: dict[str, Any], resource: dict[str, Any]) -> dict[str, Any]:
    binding = {"collection": "orders", "resource": resource}
    return {"connector": connector, "config": config, "bindings": [binding]}


def sinking(sink: dict[str, Any], location: str, **binding: Any) -> dict[str, Any]:
    target = {"collection": "orders", "sinks": {"out": {"location": location}}, **binding}
    return {"sinks": {"out": sink}, "bindings": [target]}


THEIRS = {"name": "theirs", "grpc": "127.0.0.1:9000"}


def test_a_file_names_its_endpoints(tmp_path: Path) -> None:
    theirs = connecting(THEIRS, {"path": "x"}, {"comment": "daily", "table": "sales"})
    endpoints = of_file(tmp_path, theirs, sinking({"format": "delta"}, "lake"))
    assert named(endpoints, tmp_path) == ["delta", "connector-theirs"]
    (connector,) = endpoints.connectors
    assert connector["resource"] == {"comment": "daily", "table": "sales_{lane}"}
    assert connector["grpc"] == "127.0.0.1:9000"
    assert endpoints.bucket is None
    assert named(of_file(tmp_path, theirs), tmp_path) == ["connector-theirs"]


def test_a_bucket_of_a_file_is_certified_as_one(tmp_path: Path) -> None:
    lake = sinking({"format": "parquet", "options": {"aws_region": "x"}}, "s3://bucket/prod/lake")
    endpoints = of_file(tmp_path, lake)
    assert endpoints.bucket == Bucket("s3://bucket", {"aws_region": "x"}, {})
    assert named(endpoints, tmp_path, Profile.DISTRIBUTED_DURABLE) == ["parquet-s3"]


def test_brokers_of_a_file_are_a_source_if_it_reads_from_them(tmp_path: Path) -> None:
    events = sinking({"format": "kafka", "options": {"bootstrap": "b:1", "sasl.mechanism": "PLAIN"}}, "out")
    endpoints = of_file(tmp_path, events)
    assert endpoints.kafka == Brokers("b:1", {"sasl.mechanism": "PLAIN"}, is_source=False)
    source = {"kafka": {"bootstrap": "b:1", "topic": "t", "options": {"security.protocol": "SSL"}}}
    endpoints = of_file(tmp_path, events, sinking({"format": "delta"}, "lake", source=source))
    ssl = {"security.protocol": "SSL"}
    assert endpoints.kafka == Brokers("b:1", ssl, ssl)
    assert named(endpoints, tmp_path) == ["delta", "kafka"]
    with pytest.raises(ConfigError, match="topics of several Kafka clusters"):
        of_file(tmp_path, events, sinking({"format": "kafka", "options": {"bootstrap": "c:1"}}, "out"))


@pytest.mark.parametrize(
    ("materializations", "said"),
    [
        ([], "there are none: add one"),
        ([connecting(THEIRS, {}, {"comment": "daily"})], "which part of the resource of connector 'theirs'"),
        (
            [connecting("redis", {"url": f"redis://{host}"}, {"prefix": "x"}) for host in "ab"],
            "two endpoints of the connector redis",
        ),
    ],
)
def test_what_cannot_be_certified_by_its_file_is_said(
    tmp_path: Path, materializations: list[dict[str, Any]], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        of_file(tmp_path, *materializations)
