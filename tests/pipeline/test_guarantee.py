"""What a materialization guarantees: its weakest link, with the reason of each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.connectors.registry import find_connector
from headrace.errors import ConfigError
from headrace.ingest.iceberg.settings import CatalogSettings, embedded_catalog
from headrace.model.collections import Collection
from headrace.model.ownership import Target
from headrace.pipeline.guarantee import Compiled, compile_guarantee, refuse_above, without_topic_ids
from headrace.pipeline.settings import (
    BindingSettings,
    CollectionSource,
    FormatSource,
    Guarantee,
    KafkaSource,
    MaterializationSettings,
    PipelineSettings,
    Profile,
    SinkSettings,
    SinkTarget,
    Source,
)
from headrace.pipeline.sources.kafka_offsets import has_topic_ids
from headrace.protocol.messages import (
    Delivery,
    Durability,
    Survival,
    Validate,
    ValidateBinding,
    Validated,
    ValidatedBinding,
)

AT_MOST, AT_LEAST, EFFECTIVELY, EXACTLY = Guarantee
DEV, SINGLE, DISTRIBUTED = Profile

ORDERS = Collection(
    "orders", ("/id",), {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
)
SUMMED = replace(
    ORDERS,
    schema={
        **ORDERS.schema,
        "properties": {
            "id": {"type": "integer"},
            "total": {"type": "integer", "reduce": {"strategy": "sum"}},
        },
        "reduce": {"strategy": "merge"},
    },
)
KAFKA = KafkaSource("localhost:9092", "orders")
OWN = CollectionSource("orders")
NOTHING_THERE = Target(exists=False)
ELSEWHERE = Durability(Survival.HOST, "the log of a server")
ON_HOST = Durability(Survival.PROCESS, "a file on this host")
REST = CatalogSettings(properties={"type": "rest", "uri": "https://catalog.example", "warehouse": "lake"})


def compiled(
    *sources: Source,
    delivery: Delivery = Delivery.TRANSACTIONAL,
    profile: Profile = SINGLE,
    state: str = "file:///state",
    durability: Durability = ELSEWHERE,
    catalog: CatalogSettings = REST,
    target: Target | None = NOTHING_THERE,
    checkpoints: tuple[()] | None = (),
) -> Compiled:
    bindings = tuple(BindingSettings(ORDERS, source, {}) for source in sources or (OWN,))
    settings = MaterializationSettings("sales", "some", {}, bindings)
    answers = tuple(ValidatedBinding({}, (), False, delivery, target=target) for _ in bindings)
    pipeline = PipelineSettings((settings,), state, profile=profile, catalog=catalog)
    return compile_guarantee(pipeline, settings, Validated(answers, checkpoints, durability))


@pytest.mark.parametrize(
    ("source", "guarantee", "said"),
    [
        (OWN, EXACTLY, "source collection orders: exactly-once (snapshots are replayed)"),
        (KAFKA, EXACTLY, "source kafka orders: exactly-once (offsets are replayed)"),
        (FormatSource("iceberg"), EXACTLY, "source iceberg: exactly-once (offsets are replayed)"),
        (FormatSource("Delta"), EXACTLY, "source Delta: exactly-once"),
        (FormatSource("kafka"), EXACTLY, "source kafka: exactly-once"),
        (FormatSource("rate"), AT_LEAST, "source rate: at-least-once (rows are made up anew"),
        (
            FormatSource("parquet"),
            AT_LEAST,
            "source parquet: at-least-once (which files were read is known to",
        ),
        (FormatSource("socket"), AT_MOST, "source socket: at-most-once (what was read cannot be read again)"),
        (FormatSource("org.example"), AT_LEAST, "source org.example: at-least-once (whether offsets are"),
        (FormatSource("kafka", {"failondataloss": "FALSE"}), AT_MOST, "(failOnDataLoss is false: it goes on"),
        (FormatSource("kafka", {"failOnDataLoss": "true"}), EXACTLY, "exactly-once"),
    ],
)
def test_a_source(source: Source, guarantee: Guarantee, said: str) -> None:
    result = compiled(source)
    assert result.guarantee is guarantee
    assert said in str(result.reasons[0])


def test_each_source_counts_and_is_named_once() -> None:
    result = compiled(OWN, KAFKA, FormatSource("rate"), OWN)
    assert result.guarantee is AT_LEAST
    assert [reason.link for reason in result.reasons] == [
        "source collection orders",
        "source kafka orders",
        "source rate",
        "endpoint some",
        "fence",
        "profile single-node-durable",
    ]
    assert result.weakest.link == "source rate"


@pytest.mark.parametrize(
    ("delivery", "guarantee"),
    [
        (Delivery.TRANSACTIONAL, EXACTLY),
        (Delivery.STAGED, EXACTLY),
        (Delivery.REWRITTEN, EFFECTIVELY),
        (Delivery.REPEATED, AT_LEAST),
    ],
)
def test_an_endpoint(delivery: Delivery, guarantee: Guarantee) -> None:
    result = compiled(delivery=delivery)
    assert result.guarantee is guarantee
    assert result.reasons[1].guarantee is guarantee


def test_the_weakest_binding_decides() -> None:
    settings = MaterializationSettings("sales", "redis", {}, (BindingSettings(ORDERS, OWN, {}),) * 2)
    deliveries = (Delivery.REWRITTEN, Delivery.REPEATED)
    validated = Validated(tuple(ValidatedBinding({}, (), False, delivery) for delivery in deliveries))
    result = compile_guarantee(PipelineSettings((settings,), "file:///state"), settings, validated)
    assert result.guarantee is AT_LEAST


LATE = KafkaSource("localhost:9092", "orders", "latest")
LATE_PARTITION = replace(LATE, starting_offsets='{"orders": {"0": 17, "1": -1}}')


@pytest.mark.parametrize(
    ("delivery", "source", "guarantee", "said"),
    [
        # The endpoint's checkpoint is all that is needed to go on.
        (Delivery.TRANSACTIONAL, LATE, EXACTLY, "is made anew from the endpoint's checkpoint"),
        (Delivery.STAGED, KAFKA, AT_LEAST, "everything is then written again"),
        (Delivery.REWRITTEN, KAFKA, AT_LEAST, "everything is then written again"),
        (Delivery.REPEATED, OWN, AT_LEAST, "everything is then written again"),
        (Delivery.STAGED, LATE, AT_MOST, "a source then begins at its end"),
        (Delivery.STAGED, LATE_PARTITION, AT_MOST, "a source then begins at its end"),
        (Delivery.STAGED, FormatSource("kafka"), AT_MOST, "a source then begins at its end"),
        (Delivery.STAGED, FormatSource("kafka", {"startingoffsets": "earliest"}), AT_LEAST, "written again"),
        (Delivery.STAGED, FormatSource("delta", {"startingVersion": "latest"}), AT_MOST, "at its end"),
        (Delivery.STAGED, FormatSource("delta"), AT_LEAST, "written again"),
    ],
)
def test_state_that_survives_nothing(
    delivery: Delivery, source: Source, guarantee: Guarantee, said: str
) -> None:
    result = compiled(source, delivery=delivery, profile=DEV)
    assert result.guarantee is guarantee
    assert said in str(result.reasons[-1])


@pytest.mark.parametrize("delivery", [Delivery.STAGED, Delivery.TRANSACTIONAL])
def test_state_that_survives(delivery: Delivery) -> None:
    for profile, state, said in (
        (SINGLE, "file:///state", "kept in a folder on this host, which survives the process)"),
        (SINGLE, "s3://bucket", "kept in object storage, which survives this host)"),
        (DISTRIBUTED, "s3://bucket", "kept in object storage, which survives this host)"),
    ):
        result = compiled(LATE, delivery=delivery, profile=profile, state=state)
        assert result.guarantee is EXACTLY
        assert said in str(result.reasons[-1])


@pytest.mark.parametrize(
    ("profile", "state", "said"),
    [
        (DISTRIBUTED, "file:///state", "state: a folder does not survive its host"),
        (DISTRIBUTED, "memory:///", "state: memory does not survive the process"),
        (SINGLE, "memory:///", "state: memory does not survive the process"),
    ],
)
def test_state_that_is_not_what_the_profile_says(profile: Profile, state: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        compiled(profile=profile, state=state)


@pytest.mark.parametrize("wanted", [None, *Guarantee])
def test_what_is_asked_for(wanted: Guarantee | None) -> None:
    settings = MaterializationSettings("sales", "redis", {}, (), guarantee=wanted)
    result = compiled(delivery=Delivery.REWRITTEN)
    if wanted is not EXACTLY:
        refuse_above(settings, result)
        return
    with pytest.raises(ConfigError) as refused:
        refuse_above(settings, result)
    assert refused.value.message == (
        "materialization 'sales': guarantee: exactly-once cannot be had, since endpoint some: "
        "effectively-once (a transaction that is sent again writes the same values again; kept in the log of "
        "a server, which survives this host): "
        "ask for less, or change that"
    )


def delivery_of(
    connector: str, endpoint: dict[str, object], resource: dict[str, object], what: Collection
) -> str:
    request = Validate("sales", connector, endpoint, (ValidateBinding(what, resource),))
    return find_connector(connector).validate(request).bindings[0].delivery


@pytest.mark.parametrize("delta_updates", [False, True])
def test_sqlite_is_transactional(tmp_path: Path, delta_updates: bool) -> None:
    resource: dict[str, object] = {"table": "x", "delta_updates": delta_updates}
    assert delivery_of("sqlite", {"path": str(tmp_path / "x.db")}, resource, ORDERS) == "transactional"


def test_postgres_is_transactional(postgres_url: str) -> None:
    assert delivery_of("postgres", {"url": postgres_url}, {"table": "x"}, ORDERS) == "transactional"


def test_files_are_staged(tmp_path: Path) -> None:
    assert delivery_of("files", {"url": str(tmp_path)}, {"prefix": "x"}, ORDERS) == "staged"


@pytest.mark.parametrize(
    ("collection", "delta_updates", "delivery"),
    [(ORDERS, False, "rewritten"), (SUMMED, False, "repeated"), (ORDERS, True, "repeated")],
)
def test_redis_by_the_reductions(
    redis_url: str, collection: Collection, delta_updates: bool, delivery: str
) -> None:
    resource: dict[str, object] = {"prefix": "x", "delta_updates": delta_updates}
    assert delivery_of("redis", {"url": redis_url}, resource, collection) == delivery


def test_a_webhook_is_repeated() -> None:
    assert delivery_of("webhook", {"address": "http://127.0.0.1:9"}, {"path": "/x"}, ORDERS) == "repeated"


def test_a_connector_that_says_nothing_is_not_counted_on() -> None:
    assert ValidatedBinding({}, (), False).delivery is Delivery.REPEATED


@pytest.mark.parametrize(
    ("location", "shared", "profile", "guarantee"),
    [
        ("file:///lake", False, SINGLE, EXACTLY),
        ("file:///lake", False, DISTRIBUTED, AT_MOST),
        ("/lake", False, DISTRIBUTED, AT_MOST),
        ("file:///lake", True, DISTRIBUTED, EXACTLY),
        ("s3://bucket/lake", False, DISTRIBUTED, EXACTLY),
    ],
)
def test_a_sink_in_a_folder_dies_with_its_host(
    location: str, shared: bool, profile: Profile, guarantee: Guarantee
) -> None:
    sink = SinkSettings("files", "delta", (SinkTarget(location),), shared=shared)
    settings = MaterializationSettings("sales", "", {}, (BindingSettings(ORDERS, OWN, {}),), sinks=(sink,))
    validated = Validated((ValidatedBinding({}, (), True, Delivery.STAGED),))
    state = "s3://bucket/state" if profile is DISTRIBUTED else "file:///state"
    pipeline = PipelineSettings((settings,), state, profile=profile, catalog=REST)
    found = compile_guarantee(pipeline, settings, validated)
    assert found.guarantee is guarantee
    if guarantee is AT_MOST:
        assert str(found.weakest) == (
            "sink files (delta): at-most-once (what is prepared is committed once, when the epoch is "
            "decided; kept in a folder on this host, which does not survive it: name a bucket, or write "
            "`shared: true` if all hosts have it)"
        )


def test_a_state_that_survives_nothing_is_made_anew_from_sinks() -> None:
    sink = SinkSettings("files", "delta", (SinkTarget("/lake"),))
    settings = MaterializationSettings("sales", "", {}, (BindingSettings(ORDERS, OWN, {}),), sinks=(sink,))
    validated = Validated((ValidatedBinding({}, (), True, Delivery.STAGED),))
    pipeline = PipelineSettings((settings,), "memory:///", profile=DEV)
    assert str(compile_guarantee(pipeline, settings, validated).weakest) == (
        "profile dev-local: at-least-once (the state survives nothing, and is made anew from the sinks if "
        "they stand at one epoch)"
    )


def test_files_are_read_only_where_the_list_of_them_lasts() -> None:
    assert compiled(FormatSource("json")).guarantee is AT_LEAST
    with pytest.raises(ConfigError, match="with state in s3://bucket/state there is none that lasts"):
        compiled(FormatSource("JSON"), state="s3://bucket/state")


@pytest.mark.parametrize(
    "source",
    [
        FormatSource("kafka", {"subscribePattern": "orders.*"}),
        FormatSource("kafka", {"assign": '{"orders": [0]}', "startingOffsets": '{"orders": {"0": -1}}'}),
        FormatSource(
            "kafka",
            {
                "subscribe": "orders",
                "startingTimestamp": "1",
                "startingOffsetsByTimestampStrategy": "LATEST",
            },
        ),
        FormatSource("delta", {"startingVersion": "latest"}),
    ],
)
def test_a_source_that_begins_at_its_end_and_does_not_keep_where(source: FormatSource) -> None:
    found = compiled(source, state="s3://bucket/state", profile=DISTRIBUTED)
    assert found.guarantee is AT_MOST
    assert "it begins at its end, and only Spark's checkpoint folder would keep where" in str(found.weakest)
    assert compiled(source).guarantee is EXACTLY


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "orders"},
        {"subscribe": "orders", "startingoffsets": '{"orders": {"0": -1}}'},
        {"subscribe": "orders", "startingTimestamp": "1"},
        {"subscribePattern": "orders.*", "startingOffsets": "earliest"},
    ],
)
def test_topics_that_begin_where_the_recovery_log_or_the_file_says(options: dict[str, str]) -> None:
    source = FormatSource("kafka", options)
    assert compiled(source, state="s3://bucket/state", profile=DISTRIBUTED).guarantee is EXACTLY


@pytest.mark.parametrize(
    ("durability", "profile", "guarantee", "said"),
    [
        (ELSEWHERE, DISTRIBUTED, EXACTLY, "kept in the log of a server, which survives this host"),
        (ON_HOST, SINGLE, EXACTLY, "kept in a file on this host, which survives the process"),
        (ON_HOST, DISTRIBUTED, AT_MOST, "kept in a file on this host, which does not survive it"),
        (
            Durability(Survival.NOTHING, "memory"),
            DEV,
            AT_MOST,
            "kept in memory, which may lose rows in a crash",
        ),
        (
            Durability(Survival.NOTHING, "memory"),
            SINGLE,
            AT_MOST,
            "kept in memory, which may lose rows in a crash",
        ),
        (Durability(), SINGLE, EXACTLY, "the connector does not say what rows survive"),
        (Durability(), DISTRIBUTED, AT_MOST, "the connector does not say what rows survive"),
    ],
)
def test_what_the_rows_of_an_endpoint_survive(
    durability: Durability, profile: Profile, guarantee: Guarantee, said: str
) -> None:
    state = "s3://bucket/state" if profile is DISTRIBUTED else "file:///state"
    found = compiled(durability=durability, profile=profile, state=state)
    assert found.guarantee is guarantee
    assert said in str(found.reasons[1])


@pytest.mark.parametrize(
    ("properties", "on_host"),
    [
        ({"uri": "sqlite:////data/catalog.db", "warehouse": "s3://bucket/lake"}, "a catalog that is a file"),
        ({"uri": "postgresql://db/x", "warehouse": "file:///lake"}, "a warehouse that is a folder"),
        ({"uri": "postgresql://db/x", "warehouse": "/lake"}, "a warehouse that is a folder"),
        ({"type": "rest", "uri": "https://catalog.example", "warehouse": "lake"}, ""),
        ({"uri": "postgresql://db/x", "warehouse": "s3://bucket/lake"}, ""),
    ],
)
def test_a_catalog_on_the_host_dies_with_it(properties: dict[str, str], on_host: str) -> None:
    catalog = CatalogSettings(properties=properties)
    assert compiled(catalog=catalog).guarantee is EXACTLY
    found = compiled(catalog=catalog, profile=DISTRIBUTED, state="s3://bucket/state")
    assert found.guarantee is (AT_MOST if on_host else EXACTLY)
    assert on_host in str(found.reasons[0])
    from_kafka = compiled(KAFKA, catalog=catalog, profile=DISTRIBUTED, state="s3://bucket/state")
    assert from_kafka.guarantee is EXACTLY


def test_an_iceberg_sink_is_kept_as_its_catalog_is(tmp_path: Path) -> None:
    sink = SinkSettings("lake", "iceberg", (SinkTarget("views.orders"),))
    settings = MaterializationSettings("sales", "", {}, (BindingSettings(ORDERS, KAFKA, {}),), sinks=(sink,))
    validated = Validated((ValidatedBinding({}, (), True, Delivery.STAGED),))
    for catalog, profile, guarantee in (
        (embedded_catalog(tmp_path), SINGLE, EXACTLY),
        (embedded_catalog(tmp_path), DISTRIBUTED, AT_MOST),
        (REST, DISTRIBUTED, EXACTLY),
    ):
        pipeline = PipelineSettings((settings,), "s3://bucket/state", profile=profile, catalog=catalog)
        assert compile_guarantee(pipeline, settings, validated).guarantee is guarantee


def test_an_endpoint_says_what_it_cannot_tell() -> None:
    assert "told whose" not in str(compiled().reasons[1])
    assert "it cannot be told whose a target is, so that another's is not refused" in str(
        compiled(target=None).reasons[1]
    )
    assert "it has to be opened to be asked what it has" in str(compiled(checkpoints=None).reasons[1])
    assert "opened" not in str(compiled(delivery=Delivery.STAGED, checkpoints=None).reasons[1])


def test_brokers_without_topic_ids() -> None:
    before = compiled(OWN, KAFKA, FormatSource("Kafka"))
    assert without_topic_ids(before, []) == before
    why = "there are no topic ids to compare: a topic that is deleted and created again is taken for the same"
    for source, link in ((KAFKA, "kafka orders"), (FormatSource("Kafka"), "Kafka")):
        found = without_topic_ids(before, [source])
        assert found.guarantee is AT_MOST
        assert str(found.weakest) == f"source {link}: at-most-once ({why})"
        assert sum(reason.guarantee is AT_MOST for reason in found.reasons) == 1


def test_every_topic_has_to_have_an_id() -> None:
    known = "topic orders of cluster c with id 7J2"
    assert has_topic_ids(known)
    assert has_topic_ids(f"{known}, {known}")
    assert not has_topic_ids(f"{known}, topic others of cluster c")
    assert not has_topic_ids("subscribepattern orders.*")
    assert not has_topic_ids("")


def test_what_a_format_of_somebody_else_keeps_rows_in_is_not_claimed() -> None:
    binding = BindingSettings(ORDERS, KAFKA, {})
    validated = Validated((ValidatedBinding({}, (), True, Delivery.STAGED),))
    for form, shared, said in (
        ("theirs", False, "when the epoch is decided)"),
        ("theirs", True, "kept in storage that hosts share, which survives this host)"),
        ("delta", False, "kept in object storage, which survives this host)"),
    ):
        sink = SinkSettings("lake", form, (SinkTarget("s3://bucket/lake"),), shared=shared)
        settings = MaterializationSettings("sales", "", {}, (binding,), sinks=(sink,))
        pipeline = PipelineSettings((settings,), "s3://bucket/state", profile=DISTRIBUTED, catalog=REST)
        assert said in str(compile_guarantee(pipeline, settings, validated).reasons[1])
