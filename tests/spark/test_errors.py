"""What Spark says is an error that may pass, or one that stays."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headrace.errors import HeadraceError, SparkRefused, UnexpectedFailure
from headrace.model.collections import Collection
from headrace.pipeline.sources.json_values import frame_of_json
from headrace.spark.errors import failure_of


def test_a_plan_that_spark_refuses_stays(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="nothing") as raised:
        spark.range(1).select("nothing")
    failure = failure_of(raised.value)
    assert isinstance(failure, SparkRefused)
    assert failure.message.startswith("Spark refuses this: [UNRESOLVED_COLUMN")
    assert "\n" not in failure.message


def test_two_fields_that_spark_takes_for_one_stay(spark: SparkSession) -> None:
    properties = {"id": {"type": "integer"}, "A": {"type": "string"}, "a": {"type": "string"}}
    schema = {"type": "object", "properties": properties, "required": ["id"]}
    collection = Collection("orders", ("/id",), schema)
    rows = spark.createDataFrame([(bytearray(b"{}"), 0, 0)], "value binary, partition int, offset long")
    with pytest.raises(Exception, match=r"(?i)ambiguous") as raised:
        frame_of_json(collection)(rows)
    assert isinstance(failure_of(raised.value), SparkRefused)


@pytest.mark.parametrize(
    "options",
    [
        {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.jaas.config": "nonsense"},
        {"kafka.security.protocol": "NONE"},
    ],
    ids=["JAAS", "no such protocol"],
)
def test_a_setting_that_kafka_refuses_stays(spark: SparkSession, options: dict[str, str]) -> None:
    failure = failure_of(_failed_query(spark, options))
    assert isinstance(failure, SparkRefused), failure


def test_a_broker_that_does_not_answer_may_come_back(spark: SparkSession) -> None:
    quick = {"kafka.default.api.timeout.ms": "200", "kafka.request.timeout.ms": "100"}
    assert isinstance(failure_of(_failed_query(spark, quick)), UnexpectedFailure)


def test_a_task_that_fails_may_succeed(spark: SparkSession) -> None:
    rows = spark.range(1).select(F.raise_error(F.lit("out of luck")))
    with pytest.raises(Exception, match="out of luck") as raised:
        rows.collect()
    assert isinstance(failure_of(raised.value), UnexpectedFailure)


def _failed_query(spark: SparkSession, options: dict[str, str]) -> BaseException:
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", "127.0.0.1:1")
    stream = source.option("subscribe", "orders").options(**options).load()
    query = stream.writeStream.foreachBatch(lambda *_: None).start()
    try:
        query.awaitTermination()
    except HeadraceError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever Spark raises
        return error
    raise AssertionError("the query did not fail")
